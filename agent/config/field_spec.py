"""Checks values of config.toml and models.toml against a table. By hand: importing pydantic takes
longer than all that is done before the app's first paint."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class FieldSpec(NamedTuple):
    """The values that one field of a TOML table may have."""

    expected: str
    """For people, after "NAME is": "a number of seconds"."""
    accepts: Callable[[Any], bool]


def find_mismatch(table: Mapping[str, Any], specs: Mapping[str, FieldSpec]) -> str | None:
    """The first field of ``specs`` whose value in ``table`` is not accepted; None: all fit."""
    known = (name for name in specs if name in table)
    return next((name for name in known if not specs[name].accepts(table[name])), None)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a finite TOML integer or float, not a boolean."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]
