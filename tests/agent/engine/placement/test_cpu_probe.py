"""What llama.cpp can do on this machine: tried in a child, and remembered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.config.settings import Places
from agent.engine.placement import cpu_probe, crash_marker
from agent.engine.placement.cpu_probe import Result
from agent.engine.placement.cpu_probe_child import Speed
from agent.engine.protocol import EngineError

TYPES = (8, 39)


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return Places(tmp_path / "config", tmp_path / "cache", tmp_path / "state")


def child(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let the probe run this instead of its little model."""
    monkeypatch.setattr(cpu_probe, "_CHILD", ("-c", "import os, signal, json\n" + program))


def line(stage: str, prefill: float, decode: float) -> str:
    told = json.dumps({"stage": stage, "prefill": prefill, "decode": decode})
    return f"print({told!r}, flush=True)\n"


DIES = "os.kill(os.getpid(), signal.{})\n"


@pytest.mark.slow
async def test_what_this_machine_runs_is_found_and_remembered(where: Places) -> None:
    """Ordinary weights; and repacked ones, of which some builds die on some processors."""
    found = await cpu_probe.run(where, TYPES)
    assert found.plain and min(found.plain.prefill, found.plain.decode) > 0
    if found.died:
        assert found.repacked is None and found.repack is False
    else:
        assert found.repacked and min(found.repacked.prefill, found.repacked.decode) > 0
    assert cpu_probe.recall(where, TYPES) == found
    assert cpu_probe.repack(where, TYPES) == found.repack


async def test_faster_weights_are_remembered_for_their_types(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cpu_probe.repack(where, TYPES) is None
    child(monkeypatch, line("plain", 100, 10) + line("repacked", 150, 11))
    await cpu_probe.run(where, TYPES)
    assert cpu_probe.repack(where, TYPES) and cpu_probe.repack(where, reversed(TYPES))
    assert cpu_probe.repack(where, (8,)) is None
    monkeypatch.setattr(cpu_probe, "_processor", lambda: "another one")
    assert cpu_probe.repack(where, TYPES) is None, "the cache came from another machine"


@pytest.mark.parametrize(
    ("repacked", "verdict"),
    [((150, 10), True), ((100, 10), None), ((150, 5), None), ((101, 10.1), None)],
)
def test_what_counts_as_faster(repacked: tuple[float, float], verdict: bool | None) -> None:
    """What is not clear decides nothing: the machine may have been busy."""
    assert Result(Speed(100, 10), Speed(*repacked)).repack is verdict


@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV"])
async def test_repacked_weights_that_kill_are_left_off(
    where: Places, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    child(monkeypatch, line("plain", 100, 10) + DIES.format(name))
    found = await cpu_probe.run(where, TYPES)
    assert found.plain and found.repacked is None and found.died and found.repack is False
    assert cpu_probe.recall(where, TYPES) == found


async def test_a_child_that_hangs_is_ended(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_probe, "SECONDS", 0.2)
    child(monkeypatch, "signal.pause()")
    found = await cpu_probe.run(where, TYPES)
    assert found.plain is None and "Killed" in found.died


@pytest.mark.parametrize("content", ["", "[", "[]", '{"x": 1}'])
def test_notes_that_are_broken_say_nothing(where: Places, content: str) -> None:
    where.cache.mkdir()
    (where.cache / "probe.json").write_text(content)
    assert cpu_probe.recall(where, TYPES) is None


# --- after a death ---


def left_behind(where: Places, *, repacked: bool = False) -> Path:
    """The note of a process that died while it loaded."""
    with crash_marker.attempt(where, TYPES, repacked):
        (note,) = where.cache.glob("loading-*.json")
        content = note.read_text()
    assert not list(where.cache.glob("loading-*.json")), "a load that ends leaves none"
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    note = where.cache / f"loading-{int(dead.stdout)}.json"
    note.write_text(content)
    return note


async def test_a_build_for_another_processor_is_one_sentence(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = left_behind(where)
    child(monkeypatch, DIES.format("SIGILL"))
    with pytest.raises(EngineError, match=r"dies on this processor \(Illegal instruction\).*pip"):
        await crash_marker.after_a_death(where)
    assert note.exists(), "the next start says it again"
    child(monkeypatch, line("plain", 100, 10) + line("repacked", 150, 15))
    await crash_marker.after_a_death(where)
    assert not note.exists() and cpu_probe.repack(where, TYPES)


async def test_after_two_deaths_in_a_row_weights_are_not_repacked(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One may be anything: a kill, a full memory."""
    child(monkeypatch, line("plain", 100, 10) + line("repacked", 150, 15))
    left_behind(where, repacked=True)
    await crash_marker.after_a_death(where)
    assert cpu_probe.repack(where, TYPES) is True
    with crash_marker.attempt(where, TYPES, True):
        pass  # that one lived
    left_behind(where, repacked=True)
    await crash_marker.after_a_death(where)
    assert cpu_probe.repack(where, TYPES) is True
    note = where.cache / "loading-1000000000.json"
    note.write_text(json.dumps({"types": TYPES, "repacked": True}))
    await crash_marker.after_a_death(where)
    assert cpu_probe.repack(where, TYPES) is False


async def test_a_load_that_is_under_way_is_no_death(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    child(monkeypatch, DIES.format("SIGILL"))
    with crash_marker.attempt(where, TYPES, False):
        (note,) = where.cache.glob("loading-*.json")
        note.rename(note.with_name(f"loading-{os.getppid()}.json"))
        await crash_marker.after_a_death(where)
    assert len(list(where.cache.iterdir())) == 1, "nothing was probed"
