"""Estimating memory and speed of a model that is not here yet."""

from pathlib import Path

import pytest

from agent.models.machine import Machine, active_share, estimate_fit, free_disk, inspect_machine

GB = 10**9
LAPTOP = Machine(28 * GB, 0, shares_memory=False, bandwidth=40e9)


@pytest.mark.parametrize(
    ("name", "size", "machine", "expected"),
    [
        ("gpt-oss-20b", 12.1, LAPTOP, "usable: on the CPU"),
        ("gpt-oss-120b", 63.4, LAPTOP, "slow: does not fit in memory"),
        ("Qwen3-30B-A3B", 18.6, LAPTOP, "usable: on the CPU"),
        ("dense", 18.6, LAPTOP, "slow: on the CPU"),
        ("dense", 0.5, LAPTOP, "fast: on the CPU"),
        ("dense", 18.6, Machine(28 * GB, 24 * GB, False, 40e9), "fast: all of it on the GPU"),
        ("dense", 18.6, Machine(28 * GB, 15 * GB, False, 40e9), "usable: partly on the GPU"),
        ("dense", 18.6, Machine(28 * GB, 0, True, 40e9), "fast: all of it on the GPU"),
    ],
)
def test_estimate_fit_speed_class(name: str, size: float, machine: Machine, expected: str) -> None:
    fit = estimate_fit(name, int(size * GB), machine)
    assert str(fit) == expected
    assert fit.fits is ("does not fit" not in expected)
    assert fit.memory > size * GB


def test_active_share_reads_names() -> None:
    assert active_share("Qwen/Qwen3-30B-A3B-GGUF") == pytest.approx(0.1)
    assert active_share("ggml-org/gpt-oss-20b-GGUF") == pytest.approx(0.17, abs=0.01)
    assert active_share("llama-3.2-3b") == 1


def test_inspect_machine_measures_this_one(tmp_path: Path) -> None:
    machine = inspect_machine()
    assert machine.memory > 0 and machine.free > 0
    assert 1e8 < machine.bandwidth < 1e13
    assert free_disk(tmp_path / "not/yet/there") > 0
