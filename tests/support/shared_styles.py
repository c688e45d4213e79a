"""Parses each style sheet once: Textual does so for each app, a quarter of its start."""

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet


@pytest.fixture(scope="session", autouse=True)
def shared_styles() -> None:
    """Let all apps share the rules that were parsed with the same variables."""
    parse = Stylesheet._parse_rules
    parsed: dict[object, list[RuleSet]] = {}

    def parse_once(self: Stylesheet, *source: object, **kinds: object) -> list[RuleSet]:
        key = (frozenset(self._variables.items()), source, frozenset(kinds.items()))
        if key not in parsed:
            parsed[key] = parse(self, *source, **kinds)  # type: ignore[arg-type]
        return parsed[key]

    Stylesheet._parse_rules = parse_once  # type: ignore[method-assign]
