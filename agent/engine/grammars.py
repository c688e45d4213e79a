"""Compiles grammars over a model's own tokens, and matches text against them (llguidance).

A grammar (JSON Schema, Lark or regular expression) is compiled once for each vocabulary; a Matcher for
each text says which tokens may come next (https://github.com/guidance-ai/llguidance, docs/syntax.md).

One thread compiles a vocabulary's grammars in the background, in order, and builds the tokenizer (a
second for 200,000 tokens): a burst of schemas takes one core. A job of its queue must never wait for
another one, so ``submit_first_usable`` compiles what it needs in place (`_compile_inline`), perhaps
twice.

No grammar can stop the process: its length is limited here, its work by llguidance, and what could
overflow a stack or take forever is tried in a process of its own first (`grammar_check`).
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
from typing import TYPE_CHECKING, Any, Literal

from agent.engine.closed_schemas import close_objects, declares_all_properties
from agent.engine.grammar_check import check_grammar
from agent.engine.json_bounds import JsonBounds
from agent.engine.protocol import EngineBusyError, LoopLimits
from agent.errors import AgentError

# numpy takes 40 ms to import, and a turn's first events need no masks.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    TokenIds = npt.NDArray[np.intp]
    """Token ids, (n,) intp, ascending."""

JSON_WHITESPACE_PATTERN = r"( |\n[ \t]{0,32})?"
"""White space between JSON's parts: none, a space, or a new line with its indent; no endless run."""
MAX_GRAMMAR_CHARACTERS = 100_000
"""Length of a grammar; the worst of this length compile within a second."""
MAX_UNCHECKED_CHARACTERS = 16_000
"""Length of a JSON Schema that cannot overflow a stack; longer ones are tried in a child process."""
MAX_GRAMMAR_SYMBOLS = 50_000
"""Symbols of a compiled grammar (llguidance's max_grammar_size): a second of compilation."""
MAX_UNCHECKED_PATTERNS = 8
"""Restrictions of strings that a schema with unions, references or allOf may have unchecked."""
_STRING_KEYWORDS = ("pattern", "format", "minLength", "maxLength", "patternProperties")
_JOINING_KEYWORDS = ("allOf", "anyOf", "oneOf", "$ref", "$dynamicRef")
MAX_ALLOF_PATTERNS = 40
"""Patterns of a schema with ``allOf``, whose combinations llguidance's limits do not count."""
MAX_CACHED_GRAMMARS = 512
SPARSE_MASK_BYTES = 32
"""Nonzero bytes of a mask up to which Python finds the bits faster than numpy."""
MAX_CONSECUTIVE_DIGITS = 400
"""Digits after which a JSON number must end, more than a double has, so that each number ends."""
MAX_AWAITED_GRAMMARS = 64
"""Grammars that turns may wait for at once; each may take a second."""


class GrammarError(AgentError):
    """A grammar cannot be used; the message is a part of a sentence that says why."""


class UnsatisfiableGrammarError(GrammarError):
    """No text matches the grammar."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(f"no text can satisfy it{reason and f' ({reason})'}")


@dataclass(frozen=True, slots=True)
class Grammar:
    """The source of a grammar."""

    syntax: Literal["json", "lark", "regex"]
    text: str
    """A JSON Schema's text, a Lark grammar with the rule ``start``, or a regular expression."""
    trusted: bool = False
    """Written by this program: it needs no check before it is compiled."""

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any] | bool) -> Grammar:
        """Make a grammar of the JSON texts that are valid by a JSON Schema. Raises GrammarError."""
        try:
            return cls("json", json.dumps({} if schema is True else schema))
        except RecursionError:
            raise GrammarError("it is nested too deeply") from None
        except (TypeError, ValueError) as error:
            raise GrammarError(f"it is not JSON ({error})") from None

    @classmethod
    def from_answer_schema(cls, schema: Mapping[str, Any]) -> Grammar:
        """Make a grammar of an answer: as `from_schema`, with objects of the declared properties where
        the schema leaves that open. Raises GrammarError."""
        given = cls.from_schema(schema)
        if len(given.text) > MAX_GRAMMAR_CHARACTERS:
            return given  # it is refused when it is compiled
        try:
            return cls.from_schema(close_objects(schema))
        except RecursionError:
            raise GrammarError("it is nested too deeply") from None

    @classmethod
    def from_argument_schema(cls, schema: Mapping[str, Any]) -> Grammar:
        """As `from_answer_schema`, but always an object. Raises GrammarError."""
        kind = schema.get("type")
        if kind is None or (isinstance(kind, list) and "object" in kind):
            schema = {**schema, "type": "object"}
        if schema.get("properties") == {} and declares_all_properties(schema):
            schema = {**schema, "additionalProperties": False}  # a function without parameters
        return cls.from_answer_schema(schema)


