"""What may be said next, by a grammar over the model's own tokens (llguidance).

A vocabulary's grammars are compiled in one thread in the background: the first one also builds the
tokenizer there (a second for 200,000 tokens). Nothing that a grammar holds can stop the process: its
length is limited here, the work that it causes by llguidance.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agent.engine.grammar_check import vet
from agent.engine.protocol import Busy

WHITESPACE = r"( |\n[ \t]{0,32})?"
"""Between a JSON text's parts: none, a space, or a new line with its indent, but no endless run."""
LONGEST = 100_000
"""Characters of a grammar; those of the worst kind then compile within a second."""
SMALL = 16_000
"""Characters of a JSON Schema up to which it cannot be so deep that it overflows a stack; longer ones
are tried out in a process of their own first."""
SYMBOLS = 50_000
"""Of a compiled grammar, for the same reason."""
PATTERNS = 40
"""Where ``allOf`` can combine them: llguidance's limits do not count that work, which explodes."""
KEPT = 512
"""Compiled grammars that are remembered."""
FEW = 32
"""So few bytes of a mask are looked at alone."""
DIGITS = 400
"""In a row: more than any double has that is written out, so a number of JSON ends there; schemas
without bounds would let it go on for ever."""
WAITING = 64
"""Grammars that turns may wait for at once; one may take a second."""

Ids = npt.NDArray[np.intp]


class GrammarError(Exception):
    """A grammar cannot be used; the message is a part of a sentence that says why."""


class Unsatisfiable(GrammarError):
    """No text has the form."""

    def __init__(self, why: str = "") -> None:
        super().__init__(f"no text can satisfy it{why and f' ({why})'}")


@dataclass(frozen=True, slots=True)
class Grammar:
    """A form that a text has to have."""

    syntax: Literal["json", "lark", "regex"]
    text: str
    """A JSON Schema's text, a Lark grammar with ``start``, or a regular expression."""
    ours: bool = False
    """Written by this program: it need not be tried out first."""

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any] | bool) -> Grammar:
        """Raises GrammarError."""
        try:
            return cls("json", json.dumps({} if schema is True else schema))
        except RecursionError:
            raise GrammarError("it is nested too deeply") from None
        except (TypeError, ValueError) as error:
            raise GrammarError(f"it is not JSON ({error})") from None

    @classmethod
    def of_arguments(cls, schema: Mapping[str, Any]) -> Grammar:
        """A call's arguments are an object, where the schema leaves that open. Raises GrammarError."""
        kind = schema.get("type")
        is_open = kind is None or (isinstance(kind, list) and "object" in kind)
        return cls.of_schema({**schema, "type": "object"} if is_open else schema)


ANY_OBJECT = Grammar("json", '{"type": "object"}')


@dataclass(frozen=True, slots=True)
class Spelling:
    """A vocabulary: each id's bytes, and the ids that are more than their text."""

    tokens: list[bytes]
    specials: frozenset[int]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What of a vocabulary numbers are made of."""

    digits: Mapping[int, int]
    """How many each id has that is nothing else."""
    quote: int
    """What may end a string, but comes in no number."""

    @classmethod
    def of(cls, tokens: Sequence[bytes]) -> Numbers:
        digits = {id: len(text) for id, text in enumerate(tokens) if text.isdigit()}
        return cls(digits, tokens.index(b'"') if b'"' in tokens else -1)


NO_NUMBERS = Numbers({}, -1)


class Matcher:
    """One text as it is written under a grammar."""

    def __init__(self, matcher: Any, never: int, numbers: Numbers) -> None:
        """`never`: the end, of which the text's surroundings decide."""
        self._matcher, self._never, self._numbers = matcher, never, numbers
        self._digits = 0
        """So many stand at the end of the text."""

    @property
    def complete(self) -> bool:
        """The text may end here."""
        return bool(self._matcher.is_accepting())

    def accept(self, token: int) -> bool:
        """The token comes next, if it may; else nothing has changed."""
        more = self._numbers.digits.get(token, 0)
        if more and self._digits >= DIGITS and token not in self.allowed():
            return False
        if not self._matcher.try_consume_tokens([token]):
            return False
        self._digits = self._digits + more if more else 0
        return True

    def allowed(self) -> Ids:
        """Exactly the ids that may come next, ascending. None, where work became too much."""
        ids = self._fitting()
        return ids if self._digits < DIGITS else self._without_digits(ids)

    def _without_digits(self, ids: Ids) -> Ids:
        """Unless they stand in a string, or nothing else may come."""
        if self._numbers.quote in ids:
            return ids
        left = np.setdiff1d(ids, np.fromiter(self._numbers.digits, np.intp))
        return left if len(left) or self.complete else ids

    def _fitting(self) -> Ids:
        if self._matcher.is_stopped():
            return np.empty(0, np.intp)
        mask = self._matcher.compute_bitmask()
        bits = np.frombuffer(mask, np.uint8)
        some = (bits != 0).nonzero()[0]
        if len(some) > FEW:
            ids: Ids = np.unpackbits(bits, bitorder="little").view(np.bool_).nonzero()[0]
            return ids.compress(ids != self._never)
        # Of a few, Python finds the bits sooner than numpy.
        eights = (range(byte << 3, (byte << 3) + 8) for byte in some.tolist())
        few = [i for eight in eights for i in eight if mask[i >> 3] >> (i & 7) & 1]
        return np.array([i for i in few if i != self._never], np.intp)


