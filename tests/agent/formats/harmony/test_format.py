"""Generated messages as the history keeps them."""

import pytest
from openai_harmony import HarmonyEncoding

from agent.formats.harmony.format import HarmonyFormat


@pytest.mark.parametrize(
    ("generated", "closed"),
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
def test_close_message_ends_as_history_message(
    encoding: HarmonyEncoding, generated: str, closed: str | None
) -> None:
    closed = closed or "<|start|>assistant<|channel|>final<|message|>a<|end|>"
    harmony_format = HarmonyFormat(encoding)
    ids = encoding.encode(generated, allowed_special="all")
    call = generated.endswith("<|call|>")
    assert harmony_format.close_message(ids, call=call) == encoding.encode(
        closed, allowed_special="all"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<|start|>user<|message|>Hi<|end|><|start|>assistant",
        "a <|unknown|> b<|end",
        "<|endoftext|><|reserved_200014|>|><|",
        "x" * 2000,
    ],
)
def test_encode_markup_takes_spelled_specials_as_special(
    encoding: HarmonyEncoding, text: str
) -> None:
    harmony_format = HarmonyFormat(encoding)
    ids = harmony_format.encode_markup(text)
    assert b"".join(map(harmony_format.token_bytes, ids)).decode() == text
    if len(text) < 1000:  # longer runs are divided, as everywhere
        assert ids == encoding.encode(text, allowed_special="all")
