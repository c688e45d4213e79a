"""What llama.cpp can do on this machine: tried in a child process, and stored."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.engine.placement import cpu_probe
from agent.engine.placement.cpu_probe import ProbeResult, Speed
from agent.engine.protocol import EngineError

TYPES = (8, 39)


@pytest.fixture
def cache_folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def child(program: str) -> tuple[str, str]:
    """Arguments of a child that runs this instead of the probe's small model."""
    return "-c", "import os, signal, json\n" + program


def print_stage(stage: str, prefill: float, decode: float) -> str:
    line = json.dumps({"stage": stage, "prefill": prefill, "decode": decode})
    return f"print({line!r}, flush=True)\n"


DIE = "os.kill(os.getpid(), signal.{})\n"


@pytest.mark.slow
async def test_probe_of_this_machine_is_stored(cache_folder: Path) -> None:
    """Ordinary weights; and repacked ones, of which some builds die on some processors."""
    result = await cpu_probe.probe(cache_folder, TYPES)
    assert result.plain and min(result.plain.prefill, result.plain.decode) > 0
    if result.cause_of_death:
        assert result.repacked is None and result.should_repack is False
    else:
        assert result.repacked and min(result.repacked.prefill, result.repacked.decode) > 0
    assert cpu_probe.cached_result(cache_folder, TYPES) == result
    assert cpu_probe.should_repack(cache_folder, TYPES) == result.should_repack


async def test_probe_result_is_stored_for_its_types_and_processor(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cpu_probe.should_repack(cache_folder, TYPES) is None
    faster = child(print_stage("plain", 100, 10) + print_stage("repacked", 150, 11))
    await cpu_probe.probe(cache_folder, TYPES, arguments=faster)
    assert cpu_probe.should_repack(cache_folder, TYPES)
    assert cpu_probe.should_repack(cache_folder, reversed(TYPES))
    assert cpu_probe.should_repack(cache_folder, (8,)) is None
    monkeypatch.setattr(cpu_probe, "processor_id", lambda: "another one")
    assert cpu_probe.should_repack(cache_folder, TYPES) is None, (
        "the cache came from another machine"
    )


@pytest.mark.parametrize(
    ("repacked", "verdict"),
    [((150, 10), True), ((100, 10), None), ((150, 5), None), ((101, 10.1), None)],
)
def test_should_repack_needs_a_clear_gain(
    repacked: tuple[float, float], verdict: bool | None
) -> None:
    """An unclear result decides nothing: the machine may have been busy."""
    assert ProbeResult(Speed(100, 10), Speed(*repacked)).should_repack is verdict


@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV"])
async def test_probe_repacked_weights_kill_is_stored(cache_folder: Path, name: str) -> None:
    dies = child(print_stage("plain", 100, 10) + DIE.format(name))
    result = await cpu_probe.probe(cache_folder, TYPES, arguments=dies)
    assert result.plain and result.repacked is None
    assert result.cause_of_death and result.should_repack is False
    assert cpu_probe.cached_result(cache_folder, TYPES) == result


async def test_probe_child_hangs_is_killed(cache_folder: Path) -> None:
    hangs = child("signal.pause()")
    result = await cpu_probe.probe(cache_folder, TYPES, arguments=hangs, timeout=0.2)
    assert result.plain is None and "Killed" in result.cause_of_death


@pytest.mark.parametrize("content", ["", "[", "[]", '{"x": 1}'])
def test_cached_result_broken_file_is_none(cache_folder: Path, content: str) -> None:
    cache_folder.mkdir()
    (cache_folder / "probe.json").write_text(content)
    assert cpu_probe.cached_result(cache_folder, TYPES) is None


# --- after a crash ---


def leave_marker(cache_folder: Path, *, repacked: bool = False) -> Path:
    """Write the marker of a process that died while it loaded."""
    with cpu_probe.crash_marker(cache_folder, TYPES, repacked):
        (marker,) = cache_folder.glob("loading-*.json")
        content = marker.read_text()
    assert not list(cache_folder.glob("loading-*.json")), "a load that ends leaves none"
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    marker = cache_folder / f"loading-{int(dead.stdout)}.json"
    marker.write_text(content)
    return marker


async def test_recover_build_for_another_processor_raises(cache_folder: Path) -> None:
    marker = leave_marker(cache_folder)
    dies = child(DIE.format("SIGILL"))
    with pytest.raises(
        EngineError, match=r"crashes on this processor \(Illegal instruction\).*pip"
    ):
        await cpu_probe.recover_from_crash(cache_folder, arguments=dies)
    assert marker.exists(), "the next start says it again"
    works = child(print_stage("plain", 100, 10) + print_stage("repacked", 150, 15))
    await cpu_probe.recover_from_crash(cache_folder, arguments=works)
    assert not marker.exists() and cpu_probe.should_repack(cache_folder, TYPES)


async def test_recover_two_crashes_in_a_row_stops_repacking(cache_folder: Path) -> None:
    """One crash may have any cause: a kill, a full memory."""
    works = child(print_stage("plain", 100, 10) + print_stage("repacked", 150, 15))
    leave_marker(cache_folder, repacked=True)
    await cpu_probe.recover_from_crash(cache_folder, arguments=works)
    assert cpu_probe.should_repack(cache_folder, TYPES) is True
    with cpu_probe.crash_marker(cache_folder, TYPES, True):
        pass  # that load succeeded
    leave_marker(cache_folder, repacked=True)
    await cpu_probe.recover_from_crash(cache_folder, arguments=works)
    assert cpu_probe.should_repack(cache_folder, TYPES) is True
    marker = cache_folder / "loading-1000000000.json"
    marker.write_text(json.dumps({"types": TYPES, "repacked": True}))
    await cpu_probe.recover_from_crash(cache_folder, arguments=works)
    assert cpu_probe.should_repack(cache_folder, TYPES) is False


async def test_recover_load_still_running_probes_nothing(cache_folder: Path) -> None:
    dies = child(DIE.format("SIGILL"))
    with cpu_probe.crash_marker(cache_folder, TYPES, False):
        (marker,) = cache_folder.glob("loading-*.json")
        marker.rename(marker.with_name(f"loading-{os.getppid()}.json"))
        await cpu_probe.recover_from_crash(cache_folder, arguments=dies)
    assert len(list(cache_folder.iterdir())) == 1, "nothing was probed"


async def test_recover_cache_that_cannot_be_read_probes_nothing(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_marker(cache_folder, repacked=False)

    def fail(path: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr("os.scandir", fail)
    await cpu_probe.recover_from_crash(cache_folder, arguments=child(DIE.format("SIGILL")))
    monkeypatch.undo()
    assert cpu_probe.cached_result(cache_folder, TYPES) is None
