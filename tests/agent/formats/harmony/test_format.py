"""Generated messages as history has them."""

from __future__ import annotations

import pytest
from openai_harmony import HarmonyEncoding

from agent.formats.harmony.format import HarmonyFormat


@pytest.mark.parametrize(
    ("generated", "kept"),
    [
        ("<|start|>assistant<|channel|>final<|message|>a<|return|>", None),
        ("<|start|>assistant<|channel|>final<|message|>a<|endoftext|>", None),
        ("<|start|>assistant<|channel|>final<|message|>a<|end|>", None),
        ("<|start|>assistant<|channel|>final<|message|>a", None),
        ("<|channel|>final<|message|>a<|return|>", None),
        (
            "<|start|>assistant<|channel|>commentary to=f<|message|>{}<|call|>",
            "<|start|>assistant<|channel|>commentary to=f<|message|>{}<|call|>",
        ),
    ],
)
def test_close_message(encoding: HarmonyEncoding, generated: str, kept: str | None) -> None:
    kept = kept or "<|start|>assistant<|channel|>final<|message|>a<|end|>"
    form = HarmonyFormat(encoding)
    ids = encoding.encode(generated, allowed_special="all")
    call = generated.endswith("<|call|>")
    assert form.close_message(ids, call=call) == encoding.encode(kept, allowed_special="all")