class Compiled:
    """A grammar on a vocabulary, ready for any number of texts."""

    def __init__(
        self, matcher: Any, never: int, numbers: Numbers, body: str, unenforced: str | None
    ) -> None:
        self._matcher, self._never, self._numbers = matcher, never, numbers
        self.body = body
        """The grammar as the right side of a Lark rule, where it is a JSON Schema's."""
        self.unenforced = unenforced
        """What of it cannot be enforced, in llguidance's words; None: nothing."""

    def begin(self) -> Matcher:
        return Matcher(self._matcher.deep_copy(), self._never, self._numbers)


class Grammars:
    """The grammars on one vocabulary; one for each of the process's models."""

    def __init__(self, spelling: Callable[[], Spelling]) -> None:
        """``spelling`` is called when the first grammar is needed, in the background."""
        self._spelling = spelling
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._compiled: OrderedDict[Grammar, Future[Compiled]] = OrderedDict()
        self._lock = threading.Lock()
        self._awaited = 0
        self._tokenizer: Any = None
        self._numbers = NO_NUMBERS

    def compile(self, grammar: Grammar) -> Future[Compiled]:
        """Begin with it, or what came of it before: Compiled, or GrammarError."""
        with self._lock:  # turns and the engine's thread ask
            if (found := self._compiled.get(grammar)) is None:
                found = self._thread.submit(self._compile, grammar)
                self._remember(grammar, found)
            self._compiled.move_to_end(grammar)
            return found

    def known(self, grammar: Grammar) -> Future[Compiled] | None:
        """What came of it, where it was begun with: code of python's is held to nothing."""
        with self._lock:
            return self._compiled.get(grammar)

    async def compiled(self, grammar: Grammar) -> Compiled:
        """The same, waited for. Raises GrammarError, or Busy where too many wait already."""
        with self._lock:
            if self._awaited >= WAITING and grammar not in self._compiled:
                raise Busy("Too many JSON Schemas are being compiled: try again later.")
            self._awaited += 1
        found = self.compile(grammar)
        found.add_done_callback(self._came)  # also where nobody waits for it any more
        return await asyncio.shield(asyncio.wrap_future(found))

    def _came(self, _: Future[Compiled]) -> None:
        with self._lock:
            self._awaited -= 1

    def first(self, *made: Callable[[], Grammar]) -> Future[Compiled]:
        """The first of these that can be used. They are made in the background, when all that was
        asked for before is done."""
        return self._thread.submit(self._first, made)

    def _first(self, made: Sequence[Callable[[], Grammar]]) -> Compiled:
        *others, last = made
        for make in others:
            with suppress(GrammarError):
                return self._now(make())
        return self._now(last())

    def _now(self, grammar: Grammar) -> Compiled:
        """In the grammars' thread, which must not wait for one that waits for it."""
        with self._lock:
            found = self._compiled.get(grammar)
        if found is None or not found.done():
            found = Future()
            try:
                found.set_result(self._compile(grammar))
            except GrammarError as error:
                found.set_exception(error)
            with self._lock:
                self._remember(grammar, found)
        return found.result()

    def _remember(self, grammar: Grammar, found: Future[Compiled]) -> None:
        self._compiled[grammar] = found
        if len(self._compiled) > KEPT:
            self._compiled.popitem(last=False)

    def _compile(self, grammar: Grammar) -> Compiled:
        if len(grammar.text) > LONGEST and not grammar.ours:
            raise GrammarError(f"it is longer than {LONGEST:,} characters")
        if '"allOf"' in grammar.text and grammar.text.count('"pattern"') > PATTERNS:
            raise GrammarError(f"it has allOf and more than {PATTERNS} patterns")
        self._build()
        try:
            if grammar.syntax != "json":
                return self._begun(_lark(grammar), safe=grammar.ours, is_json=grammar.ours)
            safe = len(grammar.text) <= SMALL
            try:
                return self._begun(_json(grammar.text), safe=safe)
            except Unsatisfiable:
                raise
            except GrammarError as error:
                return self._relaxed(grammar.text, str(error), safe)
        except RecursionError:
            raise GrammarError("it is nested too deeply") from None

    def _relaxed(self, schema: str, why: str, safe: bool) -> Compiled:
        """What can be enforced of a schema, at the least an object where it wants one."""
        attempts = [(_json(schema, lenient=True), safe)]
        value = json.loads(schema)
        if isinstance(value, dict) and value.get("type") == "object":
            attempts.append((_json(ANY_OBJECT.text), True))
        for lark, safe in attempts:
            try:
                return self._begun(lark, unenforced=why, safe=safe)
            except GrammarError:
                continue
        raise GrammarError(why)

    def _build(self) -> None:
        if self._tokenizer is not None:
            return
        from llguidance import LLTokenizer

        spelling = self._spelling()
        self._numbers = Numbers.of(spelling.tokens)
        # With one slice, for what stands in strings, masks there take 0.05 ms instead of 1.4; all that
        # llguidance suggests would nearly double the time that the building holds the interpreter.
        wrapped: Any = _Wrapped(spelling)
        self._tokenizer = LLTokenizer(wrapped, slices=[_IN_STRINGS])

    def _begun(
        self, lark: str, unenforced: str | None = None, *, safe: bool, is_json: bool = True
    ) -> Compiled:
        """One that is not known to be safe is tried out first. Raises GrammarError."""
        if not safe and (why := vet(lark)):
            raise _error(why)
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(max_grammar_size=SYMBOLS, verbose_errors=False)
        matcher = LLMatcher(
            self._tokenizer, LLMatcher.grammar_from_lark(lark), log_level=0, limits=limits
        )
        if matcher.is_error():
            raise _error(matcher.get_error())
        never = self._tokenizer.eos_token
        body = lark.removeprefix(_ANY_TOKENS).removeprefix("start: ")
        numbers = self._numbers if is_json else NO_NUMBERS
        compiled = Compiled(matcher, never, numbers, body, unenforced)
        first = compiled.begin()
        if not (first.complete or len(first.allowed())):
            raise Unsatisfiable
        return compiled


