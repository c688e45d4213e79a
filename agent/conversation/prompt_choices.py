"""A person's choices about a prompt: fold a result, drop a turn, pin one. Made again, it is undone."""

from dataclasses import replace

from agent.conversation.compaction import LONG_RESULT_TOKENS, turn_starts
from agent.conversation.conversation import Conversation
from agent.conversation.summary import shorten_entry
from agent.errors import AgentError
from agent.formats.protocol import Format


class PromptChoiceError(AgentError):
    """Nothing was changed; the message is a sentence that says why."""


def toggle_fold(form: Format, conversation: Conversation, at: int) -> None:
    """Leave only the ends of the result at entry ``at``, or all again. Raises PromptChoiceError."""
    entry = conversation.entries[at]
    if not entry.recipient:
        raise PromptChoiceError("Only the results of tools can be folded.")
    if entry.omitted:
        raise PromptChoiceError("Its turn is finished: gpt-oss does not read it again.")
    shortened = None
    if entry.shortened_ids is None:
        note = f"; the whole: agent sessions show {conversation.id}"
        shortened = shorten_entry(form, entry, min(LONG_RESULT_TOKENS, len(entry.ids) // 3), note)
        if len(shortened) >= len(entry.ids):
            raise PromptChoiceError(
                f"This result has {len(entry.ids)} tokens: too few to fold any away."
            )
    # A copy, for another conversation may have the same entry.
    conversation.entries[at] = replace(entry, shortened_ids=shortened)


def toggle_dropped(form: Format, conversation: Conversation, turn: int) -> None:
    """Leave a turn, counted from 1, out of the prompt, or put it back; a turn that a later summary
    lacks is pinned then. Raises PromptChoiceError."""
    entries, span = conversation.entries, _turn_span(conversation, turn)
    summarised = conversation.compacted is not None and span.start < conversation.compacted.end
    dropped = not entries[span.start].dropped
    if dropped and summarised and not entries[span.start].pinned:
        raise PromptChoiceError("A summary stands for this turn already; p puts it back.")
    for at in span:
        pinned = entries[at].pinned or (summarised and not dropped)
        entries[at] = replace(entries[at], dropped=dropped, pinned=pinned)


def toggle_pinned(form: Format, conversation: Conversation, turn: int) -> None:
    """Have compactions spare a turn, counted from 1, or no longer. Raises PromptChoiceError."""
    entries, span = conversation.entries, _turn_span(conversation, turn)
    pinned = not entries[span.start].pinned
    for at in span:
        entries[at] = replace(entries[at], pinned=pinned)
    conversation.omit_answered_calls(form)


def _turn_span(conversation: Conversation, turn: int) -> range:
    starts = [*turn_starts(conversation.entries), len(conversation.entries)]
    if not 1 <= turn < len(starts):
        raise PromptChoiceError(f"There is no turn {turn}.")
    return range(starts[turn - 1], starts[turn])
