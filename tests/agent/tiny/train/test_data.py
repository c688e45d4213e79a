"""The training data, and the weight of each of its tokens."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from agent.tiny.train import data, phrases, strangers
from agent.tiny.train.dialogues import Talker
from agent.tiny.train.tools import FILE_TOOLS, FIXED, fixed, unseen
from agent.tiny.train.turns import DialogueCall, DialogueTurn
from agent.turn.decoder import CALL_HEDGE, HEDGE
from tests.support.waiting import HANG_SECONDS


def test_stress_copies_at_fork_weigh_more() -> None:
    out = data.ConversationWriter()
    out.put_context([1, 2, 4, 1, 2, 5])
    out.put([1, 2, 5, 6], 1.0, copy=True)
    data.stress([9, 9], out)
    # After 1, 2 came 4 and then 5, and after 2, 5 what does not come now.
    assert out.weights[6:] == [1.0, 1.0, 5.0, 5.0]


def test_stress_tokens_without_loss_stay_zero() -> None:
    out = data.ConversationWriter(learn=False)
    out.put_context([1, 2, 4, 1, 2, 5])
    out.put([1, 2, 5], 1.0, copy=True)
    data.stress([], out)
    assert out.weights == [0.0] * 9


@pytest.mark.parametrize("name", [name for tool in FIXED.values() for name in tool["names"]])
def test_name_ids_have_no_leading_space(name: str) -> None:
    assert data.encoding().decode(data.name_ids(name)) == name


def test_encoding_ranks_in_temporary_folder_not_used(tmp_path: Path) -> None:
    """Whoever made the folder before could choose the vocabulary, or have a file overwritten."""
    (tmp_path / f"agent-tiny-ranks-{os.getuid()}").mkdir(mode=0o777)
    planted = tmp_path / f"agent-tiny-ranks-{os.getuid()}" / "o200k_base.tiktoken"
    planted.write_text("IQ== 0\n")
    code = "from agent.tiny.train import data; print(data.encode('ab cd'))"
    env = {**os.environ, "TMPDIR": str(tmp_path), "AGENT_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert done.stdout == f"{data.encode('ab cd')}\n", done.stderr


def test_thought_of_unseen_tool_names_it() -> None:
    rng = random.Random(1)
    counts = {True: 0, False: 0}
    for _ in range(60):
        tool = unseen(rng, "train")
        talker = Talker(rng, "train", True, [tool], data.clean, data.encode)
        request = talker.of_unseen(tool)
        counts[request.named] += 1
        named = f"A named tool is to be called. I call {tool.name}."
        assert request.thought() == (
            named if request.named else f"A special tool fits: {tool.name}."
        )
    assert all(counts.values())


def test_name_of_function_weighs_most_in_its_thought() -> None:
    out = data.ConversationWriter()
    data.write_analysis(out, "A special tool fits: set_volume.")
    name = data.encode(" set_volume")
    at = next(i for i in range(len(out.ids)) if tuple(out.ids[i : i + len(name)]) == name)
    assert out.weights[at] == max(out.weights) == 6.0


@pytest.mark.long
def test_shard_has_few_packs_of_each_prefix(tmp_path: Path) -> None:
    path = tmp_path / "shard0000.npz"
    data.write_shard(path, 0, prefixes=4, per_pack=5)
    with np.load(path) as shard:
        packs = len(shard["prefix_length"])
        prefixes = np.split(shard["prefix"], shard["prefix_length"].cumsum()[:-1])
        assert shard["segment_length"].shape == (packs * 5,)
        assert len(shard["weight"]) == len(shard["segment"]) == shard["segment_length"].sum()
    copies = Counter(prefix.tobytes() for prefix in prefixes)
    assert len(copies) >= 4 and max(copies.values()) <= data.CHOSEN_PACKS


def file_tools() -> data.Prefix:
    tools = [fixed(random.Random(1), name, 1.0) for name in FILE_TOOLS]
    return data.Prefix([], True, tools)


def text_of(ids: list[int]) -> str:
    return data.encoding().decode(ids)


def test_long_result_is_named_and_not_quoted() -> None:
    begun = set()
    for seed in range(40):
        past, answer = data.long_result(random.Random(seed), file_tools()) or pytest.fail("no tool")
        assert text_of(past).endswith("<|end|>") and len(past) > 200
        said = text_of(answer.ids).rpartition("<|message|>")[2].removesuffix("<|return|>")
        assert said.endswith("; it is too long for me to repeat here.")
        begun.add(" ".join(said.split()[:3]))
        # A loss stands at the token before: the first of a segment has none.
        assert text_of(answer.ids).startswith("<|start|>assistant<|channel|>final")
        assert answer.weights[0] == 0 and max(answer.weights) > 1
    assert "I have found" in begun and len(begun) > 2


@pytest.mark.parametrize(("count", "listed"), [(8, 8), (12, 8), (13, 0)])
def test_folder_of_many_names_is_not_listed(count: int, listed: int) -> None:
    names = [f"{word}.txt" for word in "abcdefghijklm"[:count]]
    call = DialogueCall(fixed(random.Random(1), "list", 1.0), [], "\n".join(names))
    said = "".join(text_of(list(part)) for part in call.piece(data.encode))
    assert [name in said for name in names] == [True] * listed + [False] * (count - listed)
    assert ("too long" in said) == (listed == 0)


@pytest.mark.parametrize("seed", range(4))
def test_past_turns_are_finished(seed: int) -> None:
    text = text_of(data.past_turns(random.Random(seed), file_tools()))
    assert text.startswith("<|start|>user") and text.endswith("<|end|>")
    assert "<|start|>assistant<|channel|>analysis<|message|>" not in text
    assert text.count("<|start|>user") == text.count("<|channel|>final")


def test_hedge_stands_in_finished_turns_and_is_never_learned() -> None:
    assert phrases.HEDGE == HEDGE
    assert CALL_HEDGE.startswith(strangers.HEDGE) and HEDGE.startswith(strangers.HEDGE)
    call = DialogueCall(fixed(random.Random(1), "list", 1.0), [], "a.txt")
    turn = DialogueTurn("list the files", ["This is a folder."], [call])
    hedged = 0
    for seed in range(60):
        out = data.write_turns(random.Random(seed), [turn, turn])
        learned = text_of(
            [token for token, weight in zip(out.ids, out.weights, strict=True) if weight]
        )
        assert "a.txt" in learned and HEDGE not in learned
        hedged += text_of(out.ids).count(HEDGE)
    assert 0 < hedged < 30
