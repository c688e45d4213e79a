"""Excerpts are lines of real files, and never of what teaches or judges the model."""

from __future__ import annotations

import random

from agent.tiny.train import data, excerpts


def test_excerpt_is_lines_of_a_file_of_its_split() -> None:
    rng = random.Random(2)
    texts = ["\n".join(lines) for lines in excerpts.files("train")]
    for _ in range(30):
        text = excerpts.excerpt(rng, "train")
        assert any(text in file_text for file_text in texts)
    assert 50 < len(excerpts.files("eval")) < len(texts) / 4


def test_excerpts_leave_out_what_teaches_and_judges() -> None:
    def lines(name: str) -> set[str]:
        return set((excerpts.ROOT / "agent" / "tiny" / "train" / name).read_text().splitlines())

    own = {line for line in lines("data.py") | lines("README.md") if len(line) > 60}
    for split in ("train", "eval"):
        assert not own & {line for file in excerpts.files(split) for line in file}


def test_real_lines_are_copied_from_the_third_token_on() -> None:
    rng = random.Random(4)
    written = [data.write_copy(rng) for _ in range(40)]
    for out in written:
        learned = [at for at, weight in enumerate(out.weights) if weight]
        copied = [out.ids[at] for at in learned]
        source = out.ids[3 : 3 + len(copied) + 2]
        assert out.ids[learned[0] - 2 : learned[0]] + copied == source
    assert any(len(out.ids) > 120 for out in written)


def test_folder_is_sorted_names_of_its_split() -> None:
    rng = random.Random(3)
    made = [excerpts.folder(rng, "train") for _ in range(200)]
    assert all(names == sorted(set(names)) and names for names in made)
    assert any(name.endswith("/") for names in made for name in names)
    real = set(excerpts.folders("train"))
    assert not real & set(excerpts.folders("eval"))
    whole = [names for names in made if any(set(names) == set(one) for one in real)]
    assert 40 < len(whole) < 140
