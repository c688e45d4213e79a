"""The vocabulary that is shipped, and what the file's tokenizer is made of."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest

from agent.tiny import gguf, rows, vocabulary


def test_the_ranks_are_o200k_base() -> None:
    assert hashlib.sha256(vocabulary.ranks()).hexdigest() == vocabulary.SHA256
    assert len(vocabulary.tokens()) == vocabulary.ORDINARY
    assert vocabulary.tokens()[173_781] == b"assistant"


@pytest.mark.slow
def test_the_splits_are_the_ranks_own() -> None:
    assert gguf.splits() == gguf.find_splits()


def test_damaged_ranks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lzma

    damaged = tmp_path / "ranks.xz"
    damaged.write_bytes(lzma.compress(b"IQ== 0\n"))
    monkeypatch.setattr(vocabulary, "PACKED", damaged)
    with pytest.raises(ValueError, match="damaged"):
        vocabulary.ranks()


def test_specials_have_their_names() -> None:
    assert vocabulary.special_name(200_006) == "<|start|>"
    assert vocabulary.special_name(200_100) == "<|reserved_200100|>"


def test_every_merge_joins_two_tokens() -> None:
    tokens = vocabulary.tokens()
    known = set(tokens)
    halves = gguf.splits()
    assert len(halves) == vocabulary.ORDINARY
    assert sum(map(bool, halves)) == 199_742
    for index in random.Random(1).sample(range(256, vocabulary.ORDINARY), 5000):
        token, at = tokens[index], halves[index]
        if at:
            assert token[:at] in known
            assert token[at:] in known


def test_the_exact_rows_are_what_plain_quantising_gives() -> None:
    signs = rows.bits()[:500]
    table = rows.table()[:500]
    assert (gguf.table_q4(signs, output=False) == gguf.quantise_q4(table)).all()
    turned = np.roll(table, rows.ROLL, axis=1) * rows.OUTPUT_SCALE
    assert (gguf.table_q4(signs, output=True) == gguf.quantise_q4(turned)).all()


def test_case_and_space_share_their_letters() -> None:
    ids = {token: index for index, token in enumerate(vocabulary.tokens())}
    signs = rows.bits()
    word = signs[[ids[b" Paris"], ids[b"Paris"], ids[b" paris"]]]
    assert (word[0, : rows.CORE] == word[1, : rows.CORE]).all()
    assert (word[0, : rows.CORE] == word[2, : rows.CORE]).all()
    assert not (word[0] == word[1]).all()
    assert not (word[0] == word[2]).all()
