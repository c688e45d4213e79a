"""Prepares text for a tokenizer: valid Unicode, without long runs, in chunks of bounded cost. A
byte-pair tokenizer splits text with a regular expression and merges the bytes within each piece in
quadratic time; cuts between two pieces change no tokens."""

import re
from collections.abc import Iterator

MAX_RUN_CHARS = 512
"""Characters of a run that are tokenised at once, in quadratic time; a million end the process."""

CHUNK_CHARS = 8192
"""Characters that are tokenised at once, in a millisecond or two."""

# No piece of a tokenizer continues from a letter or digit across one of these.
_CHUNK_BOUNDARY = re.compile(r"(?<=[^\W_])(?=[\s,.;:!?+/=<>(){}\[\]\"#*&|\-、。，；：！？])")

# Runs that may be one piece of a tokenizer: o200k's pieces end at white space and digits.
# https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py (o200k_base)
# Each is looked at from its first character only: from all, many short runs take 40 ms.
_LONG_RUN = re.compile(
    rf"(?<![^\s\d])[^\s\d]{{{MAX_RUN_CHARS + 1},}}|(?<!\s)\s{{{MAX_RUN_CHARS + 1},}}"
)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which a paste may contain and no tokenizer accepts, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class TokenisedText(str):
    """A message's text that has been tokenised before."""

    ids: list[int]


def tokenizer_chunks(text: str, chunk_chars: int = CHUNK_CHARS) -> Iterator[str]:
    """Split a text into chunks of ``chunk_chars`` to twice as many, where possible where that changes
    no token. Yields at least one chunk, for an empty text an empty one."""
    start = 0
    while len(text) - start > 2 * chunk_chars:
        boundary = _CHUNK_BOUNDARY.search(text, start + chunk_chars, start + 2 * chunk_chars)
        end = boundary.start() if boundary else start + 2 * chunk_chars
        yield from _split_long_runs(text[start:end])
        start = end
    yield from _split_long_runs(text[start:])


def _split_long_runs(text: str) -> Iterator[str]:
    start = 0
    for run in _LONG_RUN.finditer(text):
        for cut in range(run.start() + MAX_RUN_CHARS, run.end(), MAX_RUN_CHARS):
            yield text[start:cut]
            start = cut
    yield text[start:]
