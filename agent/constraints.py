"""What a turn's generations may say: from its options and tools to the rules of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import events as ev
from agent.engine.base import Constraint
from agent.engine.constrain import Compiled, Grammar, GrammarError
from agent.formats.rules import Guided, Rules
from agent.validation import problem

if TYPE_CHECKING:
    from agent.turn import Turn


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
        self._schemas: dict[str, Mapping[str, Any]] = {}
        """Of the arguments that are checked afterwards too."""
        self._compiled: dict[str, Future[Compiled]] = {}
        for name, function in turn.calls.clients.items():
            if function.constrained or function.grammar is not None:
                self._compile(name, function.grammar or function.parameters)
        for name, tool in turn.calls.tools.items():
            if tool.constrained:
                self._schemas[name] = tool.parameters
                self._compile(name, tool.parameters)
        self._answer: Future[Compiled] | None = None
        self._lack: str | None = None
        """Why the answer's form is not enforced in full."""
        if (answer := self._options.answer) is not None:
            self._answer = self._begin(lambda: Grammar.of_schema(answer.schema))
        self._noted: set[str] = set()

    def _compile(self, name: str, form: Grammar | Mapping[str, Any]) -> None:
        grammar = self._begin(
            lambda: form if isinstance(form, Grammar) else Grammar.of_arguments(form)
        )
        if grammar is not None:
            self._compiled[name] = grammar

    def _begin(self, grammar: Callable[[], Grammar]) -> Future[Compiled] | None:
        """None: there is nobody who could be held to it."""
        if self._form is None:
            return None
        try:
            return self._form.grammars.compile(grammar())
        except GrammarError as error:
            failed: Future[Compiled] = Future()
            failed.set_exception(error)
            return failed

    # --- before and while it generates ----------------------------------------------------------

    async def ready(self) -> None:
        """What has to be enforced can be. Raises Unenforceable."""
        options = self._options
        if options.answer is not None and not self._scripted:
            why = await _unenforced(self._answer)
            if why is not None and options.answer.strict:
                raise Unenforceable(ANSWER, why)
            self._lack = why
        for name, function in self._turn.calls.clients.items():
            if function.strict and not self._scripted:
                why = await _unenforced(self._compiled.get(name))
                if why is not None:
                    raise Unenforceable(function.name, why)

    def announce(self) -> None:
        """Say what cannot be enforced of the answer's form, once the turn has begun."""
        if self._lack is not None and self._options.answer is not None:
            self._note(ANSWER, self._lack, checked=self._options.answer.checked)

    def opening(self) -> list[int]:
        """What the generation has to begin with, where no grammar makes the model call."""
        turn = self._turn
        if self._form is not None or self._options.calls != "must" or turn.generated:
            return []
        declared = turn.calls.recipients.declared
        return turn.runtime.format.open_call(declared[0] if len(declared) == 1 else None)

    def following(self) -> Constraint | None:
        """For the next generation; None: it may say anything."""
        options = self._options
        calls = "may" if options.calls == "must" and self._turn.generated else options.calls
        exact = options.exact or any(function.strict for function in options.functions)
        if self._form is None or not (
            exact or calls != "may" or self._compiled or self._answer is not None
        ):
            return None
        rules = Rules(calls, self._compiled, self._answer, exact)
        return self._form.guide(rules, self._turn.calls.recipients)

    # --- afterwards -----------------------------------------------------------------------------

    def problem(self, name: str, arguments: str) -> str | None:
        """What is wrong with the arguments of one of our tools."""
        compiled = self._compiled.get(name)
        if compiled is not None and compiled.done():
            error = compiled.exception()
            why = str(error) if error else compiled.result().unenforced
            if why is not None:
                self._note(name, why, checked=name in self._schemas)
        schema = self._schemas.get(name)
        return None if schema is None else problem(schema, json.loads(arguments))

    def answer_problem(self, text: str) -> str | None:
        """What is wrong with an answer that should have been checked."""
        answer = self._options.answer
        if answer is None or not answer.checked or self._lack is None:
            return None
        try:
            value = json.loads(text)
        except ValueError as error:
            return f"it is not JSON ({error})"
        return problem(answer.schema, value)

    def _note(self, what: str, why: str, *, checked: bool) -> None:
        if what not in self._noted:
            self._noted.add(what)
            then = "what is written is checked against it" if checked else "check what is written"
            message = f"The JSON Schema of {what} cannot be enforced in full ({why}): {then}."
            self._turn.emit(ev.AgentNotice(level="warning", message=message))


async def _unenforced(compiled: Future[Compiled] | None) -> str | None:
    """Why a grammar is not enforced in full, or None. Raises Unenforceable."""
    if compiled is None:
        return "this model's family cannot be held to one"
    try:
        return (await asyncio.wrap_future(compiled)).unenforced
    except GrammarError as error:
        return str(error)