ANY_OBJECT = Grammar("json", '{"type": "object"}')


class TokenBytes:
    """A vocabulary, in the form that llguidance's LLTokenizer wraps; it never tokenises text."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special_ids: frozenset[int]) -> None:
        self.tokens = tokens
        self.special_token_ids = sorted(special_ids)
        self.eos_token_id = self.special_token_ids[0]
        """Never allowed: the markup around a text ends it."""
        self.digit_counts = {id: len(text) for id, text in enumerate(tokens) if text.isdigit()}
        """Number of digits by id, of the tokens that are digits only."""
        self.quote_id = tokens.index(b'"') if b'"' in tokens else -1
        """The token ``"``, which may come next inside a string but never inside a number; -1: none."""

    def __call__(self, text: str) -> list[int]:
        return []


class Matcher:
    """Matches one text against a grammar, token by token."""

    def __init__(self, grammar: CompiledGrammar, limits: LoopLimits | None) -> None:
        """`limits`: for closing endless parts of a JSON text; None: none is closed."""
        self._matcher, self._vocabulary = grammar.matcher.deep_copy(), grammar.vocabulary
        self._digit_counts = self._vocabulary.digit_counts if grammar.is_json else {}
        bounded = limits if grammar.is_json else None
        self._bounds = JsonBounds(self._vocabulary.tokens, bounded) if bounded else None
        self._trailing_digits = 0

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return bool(self._matcher.is_accepting())

    def accept(self, token: int) -> bool:
        if token >= len(self._vocabulary.tokens) or token == self._vocabulary.eos_token_id:
            return False  # a server's vocabulary may have padding
        digits = self._digit_counts.get(token, 0)
        has_limit = digits and self._trailing_digits >= MAX_CONSECUTIVE_DIGITS
        is_closing = self._bounds is not None and self._bounds.is_closing
        if (has_limit or is_closing) and token not in self.allowed():
            return False
        if not self._matcher.try_consume_tokens([token]):
            return False
        self._trailing_digits = self._trailing_digits + digits if digits else 0
        if self._bounds is not None:
            self._bounds.push(token)
        return True

    def allowed(self) -> TokenIds:
        """Return exactly the ids that may come next; none, if llguidance's work limit was exceeded."""
        ids = self._grammar_ids()
        if self._trailing_digits >= MAX_CONSECUTIVE_DIGITS:
            ids = self._without_digits(ids)
        if self._bounds is not None and self._bounds.is_closing:
            import numpy as np

            ids = np.array(self._bounds.endings(ids.tolist()), np.intp)
        return ids

    def _without_digits(self, ids: TokenIds) -> TokenIds:
        """Remove the digits, unless the text is inside a string or nothing else may come."""
        import numpy as np

        if self._vocabulary.quote_id in ids:
            return ids
        rest = np.setdiff1d(ids, np.fromiter(self._digit_counts, np.intp))
        return rest if len(rest) or self.complete else ids

    def _grammar_ids(self) -> TokenIds:
        import numpy as np

        if self._matcher.is_stopped():
            return np.empty(0, np.intp)
        mask, end_id = self._matcher.compute_bitmask(), self._vocabulary.eos_token_id
        bits = np.frombuffer(mask, np.uint8)
        nonzero = (bits != 0).nonzero()[0]
        if len(nonzero) > SPARSE_MASK_BYTES:
            ids: TokenIds = np.unpackbits(bits, bitorder="little").view(np.bool_).nonzero()[0]
            return ids.compress(ids != end_id)
        octets = (range(byte << 3, (byte << 3) + 8) for byte in nonzero.tolist())
        few = [i for octet in octets for i in octet if mask[i >> 3] >> (i & 7) & 1]
        return np.array([i for i in few if i != end_id], np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGrammar:
    """A grammar compiled for a vocabulary, ready for any number of texts."""

    matcher: Any
    vocabulary: TokenBytes
    lark_body: str
    """The right side of a Lark rule that is this grammar; only for a JSON Schema."""
    unenforced: str | None
    """Which part of the grammar is not enforced, in llguidance's words; None: nothing."""
    is_json: bool

    def new_matcher(self, limits: LoopLimits | None = None) -> Matcher:
        return Matcher(self, limits)

    def was_closed(self, ids: Sequence[int], limits: LoopLimits) -> bool:
        """Whether something of a text had to end, of all ids that were generated for it."""
        bounds = JsonBounds(self.vocabulary.tokens, limits)
        for token in ids:
            bounds.push(token)
            if bounds.is_closing:
                return True
        return False


class GrammarCompiler:
    """Compiles and caches the grammars of one vocabulary; there is one for each loaded model."""

    def __init__(self, token_bytes: Callable[[], TokenBytes]) -> None:
        """``token_bytes`` is called when the first grammar is compiled, in the background."""
        self.max_awaited = MAX_AWAITED_GRAMMARS
        self._token_bytes = token_bytes
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._futures: OrderedDict[Grammar, Future[CompiledGrammar]] = OrderedDict()
        self._lock = threading.RLock()  # turns and the engine's thread submit grammars
        self._awaited = 0
        self._vocabulary: TokenBytes | None = None
        self._tokenizer: Any = None

    def submit(self, grammar: Grammar) -> Future[CompiledGrammar]:
        """Start compiling a grammar, unless it is cached; the future may have a GrammarError."""
        with self._lock:
            if (future := self._futures.get(grammar)) is None:
                future = self._thread.submit(self._compile, grammar)
                self._cache(grammar, future)
            else:
                self._futures.move_to_end(grammar)
            return future

    def submitted(self, grammar: Grammar) -> Future[CompiledGrammar] | None:
        """Return the future of a grammar that was submitted before and is still cached, else None."""
        with self._lock:
            return self._futures.get(grammar)

    async def wait_compiled(self, grammar: Grammar) -> CompiledGrammar:
        """Submit a grammar and wait. Raises GrammarError, or EngineBusyError where too many wait."""
        with self._lock:
            if self._awaited >= self.max_awaited and grammar not in self._futures:
                raise EngineBusyError("Too many JSON Schemas are being compiled: try again later.")
            self._awaited += 1
        future = self.submit(grammar)
        future.add_done_callback(self._on_done)  # also if this caller is cancelled
        return await asyncio.shield(asyncio.wrap_future(future))

    def _on_done(self, _: Future[CompiledGrammar]) -> None:
        with self._lock:
            self._awaited -= 1

    def submit_first_usable(self, *factories: Callable[[], Grammar]) -> Future[CompiledGrammar]:
        """Compile the first usable grammar, after all that were submitted before, or raise the last
        one's error. The factories run in the compiling thread."""
        return self._thread.submit(self._compile_first_usable, factories)

    def _compile_first_usable(self, factories: Sequence[Callable[[], Grammar]]) -> CompiledGrammar:
        *preferred, last = factories
        for make in preferred:
            with suppress(GrammarError):
                return self._compile_inline(make())
        return self._compile_inline(last())

    def _compile_inline(self, grammar: Grammar) -> CompiledGrammar:
        """Compile within a job of the compiling thread, which must not wait for a later job."""
        with self._lock:
            future = self._futures.get(grammar)
        if future is None or not future.done():
            future = Future()
            try:
                future.set_result(self._compile(grammar))
            except GrammarError as error:
                future.set_exception(error)
            with self._lock:
                self._cache(grammar, future)
        return future.result()

    def _cache(self, grammar: Grammar, future: Future[CompiledGrammar]) -> None:
        self._futures[grammar] = future
        if len(self._futures) > MAX_CACHED_GRAMMARS:
            self._futures.popitem(last=False)

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises GrammarError, or EngineBusyError where there is no verdict on the grammar."""
        try:
            return self._compile_checked(grammar)
        except (OSError, MemoryError) as error:
            with self._lock:  # before a waiting caller can submit it again
                if (future := self._futures.get(grammar)) is not None and not future.done():
                    del self._futures[grammar]
            message = f"A grammar cannot be compiled now ({error}): try again later."
            raise EngineBusyError(message) from error

    def _compile_checked(self, grammar: Grammar) -> CompiledGrammar:
        if len(grammar.text) > MAX_GRAMMAR_CHARACTERS and not grammar.trusted:
            raise GrammarError(f"it is longer than {MAX_GRAMMAR_CHARACTERS:,} characters")
        if '"allOf"' in grammar.text and grammar.text.count('"pattern"') > MAX_ALLOF_PATTERNS:
            raise GrammarError(f"it has allOf and more than {MAX_ALLOF_PATTERNS} patterns")
        try:
            if grammar.syntax != "json":
                lark = _grammar_to_lark(grammar)
                return self._compile_lark(lark, safe=grammar.trusted, is_json=grammar.trusted)
            safe = len(grammar.text) <= MAX_UNCHECKED_CHARACTERS and not _may_explode(grammar.text)
            try:
                return self._compile_lark(_schema_to_lark(grammar.text), safe=safe)
            except UnsatisfiableGrammarError:
                raise
            except GrammarError as error:
                return self._compile_relaxed(grammar.text, str(error), safe)
        except RecursionError:
            raise GrammarError("it is nested too deeply") from None

    def _compile_relaxed(self, schema: str, reason: str, safe: bool) -> CompiledGrammar:
        """Compile what llguidance can enforce of a schema, or at least that it is an object."""
        attempts = [(_schema_to_lark(schema, lenient=True), safe)]
        value = json.loads(schema)
        if isinstance(value, dict) and value.get("type") == "object":
            attempts.append((_schema_to_lark(ANY_OBJECT.text), True))
        for lark, safe in attempts:
            with suppress(GrammarError):
                return self._compile_lark(lark, unenforced=reason, safe=safe)
        raise GrammarError(reason)

    def _build_tokenizer(self) -> tuple[Any, TokenBytes]:
        if self._vocabulary is None:
            from llguidance import LLTokenizer  # here, since most runs need no grammar

            vocabulary: Any = self._token_bytes()
            # With one slice, for the content of strings, masks there take 0.05 ms instead of 1.4; all
            # slices that llguidance suggests would nearly double the time that building holds the GIL.
            self._tokenizer = LLTokenizer(vocabulary, slices=[_STRING_CONTENT_SLICE])
            self._vocabulary = vocabulary
        return self._tokenizer, self._vocabulary

    def _compile_lark(
        self, lark: str, unenforced: str | None = None, *, safe: bool, is_json: bool = True
    ) -> CompiledGrammar:
        """Compile Lark, after a check if it is not known to be safe. Raises GrammarError."""
        if not safe and (reason := check_grammar(lark)):
            raise _grammar_error(reason)
        from llguidance import LLMatcher, LLParserLimits

        tokenizer, vocabulary = self._build_tokenizer()
        limits = LLParserLimits(max_grammar_size=MAX_GRAMMAR_SYMBOLS, verbose_errors=False)
        source = LLMatcher.grammar_from_lark(lark)
        matcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise _grammar_error(matcher.get_error())
        lark_body = lark.removeprefix(_NO_FORCING).removeprefix("start: ")
        compiled = CompiledGrammar(matcher, vocabulary, lark_body, unenforced, is_json)
        first = compiled.new_matcher()
        if not (first.complete or len(first.allowed())):
            raise UnsatisfiableGrammarError
        return compiled


def _may_explode(schema: str) -> bool:
    """Whether llguidance may intersect strings of a schema, at exponential cost; 12 are harmless."""
    strings = sum(schema.count(f'"{keyword}"') for keyword in _STRING_KEYWORDS)
    joined = any(f'"{keyword}"' in schema for keyword in _JOINING_KEYWORDS)
    return joined and strings > MAX_UNCHECKED_PATTERNS


_STRING_CONTENT_SLICE = r'[^"\\\x00-\x1F\x7F]{1,30}'
# Any tokenization of a text counts; a forced text would be narrowed to one of them.
_NO_FORCING = '%llguidance {"no_forcing": true}\n'
_OPTION_LINES = re.compile(r"^[ \t]*%llguidance\b.*$", re.MULTILINE)


def _schema_to_lark(schema: str, *, lenient: bool = False) -> str:
    value = json.loads(schema)
    if isinstance(value, dict):
        options: dict[str, Any] = {"whitespace_pattern": JSON_WHITESPACE_PATTERN}
        value["x-guidance"] = options | ({"lenient": True} if lenient else {})
    return f"{_NO_FORCING}start: %json {json.dumps(value)}"


def _grammar_to_lark(grammar: Grammar) -> str:
    if grammar.syntax == "lark":
        return _NO_FORCING + _OPTION_LINES.sub("", grammar.text)
    from llguidance import regex_to_lark

    return f"{_NO_FORCING}start: /{regex_to_lark(grammar.text)}/"


def _grammar_error(message: str) -> GrammarError:
    """Take llguidance's first line, without the position in a text that the user has never seen."""
    first = message.strip().splitlines()[0] if message.strip() else "unknown"
    reason = first.rpartition("failed to compile JSON schema: ")[2][:300]
    _, unsatisfiable, detail = reason.partition("Unsatisfiable schema: ")
    return UnsatisfiableGrammarError(detail) if unsatisfiable else GrammarError(reason)
