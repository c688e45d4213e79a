"""The model's own title of a conversation, written while it idles."""

import re
from collections.abc import Callable, Sequence

from agent.conversation.summary import final_text, without_penalties
from agent.engine.protocol import Finished, Generation, Request, Sampling, Tokens
from agent.formats.protocol import Format, ParseEvent
from agent.util.sanitize import sanitize

TITLE_PROMPT = (
    "Write a title for our conversation: at most six words, in the language of my first message,"
    " without quotation marks. Answer with the title only."
)
MAX_TITLE_TOKENS = 32
"""Tokens that the model may write; a title in any language has fewer."""
MAX_TITLE_CHARACTERS = 60
_LABEL = re.compile(r"(?:title|titel|titre|título|titolo)\s*[::]\s*", re.IGNORECASE)
_MARKUP = re.compile(r"^[#>\s]+|\*+|`+|</?(?:title|b|i|em|strong|h\d)>", re.IGNORECASE)
_QUOTES = " \t\"'“”„‟«»‹›‘’「」『』."


async def write_title(
    form: Format,
    generate: Callable[[Request], Generation],
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    affinity_tokens: int = 0,
) -> str:
    """Have the model write a title in the background; empty: it wrote none. Raises EngineError."""
    opening = form.open_answer()
    request = Request(
        [*prompt, *form.user_message(TITLE_PROMPT), *form.open_assistant(), *opening],
        MAX_TITLE_TOKENS,
        form.stop_ids,
        without_penalties(sampling),
        background=True,
        affinity_tokens=affinity_tokens,
    )
    parser = form.parser(None)
    parsed: list[ParseEvent] = parser.feed(opening)
    complete = False
    generation = generate(request)
    try:
        async for event in generation:
            match event:
                case Tokens(ids):
                    parsed += parser.feed(ids)
                case Finished(reason):
                    complete = reason == "stop"
    finally:
        generation.cancel()
    text, _ = final_text([*parsed, *parser.finish()])
    return clean_title(text) if complete else ""


def clean_title(text: str) -> str:
    """The first line of a text, without markup and quotation marks; a long one is cut behind a word."""
    lines = (_MARKUP.sub("", line).strip() for line in sanitize(text).splitlines())
    title = _LABEL.sub("", next(filter(None, lines), ""), count=1).strip(_QUOTES)
    if len(title) <= MAX_TITLE_CHARACTERS:
        return title
    cut = title[: MAX_TITLE_CHARACTERS - 1]
    return f"{cut.rsplit(' ', 1)[0].rstrip(' ,;:-')}…"
