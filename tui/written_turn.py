"""A stored turn as the model read and wrote it, and branches that continue from within it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Literal

from agent.conversation.conversation import Entry
from agent.engine.protocol import Constraint, EngineBusyError, Sampling
from agent.errors import UserError
from agent.events import Event
from agent.formats.protocol import EditableFormat
from agent.formats.recipients import PYTHON_TOOL
from agent.store.conversations import Store
from agent.store.records import StoredTurn
from agent.turn.constraints import UnenforceableSchemaError
from agent.turn.continuation import (
    Continuation,
    WrittenMessage,
    arguments_problem,
    continue_from,
    with_reasoning,
    written_messages,
)
from agent.turn.written_generations import (
    WrittenGeneration,
    continue_with_token,
    generation_prompt,
    written_generations,
)
from tui.next_prompt import turn_effort
from tui.session import Session


async def open_turn(
    session: Session, response_id: str, events: Sequence[Event] = ()
) -> WrittenTurn:
    """Open a turn. ``events``: if it ran here. Raises UserError, also without a model."""
    session.next_prompt.require_format()
    if (turn := await session.storage.turn(session.conversation.id, response_id)) is None:
        raise UserError("This turn is not stored, so what the model wrote cannot be continued.")
    conversation = session.conversation

    def read(store: Store) -> tuple[list[Entry], list[Event]]:
        stored = () if events else store.events(response_id)
        entries = store.turn_entries(conversation, response_id)
        return entries, list(events) or [event for _, event in stored]

    return WrittenTurn(session, turn, *await session.storage.read(read))


class WrittenTurn:
    """One turn of the session's conversation."""

    def __init__(
        self, session: Session, turn: StoredTurn, entries: list[Entry], events: list[Event]
    ) -> None:
        """``entries``: its messages as they are stored. Raises UserError without a model."""
        self._session, self.stored = session, turn
        form, self._effort = session.next_prompt.require_format(), turn_effort(turn.response)
        self._form = form = form.with_effort(self._effort) if self._effort else form
        self.entries: list[Entry] = with_reasoning(form, entries, turn.response.output)
        """Its messages, its own prompt and its reasoning included."""
        self.events = events
        """Its events, those of its tokens only where it ran here."""

    @property
    def messages(self) -> list[WrittenMessage]:
        """Return the model's messages for editing. Raises UserError where there are none."""
        if not isinstance(self._form, EditableFormat):
            raise UserError("This model's messages cannot be continued one by one, only gpt-oss's.")
        if messages := written_messages(self._form, self.entries):
            return messages
        raise UserError("The model has written nothing in this turn.")

    def continue_message(self, message: WrittenMessage, text: str) -> Continuation:
        """Go on from what the model wrote, now ``text``. Raises UserError if that cannot be."""
        if message.kind == "call" and message.tool != PYTHON_TOOL:
            host = self._session.runtime.host
            tool = next((tool for tool in host.tools() if tool.model_name == message.tool), None)
            if problem := arguments_problem(text, tool, host.builtins.argument_problem):
                raise UserError(f"The arguments do not fit {message.tool}: {problem}.")
        begun = continue_from(self._form, self.entries, self.events, message, text)
        return self._checked(begun, self.entries[: message.index])

    def _checked(self, begun: Continuation, entries: Sequence[Entry]) -> Continuation:
        """A continuation that can be run. ``entries``: the turn's before it. Raises UserError."""
        if begun.entries and not begun.events:
            raise UserError("Only the first message of this turn can be edited: the rest of its"
                            " events is not stored.")  # fmt: skip
        before = self._session.next_prompt.branch(self._form, self.stored.start)
        total = len(before.prompt(self._form)) + len(begun.ids)
        total += sum(len(entry.ids) for entry in entries)
        if total >= (length := self._session.runtime.context_length):
            raise UserError(
                f"The prompt would have {total:,} tokens with this text, and the context holds"
                f" {length:,}: shorten it."
            )
        return begun

    @cached_property
    def generations(self) -> list[WrittenGeneration]:
        return written_generations(self._form, self.entries, self.events)

    def prompt(self, generation: WrittenGeneration) -> list[int]:
        """Return a generation's prompt, as the turn's would be rendered now with the turn's effort."""
        before = self._session.next_prompt.branch(self._form, self.stored.start, self._effort).ids()
        return generation_prompt(self._form, before, self.entries, generation)

    async def settings(
        self, number: int
    ) -> tuple[Sampling, Constraint | Literal["unknown"] | None]:
        """A generation's sampling and new constraint; of another run's turn the next one's, unknown."""
        session = self._session
        settings = session.turn_settings.get(self.stored.response.id)
        if settings is None:
            return session.options.sampling, "unknown"
        try:
            constraint = await settings.new_constraint(self._form, first=number == 0)
        except (EngineBusyError, UnenforceableSchemaError):
            return settings.options.sampling, "unknown"
        return settings.options.sampling, constraint

    def locate(self, entry: int, offset: int) -> tuple[int, int] | None:
        """Find a token: its generation's number and index. ``entry``: without reasoning. None: none."""
        kept = [index for index, each in enumerate(self.entries) if not each.reasoning]
        if entry >= len(kept) or self.entries[kept[entry]].role not in ("assistant", "part"):
            return None
        at, opening = kept[entry], len(self._form.open_assistant())
        for number, generation in reversed(list(enumerate(self.generations))):
            if generation.entry <= at:
                written = chain.from_iterable(e.ids for e in self.entries[generation.entry : at])
                index = len(list(written)) + offset - opening
                token = self.entries[at].ids[offset : offset + 1]
                is_there = index >= 0 and generation.ids[index : index + 1] == token
                return (number, index) if is_there else None
        return None

    def continue_with_token(self, number: int, index: int, token: int) -> Continuation:
        """Go on from another token in place of one of a generation. Raises UserError."""
        generation = self.generations[number]
        begun = continue_with_token(self._form, self.entries, self.events, generation, index, token)
        return self._checked(begun, self.entries[: generation.entry])
