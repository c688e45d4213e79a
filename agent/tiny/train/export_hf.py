"""Writes the embedded model as a Hugging Face checkpoint, for vLLM and transformers.

    python -m agent.tiny.train.export_hf DIR

The layout is transformers' ``gpt_oss``: config, weights in float32 (safetensors), tokenizer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from agent.tiny import embedding_rows, expand, vocabulary
from agent.tiny.gguf import CONTEXT_TOKENS, merge_splits, spell_token, table_q4
from agent.util.gpt2_bytes import byte_letters

Array = npt.NDArray[np.float32]
SPLIT_PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""Where o200k_base's texts are split before tokens are merged (tiktoken, openai_public.py)."""
END_IDS = (200_002, 199_999, 200_012)
"""``<|return|>``, ``<|endoftext|>``, ``<|call|>``."""
_ATTENTION = (
    ("attn_q", "q_proj"),
    ("attn_k", "k_proj"),
    ("attn_v", "v_proj"),
    ("attn_output", "o_proj"),
)


def checkpoint(folder: Path) -> None:
    """Write the shipped core as a checkpoint into a folder. Raises OSError."""
    shape, core = expand.read_core(expand.CORE.read_bytes())
    folder.mkdir(parents=True, exist_ok=True)
    _write_safetensors(folder / "model.safetensors", tensors(shape, core))
    for name, content in (
        ("config.json", config(shape)),
        ("generation_config.json", {"eos_token_id": list(END_IDS), "pad_token_id": 199_999}),
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", tokenizer_config()),
    ):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def config(shape: dict[str, Any]) -> dict[str, Any]:
    """transformers' GptOssConfig of a core's shape."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "vocab_size": vocabulary.VOCABULARY_SIZE,
        "hidden_size": shape["dim"],
        "intermediate_size": shape["expert_dim"],
        "num_hidden_layers": shape["layers"],
        "layer_types": [
            "full_attention" if index % 2 else "sliding_attention"
            for index in range(shape["layers"])
        ],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["heads"],
        "head_dim": shape["head_dim"],
        "num_local_experts": shape["experts"],
        "num_experts_per_tok": shape["experts"],
        "sliding_window": shape["window"],
        "rms_norm_eps": shape["epsilon"],
        "rope_theta": shape["rope_base"],
        # llama.cpp rounds the borders between the rotations that are stretched and those that are not.
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": shape["rope_factor"],
            "original_max_position_embeddings": shape["rope_original"],
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": True,
        },
        "max_position_embeddings": CONTEXT_TOKENS,
        "swiglu_limit": 7.0,
        "hidden_act": "silu",
        "attention_bias": True,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "eos_token_id": END_IDS[0],
        "pad_token_id": 199_999,
        "torch_dtype": "float32",
    }


def tensors(shape: dict[str, Any], core: dict[str, npt.NDArray[Any]]) -> dict[str, Array]:
    """The weights by transformers' names."""
    signs = embedding_rows.bits()

    def rows(key: str, output: bool) -> Array:
        packed = table_q4(signs, output)
        packed[core["rows.ids"]] = core[f"rows.{key}"]
        return _dequantise(packed, gguf.GGMLQuantizationType.Q4_0)

    def tensor(name: str) -> Array:
        data = core[name]
        if data.dtype == np.uint8:
            return _dequantise(data, gguf.GGMLQuantizationType.Q8_0)
        return data.astype(np.float32)

    found = {
        "model.embed_tokens.weight": rows("in", False),
        "lm_head.weight": rows("out", True),
        "model.norm.weight": tensor("output_norm.weight"),
    }
    for index in range(shape["layers"]):
        old, new = f"blk.{index}.", f"model.layers.{index}."
        found[new + "input_layernorm.weight"] = tensor(old + "attn_norm.weight")
        found[new + "post_attention_layernorm.weight"] = tensor(old + "post_attention_norm.weight")
        found[new + "self_attn.sinks"] = tensor(old + "attn_sinks.weight")
        for part in ("weight", "bias"):
            for ours, theirs in _ATTENTION:
                found[f"{new}self_attn.{theirs}.{part}"] = tensor(f"{old}{ours}.{part}")
            found[f"{new}mlp.router.{part}"] = tensor(f"{old}ffn_gate_inp.{part}")
            # Output 2n is the gate's n, output 2n+1 the up projection's.
            pair = [tensor(f"{old}ffn_{half}_exps.{part}") for half in ("gate", "up")]
            both = np.stack(pair, axis=2).reshape(shape["experts"], -1, *pair[0].shape[2:])
            down = tensor(f"{old}ffn_down_exps.{part}")
            suffix = "_bias" if part == "bias" else ""
            for name, matrix in (("gate_up_proj", both), ("down_proj", down)):
                if part == "weight":
                    matrix = np.ascontiguousarray(matrix.transpose(0, 2, 1))
                found[f"{new}mlp.experts.{name}{suffix}"] = matrix
    return found


def tokenizer() -> dict[str, Any]:
    """o200k_harmony as Hugging Face's tokenizer.json has it."""
    table = byte_letters()
    names = [spell_token(token, table) for token in vocabulary.tokens()]
    splits = zip(names, merge_splits(), strict=True)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token,
                "content": vocabulary.special_name(token),
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in range(vocabulary.ORDINARY_TOKENS, vocabulary.VOCABULARY_SIZE)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": SPLIT_PATTERN},
                    "behavior": "Isolated",
                    "invert": False,
                },
                byte_level | {"use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": byte_level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {name: token for token, name in enumerate(names)},
            "merges": [[name[:at], name[at:]] for name, at in splits if at],
        },
    }


def tokenizer_config() -> dict[str, Any]:
    name = vocabulary.special_name
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": name(199_998),
        "eos_token": name(END_IDS[0]),
        "pad_token": name(199_999),
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT_TOKENS,
    }


def _dequantise(packed: npt.NDArray[Any], kind: gguf.GGMLQuantizationType) -> Array:
    values: Array = gguf.quants.dequantize(packed, kind).astype(np.float32)
    return values


def _write_safetensors(path: Path, arrays: dict[str, Array]) -> None:
    """The format: 8 bytes length of the header, little-endian; the header, JSON; the tensors' bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [begin, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="where config, weights and tokenizer go (430 MB)")
    checkpoint(parser.parse_args().folder)


if __name__ == "__main__":
    main()
