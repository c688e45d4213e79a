"""The constraints of a turn's generations. Grammars are compiled in the background. A strict schema
that cannot be enforced in full is refused; any other is validated, with one notice."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from agent import events as ev
from agent.engine.grammars import (
    ANY_OBJECT,
    CompiledGrammar,
    Grammar,
    GrammarError,
    UnsatisfiableGrammarError,
)
from agent.engine.protocol import Constraint
from agent.errors import AgentError
from agent.formats.constraints import argument_gap
from agent.formats.protocol import ConstraintKind, Format, GenerationConstraints
from agent.formats.recipients import Recipients
from agent.turn.options import AnswerForm, DeclaredTools, TurnOptions
from agent.turn.output import Emit
from agent.util.json_schema import find_violation
from tools.types import Tool

ANSWER_SUBJECT = "the answer"
"""The name of the answer's schema in messages."""


class UnenforceableSchemaError(AgentError):
    """A schema that has to be enforced cannot be; the message is a sentence."""

    def __init__(self, subject: str, why: str) -> None:
        """``subject``: what the schema is of: a tool's name, or `ANSWER_SUBJECT`."""
        super().__init__(f"The JSON Schema of {subject} cannot be enforced: {why}.")
        self.subject = subject


class BegunTextError(AgentError):
    """The given beginning of the first generation is not allowed; the message is a sentence."""


class GenerationStage(NamedTuple):
    """Decides on a generation's constraint: whether it is the turn's ``first``, or may be a ``further``
    call of the client's functions, and `GenerationConstraints.reasoning_until`."""

    first: bool
    further: bool = False
    reasoning_until: int | None = None


