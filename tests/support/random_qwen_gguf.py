"""Small GGUFs of other families: a byte-level vocabulary, special tokens and random weights."""

from pathlib import Path

import gguf
import numpy as np

from agent.formats.markup.gguf_vocabulary import GPT2_BYTES

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ t", "< |", "| >"]
WIDTH, LAYERS, HEADS, HEAD_WIDTH = 32, 2, 2, 32


def write_model(
    path: Path,
    specials: dict[str, int],
    template: str | None,
    pre: str = "qwen2",
    end: str = "<|im_end|>",
) -> Path:
    """Write a qwen3 model; ``specials`` have their GGUF token types (3: control, 4: user defined);
    ``end``: the EOS token, one of them."""
    tokens = [*sorted(GPT2_BYTES), *(merge.replace(" ", "") for merge in MERGES), *specials]
    kinds = [gguf.TokenType.NORMAL] * (len(tokens) - len(specials)) + list(specials.values())
    w = gguf.GGUFWriter(path, "qwen3")
    w.add_name("small")
    w.add_block_count(LAYERS)
    w.add_context_length(4096)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(WIDTH)
    w.add_head_count(HEADS)
    w.add_head_count_kv(HEADS)
    w.add_key_length(HEAD_WIDTH)
    w.add_value_length(HEAD_WIDTH)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10_000.0)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_token_merges(MERGES)
    w.add_eos_token_id(tokens.index(end))
    if template is not None:
        w.add_chat_template(template)
    random = np.random.default_rng(0)

    def add(name: str, *dims: int) -> None:
        values = random.standard_normal(dims, dtype=np.float32) * np.float32(dims[-1] ** -0.5)
        w.add_tensor(name, values)

    def add_norm(name: str, *dims: int) -> None:
        w.add_tensor(name, np.ones(dims, dtype=np.float32))

    add("token_embd.weight", len(tokens), WIDTH)
    add("output.weight", len(tokens), WIDTH)
    add_norm("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        p = f"blk.{layer}."
        for name, width in (("attn", WIDTH), ("ffn", WIDTH)):
            add_norm(f"{p}{name}_norm.weight", width)
        for name in ("q", "k"):
            add_norm(f"{p}attn_{name}_norm.weight", HEAD_WIDTH)
        for name in ("q", "k", "v"):
            add(f"{p}attn_{name}.weight", HEADS * HEAD_WIDTH, WIDTH)
        add(f"{p}attn_output.weight", WIDTH, HEADS * HEAD_WIDTH)
        for name in ("gate", "up", "down"):
            add(f"{p}ffn_{name}.weight", WIDTH, WIDTH)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


SPECIALS = {
    "<|endoftext|>": 3,
    "<|im_start|>": 3,
    "<|im_end|>": 3,
    "<|fim_pad|>": 3,
    "<tool_call>": 4,
    "</tool_call>": 4,
    "<think>": 4,
    "</think>": 4,
}
"""The special tokens of Qwen3's files, with their token types."""

THINKING_TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
{%- for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}
{{- 'Write <tool_call>\\n...\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + message.content | trim + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.last %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n' + call.function.arguments | tojson + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- elif not loop.first %}{{ raise_exception('System first') }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"""
"""A template that drops old reasoning, groups results and opens ``<think>``, as Qwen's do."""
