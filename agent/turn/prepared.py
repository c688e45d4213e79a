"""Puts the messages of a turn into its conversation, and makes what its generations need."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.conversation.messages import NO_RESULT, Message
from agent.conversation.summary import Generator
from agent.turn.constraints import TurnConstraints
from agent.turn.context import TurnContext
from agent.turn.continuation import Begin, Continuation
from agent.turn.endings import TurnFailedError
from agent.turn.generation_runner import GenerationRunner
from agent.turn.options import DeclaredTools
from agent.turn.tool_calls import ToolCallRunner
from agent.turn.tool_search import find_search
from agent.util.process import EXIT_USAGE
from tools.types import Tool, error_text


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """The state of a turn once the model is loaded and its messages are in the conversation."""

    generator: Generator
    calls: ToolCallRunner
    constraints: TurnConstraints
    generations: GenerationRunner
    first_entry: int
    first_generated_entry: int
    """Index of the entry after the turn's prompt."""
    begun: Continuation


def prepare_turn(
    context: TurnContext, prompt: Sequence[Message], begin: Begin | None
) -> PreparedTurn:
    """Put the header and new messages into the conversation, once the model is loaded. Raises
    TurnFailedError where the conversation is in the tokens of another vocabulary."""
    runtime, conversation, options = context.runtime, context.conversation, context.options
    loaded = runtime.loaded
    assert loaded is not None, "load the model first"
    context.format = form = loaded.format.with_effort(options.effort)
    if conversation.vocabulary not in (None, loaded.vocabulary):
        refusal = (
            f"This conversation has tokens of another vocabulary: {conversation.vocabulary}:"
            " continue with that model, or begin a new one."
        )
        raise TurnFailedError("invalid_prompt", refusal, EXIT_USAGE)
    conversation.vocabulary = loaded.vocabulary
    first_entry = len(conversation.entries)
    conversation.finished_reasoning = []
    declared = DeclaredTools.resolve(options, context.host.tools(), form)
    offered: Sequence[Tool] = list(declared.server_tools.values())
    search = find_search(options, form, offered, context.host, runtime.context_length)
    if search is not None:
        with_search = replace(options, tools=(*offered, search.tool))
        declared, offered = DeclaredTools.resolve(with_search, (), form), search.prompt_tools
    try:
        begun = begin(form) if begin else Continuation()
    except ValueError as error:
        raise TurnFailedError("invalid_prompt", f"Not begun: {error}.", EXIT_USAGE) from error
    constraints = TurnConstraints(
        options, declared, form, context.emit, applied=loaded.is_constrainable, begun_ids=begun.ids
    )
    conversation.set_header(form, options.prompt_header(offered))
    for tool in conversation.unanswered:  # its client was to run them, and did not continue
        recipient = form.canonical_name(tool, function=True)
        conversation.add_result(form, recipient, error_text(NO_RESULT))
    conversation.unanswered.clear()
    for message in prompt:
        conversation.add(form, message)
    first_generated_entry = len(conversation.entries)
    conversation.entries += begun.entries
    conversation.omit_answered_calls(form)
    calls = ToolCallRunner(context, declared, constraints, search)
    generator = Generator(
        form, runtime.context_length, runtime.generate, runtime.summaries, options.sampling,
        context.emit, context.usage.add_auxiliary_generation,
    )  # fmt: skip
    generations = GenerationRunner(context, calls, first_entry)
    return PreparedTurn(
        generator, calls, constraints, generations, first_entry, first_generated_entry, begun
    )
