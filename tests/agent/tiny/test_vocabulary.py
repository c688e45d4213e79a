"""The shipped vocabulary, and the tokenizer and rows that follow from it."""

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest

from agent.tiny import embedding_rows, gguf, vocabulary
from agent.tiny.train import packing


def test_ranks_are_o200k_base() -> None:
    assert hashlib.sha256(vocabulary.ranks()).hexdigest() == vocabulary.SHA256
    assert len(vocabulary.tokens()) == vocabulary.ORDINARY_TOKENS
    assert vocabulary.tokens()[173_781] == b"assistant"


@pytest.mark.long
def test_merge_splits_follow_from_ranks() -> None:
    assert gguf.merge_splits() == packing.compute_merge_splits()


def test_ranks_damaged_file_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lzma

    damaged = tmp_path / "ranks.xz"
    damaged.write_bytes(lzma.compress(b"IQ== 0\n"))
    monkeypatch.setattr(vocabulary, "PACKED", damaged)
    with pytest.raises(ValueError, match="damaged"):
        vocabulary.ranks()


def test_special_name_known_and_reserved() -> None:
    assert vocabulary.special_name(200_006) == "<|start|>"
    assert vocabulary.special_name(200_100) == "<|reserved_200100|>"


def test_merge_splits_join_two_tokens() -> None:
    tokens = vocabulary.tokens()
    known = set(tokens)
    halves = gguf.merge_splits()
    assert len(halves) == vocabulary.ORDINARY_TOKENS
    assert sum(map(bool, halves)) == 199_742
    for index in random.Random(1).sample(range(256, vocabulary.ORDINARY_TOKENS), 5000):
        token, at = tokens[index], halves[index]
        if at:
            assert token[:at] in known
            assert token[at:] in known


@pytest.mark.long
def test_table_q4_equals_quantised_rows() -> None:
    signs = embedding_rows.bits()[:500]
    table = packing.embedding_table()[:500]
    assert (gguf.table_q4(signs, output=False) == packing.quantise_q4(table)).all()
    turned = np.roll(table, embedding_rows.OUTPUT_ROLL_DIMS, axis=1) * embedding_rows.OUTPUT_SCALE
    assert (gguf.table_q4(signs, output=True) == packing.quantise_q4(turned)).all()


def test_bits_case_and_space_share_letter_dims() -> None:
    ids = {token: index for index, token in enumerate(vocabulary.tokens())}
    signs = embedding_rows.bits()
    word = signs[[ids[b" Paris"], ids[b"Paris"], ids[b" paris"]]]
    assert (word[0, : embedding_rows.LETTER_DIMS] == word[1, : embedding_rows.LETTER_DIMS]).all()
    assert (word[0, : embedding_rows.LETTER_DIMS] == word[2, : embedding_rows.LETTER_DIMS]).all()
    assert not (word[0] == word[1]).all()
    assert not (word[0] == word[2]).all()
