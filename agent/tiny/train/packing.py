"""Packs what training makes for the shipped files: rows, matrices and the places of merges."""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, quants

from agent.tiny import embedding_rows as rows
from agent.tiny import vocabulary
from agent.tiny.gguf import BLOCK_SIZE, Q4_BLOCK_BYTES


def pack_q4(levels: npt.NDArray[np.int8], steps: npt.NDArray[np.float16]) -> npt.NDArray[np.uint8]:
    """Q4_0 bytes, (rows, blocks·18), from levels -8 … 7 (rows, dims) and steps (rows, blocks)."""
    count, dims = levels.shape
    nibbles = (levels.reshape(count, dims // BLOCK_SIZE, 2, BLOCK_SIZE // 2) + 8).astype(np.uint8)
    out = np.empty((count, dims // BLOCK_SIZE, Q4_BLOCK_BYTES), dtype=np.uint8)
    out[:, :, :2] = steps[:, :, None].view(np.uint8)
    out[:, :, 2:] = nibbles[:, :, 0] | (nibbles[:, :, 1] << 4)
    return out.reshape(count, -1)


def quantise_q4(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Quantise rows to Q4_0 with levels -7 … 7, as the training saw them."""
    blocks = x.reshape(len(x), -1, BLOCK_SIZE)
    steps = (np.abs(blocks).max(axis=2) / 7).astype(np.float16)
    divisor = np.maximum(steps.astype(np.float32), 1e-7)[:, :, None]
    levels = np.clip(np.round(blocks / divisor), -7, 7).astype(np.int8)
    return pack_q4(levels.reshape(x.shape), steps)


def quantise_q8(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Quantise the last axis to Q8_0 bytes."""
    packed: npt.NDArray[np.uint8] = quants.quantize(x, GGMLQuantizationType.Q8_0)
    return packed


def compute_merge_splits() -> bytes:
    """Compute `merge_splits` from the ranks; it takes seconds, so the result is shipped."""
    tokens = vocabulary.tokens()
    rank = {token: index for index, token in enumerate(tokens)}
    get, far = rank.get, len(rank)
    out = bytearray(len(tokens))
    for index in range(256, len(tokens)):
        token = tokens[index]
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            best, at = far, -1
            for i in range(len(parts) - 1):
                merged = get(parts[i] + parts[i + 1], far)
                if merged < best:
                    best, at = merged, i
            if best >= index:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            out[index] = len(parts[0])
    return bytes(out)


def write_core(path: Path, shape: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> None:
    """Pack shape and tensors into a file, deterministically. Compressed (xz): 4 bytes length of the
    header, little-endian; the header, JSON of the shape and of each tensor's name, dtype and shape; the
    tensors' bytes in that order."""
    index = []
    body = io.BytesIO()
    for name, data in tensors.items():
        index.append([name, data.dtype.str, list(data.shape)])
        body.write(data.tobytes())
    head = json.dumps({"shape": shape, "tensors": index}).encode()
    raw = len(head).to_bytes(4, "little") + head + body.getvalue()
    partial = path.with_suffix(".partial")
    partial.write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))
    partial.replace(path)


def embedding_table() -> npt.NDArray[np.float32]:
    """Compute the structured input rows, (201088, 256) float32."""
    out = np.zeros((vocabulary.VOCABULARY_SIZE, rows.EMBEDDING_DIMS), dtype=np.float32)
    signs = rows.bits().astype(np.float32) * 2 - 1
    out[:, : rows.LETTER_DIMS] = signs[:, : rows.LETTER_DIMS]
    flags = signs[:, rows.LETTER_DIMS :] * rows.FLAG_AMPLITUDE
    out[:, rows.LETTER_DIMS : rows.IDENTITY_DIMS] = flags
    return out
