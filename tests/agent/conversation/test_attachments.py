"""Texts that are attached to a prompt, and the person's words before them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.conversation.attachments import Attachment, Kind, format_attachment, split_attachments

PIECES = st.lists(
    st.sampled_from(
        ["\n", "x", "</file>", "</file_>", "</prompt>", '<file path="a" lines="1">', "<", "\n\n<"]
    )
).map("".join)


@given(texts=st.lists(st.tuples(PIECES, st.sampled_from(["file", "prompt", "command"]))))
def test_split_attachments_no_text_leaves_its_block(texts: list[tuple[str, Kind]]) -> None:
    blocks = "".join(format_attachment("a", text, kind) for text, kind in texts)
    words, attachments = split_attachments(f"Explain.{blocks}")
    assert words == "Explain."
    assert attachments == [
        Attachment(kind, "a", text.rstrip("\n").count("\n") + 1) for text, kind in texts
    ]
    assert [attached.text for attached in attachments] == [text.rstrip("\n") for text, _ in texts]


def test_split_attachments_odd_source_is_still_attached() -> None:
    words, (attachment,) = split_attachments("Go." + format_attachment('a"b\nc', "text", "prompt"))
    assert (words, attachment) == ("Go.", Attachment("prompt", "a'b c", 1))


@pytest.mark.parametrize(
    "text", ["", "none", '\n\n<file path="a" lines="1">\nnever closed', "<file>\nx\n</file>"]
)
def test_split_attachments_other_text_unchanged(text: str) -> None:
    assert split_attachments(text) == (text, [])


def test_split_attachments_time_grows_with_length_only() -> None:
    unclosed = "".join(f'\n\n<file{"_" * (n % 50)} path="" lines="1">\n' for n in range(10_000))
    began = time.process_time()
    assert split_attachments(unclosed) == (unclosed, [])
    assert time.process_time() - began < 5
