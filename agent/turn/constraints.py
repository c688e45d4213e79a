"""What a turn's generations may say: from its options and tools to the rules of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from agent import events as ev
from agent.engine.grammars import ANY_OBJECT, Compiled, Grammar, GrammarError, Unsatisfiable
from agent.engine.protocol import Constraint
from agent.formats.constraints import Guided, Held, Rules
from agent.util.json_schema import problem

if TYPE_CHECKING:
    from agent.turn.loop import Turn


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What the answer has to be, as a JSON Schema."""

    schema: Mapping[str, Any]
    strict: bool = False
    """A schema that cannot be enforced in full is refused."""
    checked: bool = False
    """What could not be enforced is checked at the end; an answer that does not fit fails the turn."""


class Unenforceable(Exception):
    """A form that was asked for cannot be had; the message is a sentence."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"The JSON Schema of {what} cannot be enforced: {why}.")
        self.what = what


ANSWER = "the answer"


class Constraints:
    """Of one turn that has its calls. A scripted engine says what it says."""

    def __init__(self, turn: Turn) -> None:
        self._turn, self._options = turn, turn.options
        form = turn.runtime.format
        self._scripted = turn.runtime.engine_name == "script"
        self._form = form if isinstance(form, Guided) and not self._scripted else None
        self._holds: frozenset[Held] = self._form.holds if self._form else frozenset()
        self._schemas: dict[str, Mapping[str, Any]] = {}
        """Of the arguments that are checked afterwards too."""
        self._arguments: dict[str, Grammar] = {}
        for name, function in turn.calls.clients.items():
            if function.constrained or function.grammar is not None:
                self._arguments[name] = function.grammar or _arguments(function.parameters)
        for name, tool in turn.calls.tools.items():
            if tool.constrained:
                self._schemas[name] = tool.parameters
                self._arguments[name] = _arguments(tool.parameters)
        self._answer: Future[Compiled] | None = None
        self._lack: str | None = None
        """Why the answer's form is not enforced in full."""
        self._noted: set[str] = set()

    # --- before and while it generates ----------------------------------------------------------

    async def ready(self) -> None:
        """What has to be enforced can be. Raises Unenforceable, Busy."""
        if self._scripted:
            return
        options = self._options
        if (answer := options.answer) is not None:
            self._lack = "this model's family cannot be held to one"
            if "answer" in self._holds:
                form = partial(Grammar.of_schema, answer.schema)
                self._answer, self._lack = await self._compile(ANSWER, form)
                if self._lack is not None and answer.strict:
                    raise Unenforceable(ANSWER, self._lack)
        for name, function in self._turn.calls.clients.items():
            if function.strict and "arguments" in self._holds:
                arguments = partial(self._arguments.__getitem__, name)
                _, lack = await self._compile(function.name, arguments)
                if lack is not None:
                    raise Unenforceable(function.name, lack)

    async def _compile(
        self, what: str, grammar: Callable[[], Grammar]
    ) -> tuple[Future[Compiled] | None, str | None]:
        """A grammar that can be used, and why it is not all that was asked for. Raises Unenforceable
        where nothing can be had."""
        assert self._form is not None
        try:
            wanted = grammar()
            compiled = await self._form.grammars.compiled(wanted)
            return self._form.grammars.compile(wanted), compiled.unenforced
        except Unsatisfiable as error:
            raise Unenforceable(what, str(error)) from None
        except GrammarError as error:
            return None, str(error)

    def announce(self) -> None:
        """Say what cannot be enforced of the answer's form, once the turn has begun."""
        if self._lack is not None and self._options.answer is not None:
            self._note(ANSWER, self._lack, checked=self._options.answer.checked)

    def opening(self) -> list[int]:
        """What the generation has to begin with, where no grammar makes the model call."""
        turn = self._turn
        if "choice" in self._holds or self._options.calls != "must" or turn.generated:
            return []
        declared = turn.calls.recipients.declared
        return turn.runtime.format.open_call(declared[0] if len(declared) == 1 else None)

    def following(self) -> Constraint | None:
        """For the next generation; None: it may say anything."""
        options = self._options
        calls = "may" if options.calls == "must" and self._turn.generated else options.calls
        exact = options.exact or any(function.strict for function in options.functions)
        if self._form is None or not (
            exact or calls != "may" or self._arguments or self._answer is not None
        ):
            return None
        rules = Rules(calls, self._arguments, self._answer, exact)
        guide = self._form.guide(rules, self._turn.calls.recipients)
        for token in self.opening():
            guide.accept(token)
        return guide

    # --- afterwards -----------------------------------------------------------------------------

    def problem(self, name: str, arguments: str) -> str | None:
        """What is wrong with the arguments of one of our tools."""
        self.tell(name)
        schema = self._schemas.get(name)
        return None if schema is None else problem(schema, json.loads(arguments))

    def tell(self, name: str) -> None:
        """Say, once, what could not be enforced of a called tool's arguments."""
        if self._form is not None and (grammar := self._arguments.get(name)) is not None:
            compiled = self._form.grammars.known(grammar)
            if compiled is not None and compiled.done():
                error = compiled.exception()
                why = str(error) if error else compiled.result().unenforced
                if why is not None:
                    self._note(name, why, checked=name in self._schemas)

    def answer_problem(self, text: str) -> str | None:
        """What is wrong with an answer that should have been checked."""
        answer = self._options.answer
        if answer is None or not answer.checked or self._lack is None:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            return f"it is not JSON ({error})"
        return problem(answer.schema, value)

    def _note(self, what: str, why: str, *, checked: bool) -> None:
        if what not in self._noted:
            self._noted.add(what)
            then = "what is written is checked against it" if checked else "check what is written"
            message = f"The JSON Schema of {what} cannot be enforced in full ({why}): {then}."
            self._turn.emit(ev.AgentNotice(level="warning", message=message))


def _arguments(schema: Mapping[str, Any]) -> Grammar:
    try:
        return Grammar.of_arguments(schema)
    except GrammarError:
        return ANY_OBJECT
