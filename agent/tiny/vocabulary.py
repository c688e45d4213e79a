"""Unpacks o200k_base, the vocabulary of the embedded model and of openai-harmony: data of OpenAI's
tiktoken (MIT licence), shipped packed next to this module."""

import base64
import hashlib
import lzma
from functools import cache
from pathlib import Path

PACKED = Path(__file__).with_name("o200k_base.tiktoken.xz")
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
ORDINARY_TOKENS = 199_998
"""Number of ordinary tokens: ids 0 … 199,997 are byte strings of the ranks; specials follow."""
VOCABULARY_SIZE = 201_088
"""Tokens of o200k_harmony, specials and reserved ids included."""

SPECIALS = {
    199_998: "<|startoftext|>", 199_999: "<|endoftext|>", 200_002: "<|return|>",
    200_003: "<|constrain|>", 200_005: "<|channel|>", 200_006: "<|start|>", 200_007: "<|end|>",
    200_008: "<|message|>", 200_012: "<|call|>", 200_018: "<|endofprompt|>",
}  # fmt: skip


def ranks() -> bytes:
    """Unpack `o200k_base.tiktoken`: one `base64 rank` a line. Raises ValueError for another file."""
    raw = lzma.decompress(PACKED.read_bytes())
    if hashlib.sha256(raw).hexdigest() != SHA256:
        raise ValueError(f"{PACKED} is damaged: its sha256 is not {SHA256}")
    return raw


@cache
def tokens() -> tuple[bytes, ...]:
    """Return the byte string of every ordinary token, by id."""
    return tuple(base64.b64decode(line.split()[0]) for line in ranks().splitlines())


def special_name(token: int) -> str:
    """Spell a special token, from id 199,998 on; unnamed ids are `<|reserved_N|>`."""
    return SPECIALS.get(token, f"<|reserved_{token}|>")
