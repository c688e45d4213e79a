"""An input that ends with an unfinished item of the model: the response continues its text."""

from collections.abc import Sequence

from agent.conversation.messages import Assistant, Message, ReasoningMessage
from agent.formats.protocol import EditableFormat, Format
from agent.server.http.errors import invalid
from agent.server.input.items import InputHistory, ItemReader, UnreadableReasoning
from agent.server.input.schemas import InputItem, InputMessage, InputReasoning
from agent.turn.continuation import Begin, Continuation, begin_with


def split_begun_item(
    items: str | Sequence[InputItem],
) -> tuple[str | Sequence[InputItem], Message | None]:
    """Split off a last item that is the model's and in progress. Raises ApiError if unreadable."""
    if isinstance(items, str) or not items:
        return items, None
    item = items[-1]
    match item:
        case InputReasoning(status="in_progress"):
            message: Message = ReasoningMessage("")
        case InputMessage(role="assistant", status="in_progress"):
            message = Assistant("", item.phase or "final_answer")
        case _:
            return items, None
    reader = ItemReader(InputHistory(), (), refuse_unseen=True)
    reader.add(item, f"input[{len(items) - 1}]")
    for read in reader.history.messages:
        if isinstance(read, UnreadableReasoning):
            raise read.error
    return items[:-1], next(iter(reader.history.messages), message)


def begin_with_message(form: Format, message: Message, param: str) -> Begin:
    """Have a turn begin with the message. Raises ApiError where the model's format cannot."""
    match message:
        case ReasoningMessage(text):
            begin = begin_with(text, None)
        case Assistant(text, "commentary") if isinstance(form, EditableFormat):
            header, body = form.split_message(form.assistant_message(text, phase="commentary"))
            begun = Continuation([*header, *body])
            return lambda _: begun
        case Assistant(text):
            begin = begin_with(None, text)
        case _:
            raise AssertionError("only what the model writes is begun")
    try:
        begin(form)
    except ValueError as error:
        raise invalid(param, f"This item cannot be continued: {error}.") from error
    return begin
