"""Writes the core's GGUF, a pure function of core and vocabulary: the same file on every machine."""

import lzma
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from agent.tiny import embedding_rows, vocabulary
from agent.util.gpt2_bytes import byte_letters

Array = npt.NDArray[Any]
CONTEXT_TOKENS = 131_072
"""Context length in the metadata, that of gpt-oss."""
BLOCK_SIZE = 32
"""Values of a Q4_0 or Q8_0 block that share one step (ggml)."""
TEXTS_AT_ONCE = 4096
"""Texts of the tokenizer that are packed in one call."""
Q4_BLOCK_BYTES = 18
"""A Q4_0 block: float16 step, then 16 bytes of nibbles (value + 8)."""


def table_q4(signs: npt.NDArray[np.uint8], output: bool) -> npt.NDArray[np.uint8]:
    """Pack the structured rows as Q4_0: exact, as all are ± 7 steps. ``output``: rolled and scaled."""
    count = len(signs)
    blocks = embedding_rows.EMBEDDING_DIMS // BLOCK_SIZE
    kinds = embedding_rows.IDENTITY_DIMS // BLOCK_SIZE
    scale = embedding_rows.OUTPUT_SCALE if output else 1.0
    steps = np.zeros(blocks, dtype=np.float32)
    steps[:kinds] = scale / 7
    steps[embedding_rows.LETTER_DIMS // BLOCK_SIZE : kinds] *= embedding_rows.FLAG_AMPLITUDE
    shift = embedding_rows.OUTPUT_ROLL_DIMS // BLOCK_SIZE if output else 0
    halves = signs.reshape(count, kinds, 2, BLOCK_SIZE // 2)
    out = np.empty((count, blocks, Q4_BLOCK_BYTES), dtype=np.uint8)
    for block in range(blocks):
        target = (block + shift) % blocks
        step = steps[block].astype(np.float16).tobytes()
        out[:, target, :2] = np.frombuffer(step, dtype=np.uint8)
        if block < kinds:  # nibbles: 1 for -7 steps, 15 for +7
            pairs = halves[:, block, 1] * np.uint8(0xE0)
            pairs += halves[:, block, 0] * np.uint8(0x0E)
            np.add(pairs, 0x11, out=out[:, target, 2:])
        else:
            out[:, target, 2:] = 0x88
    return out.reshape(count, -1)


# -- the tokenizer ------------------------------------------------------------------------------


MERGE_SPLITS = Path(__file__).with_name("splits.xz")
"""The packed result of `agent.tiny.train.packing.compute_merge_splits`."""


def merge_splits() -> bytes:
    """Byte length of the left half of every ordinary token's last merge; 0: it has none."""
    return lzma.decompress(MERGE_SPLITS.read_bytes())


def _pack_texts(texts: Sequence[str]) -> bytes:
    """Pack texts, each after its length in bytes; in batches, since others wait for the GIL."""
    length = struct.Struct("<Q").pack
    body = bytearray()
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        encoded = [text.encode() for text in texts[start : start + TEXTS_AT_ONCE]]
        body += b"".join([part for text in encoded for part in (length(len(text)), text)])
    return bytes(body)


class ArrayWriter(gguf.GGUFWriter):  # type: ignore[misc]
    """A GGUFWriter that packs long arrays of texts and int32 at once, ten times as fast."""

    def _pack_val(self, val: Any, vtype: gguf.GGUFValueType, **settings: Any) -> bytes:
        if vtype is gguf.GGUFValueType.ARRAY and isinstance(val[0], str):
            kind, body = gguf.GGUFValueType.STRING, _pack_texts(val)
        elif vtype is gguf.GGUFValueType.ARRAY and isinstance(val[0], int):
            kind, body = gguf.GGUFValueType.INT32, np.array(val, "<i4").tobytes()
        else:
            packed: bytes = super()._pack_val(val, vtype, **settings)
            return packed
        return struct.pack("<IIQ", vtype, kind, len(val)) + body


def spell_token(token: bytes, table: list[str]) -> str:
    """Spell a token's bytes in GPT-2's stand-ins."""
    return "".join([table[b] for b in token])


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    table = byte_letters()
    names = [spell_token(t, table) for t in vocabulary.tokens()]
    pairs = [f"{n[:at]} {n[at:]}" for n, at in zip(names, merge_splits(), strict=True) if at]
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    special = range(vocabulary.ORDINARY_TOKENS, vocabulary.VOCABULARY_SIZE)
    names += map(vocabulary.special_name, special)
    types = [normal] * vocabulary.ORDINARY_TOKENS + [control] * len(special)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-4o")
    writer.add_token_list(names)
    writer.add_token_types(types)
    writer.add_token_merges(pairs)
    writer.add_bos_token_id(199_998)
    writer.add_eos_token_id(200_002)
    writer.add_pad_token_id(199_999)
    writer.add_add_bos_token(False)


def add_metadata(writer: gguf.GGUFWriter, shape: dict[str, Any]) -> None:
    writer.add_name("agent tiny")
    writer.add_description("The embedded demonstration model; not made for real use.")
    writer.add_block_count(shape["layers"])
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(shape["dim"])
    writer.add_feed_forward_length(shape["expert_dim"])
    writer.add_expert_feed_forward_length(shape["expert_dim"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["heads"])
    writer.add_key_length(shape["head_dim"])
    writer.add_value_length(shape["head_dim"])
    writer.add_layer_norm_rms_eps(shape["epsilon"])
    writer.add_sliding_window(shape["window"])
    writer.add_expert_count(shape["experts"])
    writer.add_expert_used_count(shape["experts"])
    writer.add_rope_freq_base(shape["rope_base"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(shape["rope_factor"])
    writer.add_rope_scaling_orig_ctx_len(shape["rope_original"])
    writer.add_vocab_size(vocabulary.VOCABULARY_SIZE)


def write(
    path: Path,
    shape: dict[str, Any],
    tensors: dict[str, Array],
    report: Callable[[float], None],
    signs: npt.NDArray[np.uint8],
) -> None:
    """Write the file. ``tensors``: layers, and the trained rows under ``rows.*``. ``report``: gets the
    share that is done. ``signs``: `embedding_rows.bits`."""
    writer = ArrayWriter(path, "gpt-oss")
    add_metadata(writer, shape)
    add_tokenizer(writer)
    report(0.4)
    q4 = gguf.GGMLQuantizationType.Q4_0
    for name, key, output in (("token_embd", "in", False), ("output", "out", True)):
        data = table_q4(signs, output)
        data[tensors["rows.ids"]] = tensors[f"rows.{key}"]
        writer.add_tensor(f"{name}.weight", data, raw_dtype=q4)
    for name, data in tensors.items():
        if not name.startswith("rows."):
            kind = gguf.GGMLQuantizationType.Q8_0 if data.dtype == np.uint8 else None
            writer.add_tensor(name, data, raw_dtype=kind)
    report(0.7)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
