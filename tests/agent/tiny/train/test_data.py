"""What the training data says, and how much each of its tokens weighs."""

from __future__ import annotations

import random

import pytest

from agent.tiny.train import data
from agent.tiny.train.dialogues import Talker
from agent.tiny.train.tools import FIXED, unseen


def test_copies_at_a_fork_weigh_more() -> None:
    out = data.Writer()
    out.given([1, 2, 4, 1, 2, 5])
    out.put([1, 2, 5, 6], 1.0, copy=True)
    data.stress([9, 9], out)
    # After 1, 2 came 4 and then 5, and after 2, 5 what does not come now.
    assert out.weights[6:] == [1.0, 1.0, 5.0, 5.0]


def test_what_carries_no_loss_is_not_stressed() -> None:
    out = data.Writer(learn=False)
    out.given([1, 2, 4, 1, 2, 5])
    out.put([1, 2, 5], 1.0, copy=True)
    data.stress([], out)
    assert out.weights == [0.0] * 9


@pytest.mark.parametrize("name", [name for tool in FIXED.values() for name in tool["names"]])
def test_a_tools_name_has_no_space_before_it(name: str) -> None:
    assert data.encoding().decode(data.name_ids(name)) == name


def test_a_new_tools_thought_says_what_is_wanted() -> None:
    rng = random.Random(1)
    told = {True: 0, False: 0}
    for _ in range(60):
        tool = unseen(rng, "train")
        talker = Talker(rng, "train", True, [tool], data.clean, data.encode)
        request = talker.of_unseen(tool)
        told[request.named] += 1
        assert request.thought().endswith(f"I call {tool.name}.")
        assert (f": {tool.verb} {tool.noun}. " in request.thought()) is not request.named
    assert all(told.values())
