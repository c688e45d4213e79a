"""The devices that llama.cpp reports here, and a placement that names them."""

from __future__ import annotations

import logging
from pathlib import Path

import psutil
import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.thread_tuning import Threads
from agent.engine.placement import devices
from agent.engine.placement.placement import Placement
from agent.engine.protocol import Request, Sampling
from tests.support.engines import read


def test_this_machines_processor_is_found() -> None:
    found = devices.devices()
    assert [d for d in found if d.kind == "cpu"]
    assert all(d.name and d.free <= d.total for d in found)


def test_free_memory_is_less_than_there_is() -> None:
    assert 0 < devices.free_memory() <= psutil.virtual_memory().total


@pytest.mark.parametrize("version", [1, 2])
def test_a_containers_limit_counts(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (
        ("memory.max", "memory.current", "inactive_file 50", "memory.stat")
        if version == 2
        else (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "inactive_file 1\ntotal_inactive_file 50",
            "memory/memory.stat",
        )
    )
    (tmp_path / "memory").mkdir()
    limit, usage, stat, stats = names
    (tmp_path / limit).write_text("1000\n")
    (tmp_path / usage).write_text("400\n")
    (tmp_path / stats).write_text(f"anon 350\n{stat}\n")
    monkeypatch.setattr(devices, "_CGROUP", tmp_path)
    assert devices.free_memory() == 650
    (tmp_path / limit).write_text("max\n")
    assert devices.free_memory() > 1_000_000


async def _say(gguf: Path, placement: Placement) -> list[int]:
    engine = LlamaEngine(gguf, placement=placement, threads=Threads(1, 1))
    await engine.load()
    request = Request([1, 2, 3], max_tokens=8, sampling=Sampling(temperature=0))
    said = (await read(engine.generate(request))).ids
    await engine.close()
    return said


async def test_layers_shares_and_experts_can_be_named_without_a_gpu(
    gguf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """llama.cpp takes them as they are meant, and the answer is the same."""
    caplog.set_level(logging.DEBUG, "agent.llama.cpp")
    plain = await _say(gguf, Placement(context=512))
    named = Placement(context=512, gpu_layers=5, split=(3,), cpu_experts=2)
    assert await _say(gguf, named) == plain
    moved = {line.split()[1] for line in caplog.messages if "overridden to" in line}
    assert {name.split(".")[1] for name in moved} == {"0", "1"}
    assert {"blk.0.ffn_gate_exps.weight", "blk.1.ffn_up_exps.bias"} <= moved


async def test_a_smaller_kv_cache_still_answers(gguf: Path) -> None:
    placement = Placement(context=512, kv_type="q8_0", flash_attention=True)
    assert len(await _say(gguf, placement)) == 8
