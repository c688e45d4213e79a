"""The devices that llama.cpp reports here, and placements that name them."""

import logging
from pathlib import Path

import psutil
import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement import devices
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import Request, Sampling
from tests.support.engines import read_generation


def test_list_devices_has_this_machines_processor() -> None:
    listed = devices.list_devices()
    assert [d for d in listed if d.kind == "cpu"]
    assert all(d.name and d.free <= d.total for d in listed)


def test_free_memory_is_at_most_the_machines() -> None:
    assert 0 < devices.free_memory() <= psutil.virtual_memory().total


@pytest.mark.parametrize("version", [1, 2])
def test_free_memory_in_a_container_follows_its_limit(version: int, tmp_path: Path) -> None:
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
    assert devices.free_memory(tmp_path) == 650
    (tmp_path / limit).write_text("max\n")
    assert devices.free_memory(tmp_path) > 1_000_000


async def generate(gguf: Path, placement: Placement) -> list[int]:
    engine = LlamaEngine(gguf, placement=placement, threads=ThreadCounts(1, 1))
    await engine.load()
    request = Request([1, 2, 3], max_tokens=8, sampling=Sampling(temperature=0))
    ids = (await read_generation(engine.generate(request))).ids
    await engine.close()
    return ids


async def test_placement_of_layers_split_experts_without_gpu_answers(
    gguf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """llama.cpp takes them as they are meant, and the answer is the same."""
    caplog.set_level(logging.DEBUG, "agent.llama.cpp")
    plain = await generate(gguf, Placement(context=512))
    named = Placement(context=512, gpu_layers=5, tensor_split=(3,), cpu_experts=2)
    assert await generate(gguf, named) == plain
    moved = {line.split()[1] for line in caplog.messages if "overridden to" in line}
    assert {name.split(".")[1] for name in moved} == {"0", "1"}
    assert {"blk.0.ffn_gate_exps.weight", "blk.1.ffn_up_exps.bias"} <= moved


async def test_placement_with_quantised_kv_cache_answers(gguf: Path) -> None:
    placement = Placement(context=512, kv_type="q8_0", flash_attention=True)
    assert len(await generate(gguf, placement)) == 8
