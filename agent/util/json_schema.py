"""Checks a JSON value against a JSON Schema (draft 2020-12) of a server or client, where no grammar
enforced it; none makes this fetch anything, run long, or fail."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent.errors import AgentError

log = logging.getLogger(__name__)

MAX_KEYWORDS = 20_000
"""Schema keywords evaluated per check; a schema whose branches multiply would never end."""
MAX_KEYWORD_DEPTH = 100
"""Nesting of keywords; Python's stack would end soon after, and native code on it panics."""
SKIPPED_KEYWORDS = ("pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems")
"""Not evaluated: regular expressions may run for ever, and grammars enforce them; the unevaluated ones
try the regular expressions of all sibling schemas too."""


class _LimitReachedError(AgentError):
    """`MAX_KEYWORDS` or `MAX_KEYWORD_DEPTH` is reached."""


def find_violation(schema: Mapping[str, Any], value: object) -> str | None:
    """Describe the first violation in a sentence; None: none, or the schema is invalid or too large."""
    # Imported here: it takes a moment, and most calls never need it.
    import jsonschema
    import referencing

    validator = _validator(jsonschema)(schema, registry=referencing.Registry())
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except (_LimitReachedError, RecursionError):
        return None
    except Exception:  # an invalid schema fails in ways of its own
        log.debug("a schema cannot be followed", exc_info=True)
        return None
    if error is None:
        return None
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{path}: {error.message[:400]}" if path else str(error.message)[:400]


def find_schema_error(schema: Mapping[str, Any]) -> str | None:
    """Describe in one sentence why this is not a JSON Schema; None: no error was found."""
    import jsonschema

    # Draft 7's own schema refers to nothing but itself; later drafts have new names for two keywords.
    rules = jsonschema.Draft7Validator.META_SCHEMA
    known = rules["properties"]
    renamed = {"$defs": known["definitions"], "prefixItems": known["allOf"]}
    return find_violation({**rules, "properties": {**known, **renamed}}, schema)


def _validator(jsonschema: Any) -> Any:
    draft = jsonschema.Draft202012Validator
    steps = depth = 0

    def counted(check: Callable[..., Iterator[Any] | None]) -> Callable[..., Iterator[Any]]:
        def checked(*arguments: Any) -> Iterator[Any]:
            nonlocal steps, depth
            steps += 1
            depth += 1
            try:
                if steps > MAX_KEYWORDS or depth > MAX_KEYWORD_DEPTH:
                    raise _LimitReachedError
                yield from check(*arguments) or ()
            finally:
                depth -= 1

        return checked

    def additional(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if "patternProperties" in schema:
            return  # only its expressions tell which ones are additional
        yield from draft.VALIDATORS["additionalProperties"](validator, value, instance, schema)

    checks = {keyword: counted(check) for keyword, check in draft.VALIDATORS.items()}
    ignored = dict.fromkeys(SKIPPED_KEYWORDS, counted(lambda *_: None))
    checks["additionalProperties"] = counted(additional)
    return jsonschema.validators.extend(draft, checks | ignored)