class _Wrapped:
    """A vocabulary as llguidance wants it; text is never turned into ids."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, spelling: Spelling) -> None:
        self.tokens = spelling.tokens
        self.special_token_ids = sorted(spelling.specials)
        self.eos_token_id = self.special_token_ids[0]

    def __call__(self, text: str) -> list[int]:
        return []


_IN_STRINGS = r'[^"\\\x00-\x1F\x7F]{1,30}'
# Any way to spell a text counts; forced texts would be narrowed to one of their tokenizations.
_ANY_TOKENS = '%llguidance {"no_forcing": true}\n'
_OPTIONS = re.compile(r"^[ \t]*%llguidance\b.*$", re.MULTILINE)


def _json(schema: str, *, lenient: bool = False) -> str:
    value = json.loads(schema)
    if isinstance(value, dict):
        options: dict[str, Any] = {"whitespace_pattern": WHITESPACE}
        value["x-guidance"] = options | ({"lenient": True} if lenient else {})
    return f"{_ANY_TOKENS}start: %json {json.dumps(value)}"


def _lark(grammar: Grammar) -> str:
    if grammar.syntax == "lark":
        return _ANY_TOKENS + _OPTIONS.sub("", grammar.text)
    from llguidance import regex_to_lark

    return f"{_ANY_TOKENS}start: /{regex_to_lark(grammar.text)}/"


def _error(message: str) -> GrammarError:
    """The first line, without the place in a text that only we have seen."""
    first = message.strip().splitlines()[0] if message.strip() else "unknown"
    reason = first.rpartition("failed to compile JSON schema: ")[2][:300]
    _, nothing, why = reason.partition("Unsatisfiable schema: ")
    return Unsatisfiable(why) if nothing else GrammarError(reason)
