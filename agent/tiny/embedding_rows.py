"""Computes structured embedding rows of ±1 (times an amplitude), none of them learned: 128 dimensions
hash the lower-cased letters, so that " Paris", "paris" and "Paris" share them; 32 encode the rest
(leading space, capitals, another leading character, digits); 96 are working space for the layers. A
model that copies such rows copies any token. Only the rows that the templates use are trained."""

import hashlib

import numpy as np
import numpy.typing as npt

from agent.tiny import vocabulary

EMBEDDING_DIMS = 256
LETTER_DIMS = 128
FLAG_DIMS = 32
IDENTITY_DIMS = LETTER_DIMS + FLAG_DIMS
FLAG_AMPLITUDE = 1.5
OUTPUT_SCALE = 0.05
OUTPUT_ROLL_DIMS = 128
"""An output row is its input row rolled by this many dimensions, times OUTPUT_SCALE."""


def _split(token: bytes) -> tuple[bytes, bytes]:
    """Split off a token's prefix character (space, quote, bracket …), if it has one."""
    if len(token) > 1 and token[0] < 128 and not chr(token[0]).isalnum():
        return token[:1], token[1:]
    return b"", token


def _signs(key: bytes, count: int) -> npt.NDArray[np.uint8]:
    """`count` pseudo-random bits that depend on `key` alone."""
    digest = hashlib.shake_128(key).digest(count // 8)
    return np.unpackbits(np.frombuffer(digest, dtype=np.uint8))


def bits() -> npt.NDArray[np.uint8]:
    """Compute the identity bits of the whole vocabulary, (201088, 160) of 0 and 1; 1 means +."""
    size = vocabulary.VOCABULARY_SIZE
    core = bytearray()
    traits, prefix_numbers = bytearray(), bytearray()
    """For each token: bits for space, capital, all capitals and digits; the index of its prefix."""
    prefixes: dict[bytes, int] = {}
    shake = hashlib.shake_128
    for token in vocabulary.tokens():
        prefix, rest = _split(token)
        text = rest.decode("utf-8", "replace") if not rest.isascii() else rest.decode("ascii")
        lower = text.lower()
        core += shake(lower.encode() if "\ufffd" not in text else rest).digest(LETTER_DIMS // 8)
        is_lower = text == lower
        traits.append(
            (prefix == b" ")
            | (not is_lower and text[:1] != lower[:1]) << 1
            | (not is_lower and len(text) > 1 and text == text.upper()) << 2
            | text.isdigit() << 3
        )
        prefix_numbers.append(prefixes.setdefault(prefix, len(prefixes)))
    flags = np.zeros((size, FLAG_DIMS), dtype=np.uint8)
    bits_of = np.frombuffer(traits, np.uint8)
    ordinary = flags[: vocabulary.ORDINARY_TOKENS]
    for trait, (start, end) in enumerate(((0, 8), (8, 14), (14, 18), (18, 22))):
        ordinary[:, start:end] = (bits_of >> trait & 1)[:, None]
    signs = np.array([_signs(b"prefix" + prefix, 10 + 6)[:10] for prefix in prefixes], np.uint8)
    ordinary[:, 22:32] = signs[np.frombuffer(prefix_numbers, np.uint8)]
    for index in range(vocabulary.ORDINARY_TOKENS, size):
        core += shake(b"special%d" % index).digest(LETTER_DIMS // 8)
        flags[index] = _signs(b"flags%d" % index, FLAG_DIMS)
    out = np.empty((size, IDENTITY_DIMS), dtype=np.uint8)
    letters = np.unpackbits(np.frombuffer(core, dtype=np.uint8))
    out[:, :LETTER_DIMS] = letters.reshape(size, LETTER_DIMS)
    out[:, LETTER_DIMS:] = flags
    return out
