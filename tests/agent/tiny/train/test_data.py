"""The training data, and the weight of each of its tokens."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from agent.tiny.train import data
from agent.tiny.train.dialogues import Talker
from agent.tiny.train.tools import FIXED, unseen


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
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == f"{data.encode('ab cd')}\n", done.stderr


def test_thought_of_unseen_tool_names_its_task() -> None:
    rng = random.Random(1)
    counts = {True: 0, False: 0}
    for _ in range(60):
        tool = unseen(rng, "train")
        talker = Talker(rng, "train", True, [tool], data.clean, data.encode)
        request = talker.of_unseen(tool)
        counts[request.named] += 1
        assert request.thought().endswith(f"I call {tool.name}.")
        assert (f": {tool.verb} {tool.noun}. " in request.thought()) is not request.named
    assert all(counts.values())
