"""Whether a JSON value fits a JSON Schema, for what no grammar held the model to.

Schemas come from servers and clients: none of them makes this fetch anything, run long, or fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

log = logging.getLogger(__name__)

STEPS = 20_000
"""Keywords that are looked at; a schema whose branches multiply would go on for ever."""
DEEP = 100
"""Keywords within each other; Python's stack would end soon after, and native code on it panics."""
PATTERNS = ("pattern", "patternProperties")
"""Regular expressions that may run for ever; grammars enforce them."""
BESIDE = ("unevaluatedProperties", "unevaluatedItems")
"""These try the expressions of all schemas that they lie beside, too."""


class _TooMuch(Exception):
    pass


def problem(schema: Mapping[str, Any], value: object) -> str | None:
    """What is wrong with the value, in one sentence; None: nothing that could be found, and that
    is all that can be said where the schema itself is wrong or does not end."""
    # Imported here: it takes a moment, and most calls never need it.
    import jsonschema
    import referencing

    validator = _validator(jsonschema)(schema, registry=referencing.Registry())
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except (_TooMuch, RecursionError):
        return None
    except Exception:  # an invalid schema fails in ways of its own
        log.debug("a schema cannot be followed", exc_info=True)
        return None
    if error is None:
        return None
    place = ".".join(str(part) for part in error.absolute_path)
    return f"{place}: {error.message[:400]}" if place else str(error.message)[:400]


def _validator(jsonschema: Any) -> Any:
    draft = jsonschema.Draft202012Validator
    steps = depth = 0

    def counted(check: Callable[..., Iterator[Any] | None]) -> Callable[..., Iterator[Any]]:
        def checked(*arguments: Any) -> Iterator[Any]:
            nonlocal steps, depth
            steps += 1
            depth += 1
            try:
                if steps > STEPS or depth > DEEP:
                    raise _TooMuch
                yield from check(*arguments) or ()
            finally:
                depth -= 1

        return checked

    def additional(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any] | None:
        if "patternProperties" in schema:
            return None  # which are additional, only the expressions tell
        found: Iterator[Any] = draft.VALIDATORS["additionalProperties"](
            validator, value, instance, schema
        )
        return found

    checks = {keyword: counted(check) for keyword, check in draft.VALIDATORS.items()}
    ignored = dict.fromkeys(PATTERNS + BESIDE, counted(lambda *_: None))
    checks["additionalProperties"] = counted(additional)
    return jsonschema.validators.extend(draft, checks | ignored)