class TurnConstraints:
    """The generation constraints of one turn."""

    def __init__(
        self,
        options: TurnOptions,
        declared: DeclaredTools,
        form: Format,
        emit: Emit,
        *,
        applied: bool = True,
        begun_ids: Sequence[int] = (),
    ) -> None:
        """``applied``: the engine takes constraints.
        ``begun_ids``: what the first generation begins with, as if the model had written it."""
        self._options, self._format, self._emit = options, form, emit
        self.applied, self._begun_ids = applied, list(begun_ids)
        self.supported = form.supported_constraints if applied else frozenset[ConstraintKind]()
        self._schemas: dict[str, Mapping[str, Any]] = {}
        """Schemas of the arguments that are validated too, by recipient."""
        self._grammars: dict[str, Grammar] = {}
        for name, f in declared.client_functions.items():
            if f.constrained or f.grammar is not None:
                self._grammars[name] = f.grammar or _arguments_grammar(f.argument_schema)
        self.declare(declared)
        self._answer_grammar: Future[CompiledGrammar] | None = None
        self._answer_source: Grammar | None = None
        self._answer_gap: str | None = None
        self._warned_subjects: set[str] = set()
        self._reported_gaps: dict[str, str] = {}

    def declare(self, declared: DeclaredTools) -> None:
        """Set the tools, also in the middle of the turn."""
        self._declared = declared
        for name, tool in declared.server_tools.items():
            if tool.constrained:
                self._schemas[name] = tool.model_parameters
                self._grammars[name] = _arguments_grammar(tool.model_parameters)

    # --- before and while it generates ---

    async def compile(self) -> None:
        """Compile grammars; warn of an answer that none enforces. Raises UnenforceableSchemaError,
        EngineBusyError where too many wait."""
        if not self.applied:
            return
        if (answer := self._options.answer_form) is not None:
            self._answer_gap = "this model's family cannot be held to one"
            if "answer" in self.supported:
                make_grammar = partial(Grammar.from_answer_schema, answer.schema)
                compiled, gap = await self._compile(ANSWER_SUBJECT, make_grammar)
                self._answer_grammar, self._answer_gap = compiled, gap
                self._answer_source = make_grammar() if compiled else None
                if gap is not None and answer.strict:
                    raise UnenforceableSchemaError(ANSWER_SUBJECT, gap)
        for name, function in self._declared.client_functions.items():
            if function.strict and "arguments" in self.supported:
                make_grammar = partial(self._grammars.__getitem__, name)
                _, gap = await self._compile(function.name, make_grammar)
                if gap is not None:
                    raise UnenforceableSchemaError(function.name, gap)
        if self._answer_gap is not None:
            self._warn_once(ANSWER_SUBJECT, self._answer_gap, checked=True)

    async def _compile(
        self, subject: str, make_grammar: Callable[[], Grammar]
    ) -> tuple[Future[CompiledGrammar] | None, str | None]:
        """The grammar and what it leaves unenforced. Raises UnenforceableSchemaError: no text fits."""
        grammars = self._format.grammars
        try:
            grammar = make_grammar()
            compiled = await grammars.wait_compiled(grammar)
            return grammars.submit(grammar), compiled.unenforced
        except UnsatisfiableGrammarError as error:
            raise UnenforceableSchemaError(subject, str(error)) from None
        except GrammarError as error:
            return None, str(error)

    @property
    def bounds_answer(self) -> bool:
        """Whether the answer has a form that is enforced, or is that of a script."""
        form = self._options.answer_form
        return form is not None and (not self.applied or self._answer_grammar is not None)

    def forced_prefix(self, *, first: bool) -> list[int]:
        """Ids that the generation begins with: what was begun, or what makes a model call a tool that
        no grammar can force. ``first``: later generations of a turn are free."""
        if first and self._begun_ids:
            return self._begun_ids
        if "choice" in self.supported or self._options.tool_choice != "must" or not first:
            return []
        names = self._declared.recipients.declared
        return self._format.open_call(names[0] if len(names) == 1 else None)

    def next_constraint(self, stage: GenerationStage, prefix: Sequence[int]) -> Constraint | None:
        """The next generation's constraint, from ``prefix`` on; None: free. Raises BegunTextError."""
        if (constraint := self.new_constraint(stage)) is None:
            return None
        begun = len(self._begun_ids) if stage.first else 0
        for at, token in enumerate(prefix):
            if not constraint.accept(token) and at < begun:
                raise BegunTextError(
                    "The given beginning cannot be continued: this turn's tools and answer format do"
                    " not allow it."
                )
        return constraint

    def new_constraint(self, stage: GenerationStage) -> Constraint | None:
        """As `next_constraint`, before what the generation begins with."""
        if (constraints := self._next_constraints(stage)) is None:
            return None
        return self._format.new_constraint(constraints, self._recipients(further=stage.further))

    def spec(self, stage: GenerationStage, prefix: Sequence[int]) -> dict[str, Any] | None:
        """Return JSON from which another process makes `next_constraint`."""
        if (constraints := self._next_constraints(stage)) is None:
            return None
        return constraints.spec(self._recipients(further=stage.further), prefix)

    def _recipients(self, *, further: bool) -> Recipients:
        return self._declared.client_recipients if further else self._declared.recipients

    def _next_constraints(self, stage: GenerationStage) -> GenerationConstraints | None:
        if not self.applied:
            return None
        if stage.further:
            return GenerationConstraints("further", self._grammars, declared_tools_only=True)
        options, choice = self._options, self._options.tool_choice
        if not self._declared.recipients.declared:
            choice = "none"  # gpt-oss also calls undeclared tools
        elif choice == "must" and not stage.first:
            choice = "may"
        declared_only = options.declared_tools_only or any(f.strict for f in options.functions)
        has_grammars = bool(self._grammars) or self._answer_grammar is not None
        is_free = choice == "may" and stage.reasoning_until is None and not declared_only
        if is_free and not has_grammars:
            return None
        return GenerationConstraints(
            choice,
            self._grammars,
            self._answer_grammar,
            declared_only,
            self._answer_source,
            options.loop_limits,
            reasoning_until=stage.reasoning_until,
        )

    # --- afterwards ---

    def validate_arguments(
        self, recipient: str, arguments: str, tool: Tool | None = None
    ) -> str | None:
        """Return the violation by a tool's arguments (JSON); None: valid. ``tool``: as it is now."""
        self.warn_unenforced(recipient)
        schema = self._schemas.get(recipient)
        if schema is not None and tool is not None:
            schema = tool.model_parameters
        return None if schema is None else find_violation(schema, json.loads(arguments))

    def validate_strict_arguments(self, recipient: str, arguments: str) -> str | None:
        function = self._declared.client_functions.get(recipient)
        if function is None or not function.strict:
            return None
        return find_violation(function.parameters, json.loads(arguments))

    def warn_unenforced(self, recipient: str) -> None:
        """Emit a notice, once, of what was not enforced of a called tool's arguments."""
        if not self.applied or (grammar := self._grammars.get(recipient)) is None:
            return
        why = argument_gap(self._format.grammars, grammar)
        if (why := why or self._reported_gaps.get(recipient)) is not None:
            self._warn_once(recipient, why, checked=recipient in self._schemas)

    def report_gaps(self, gaps: Mapping[str, str]) -> None:
        """Take what another process could not enforce of calls' arguments, by recipient."""
        self._reported_gaps |= gaps

    def warn_closed(self, ids: Sequence[int]) -> None:
        """Emit a notice if a part of the answer, with these ids, did not end and was closed."""
        limits, grammar = self._options.loop_limits, self._answer_grammar
        if limits and grammar and grammar.result().was_closed(ids, limits):
            message = (
                "A part of the answer repeated itself or was too long, and was closed: the answer may"
                " lack something. Try again, or allow it with --no-loop-guard."
            )
            self._emit(ev.AgentNotice(level="warning", message=message))

    def validate_answer(self, form: AnswerForm, text: str) -> str | None:
        """Return the violation by an answer whose form was not enforced in full; None: it is valid."""
        enforced = self._answer_grammar is not None and self._answer_gap is None
        # llguidance may let a forbidden text pass: escaped names, some exclusive bounds.
        if enforced and not ("\\u" in text or '"exclusiveM' in json.dumps(form.schema)):
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            return f"it is not JSON ({error})"
        return find_violation(form.schema, value)

    def _warn_once(self, subject: str, why: str, *, checked: bool) -> None:
        if subject not in self._warned_subjects:
            self._warned_subjects.add(subject)
            then = "what is written is checked against it" if checked else "check what is written"
            message = f"The JSON Schema of {subject} cannot be enforced in full ({why}): {then}."
            self._emit(ev.AgentNotice(level="warning", message=message))


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """The options and tools of a turn's generations, for a look at its tokens after its end."""

    options: TurnOptions
    """Without who answered its questions."""
    tools: tuple[Tool, ...]
    """The host's tools that it declared, as they were."""
    constrained: bool = True

    async def new_constraint(self, form: Format, *, first: bool) -> Constraint | None:
        """The constraint of a generation as it was before its first token; None: it was free.
        ``first``: it was the turn's first. Raises UnenforceableSchemaError, EngineBusyError."""
        declared = DeclaredTools.resolve(self.options, self.tools, form)
        constraints = TurnConstraints(
            self.options, declared, form, lambda event: None, applied=self.constrained
        )
        await constraints.compile()
        return await asyncio.to_thread(constraints.new_constraint, GenerationStage(first))


def _arguments_grammar(schema: Mapping[str, Any]) -> Grammar:
    try:
        return Grammar.from_argument_schema(schema)
    except GrammarError:
        return ANY_OBJECT
