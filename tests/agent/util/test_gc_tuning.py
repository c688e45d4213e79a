"""When Python's garbage collector runs."""

import gc
import time
from collections.abc import Iterator

import pytest

from agent.util import gc_tuning


@pytest.fixture(autouse=True)
def restored_gc() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()  # an app that was started by another test
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_resume_freezes_objects_of_start_once() -> None:
    gc_tuning.defer()
    gc_tuning.resume()
    frozen = gc.get_freeze_count()
    assert frozen and gc.get_threshold() == gc_tuning.INTERACTIVE_THRESHOLDS
    made = [[number] for number in range(1000)]
    gc_tuning.resume()
    assert gc.get_freeze_count() < frozen + len(made), "a second model that is loaded is no start"


def test_resume_without_defer_keeps_thresholds() -> None:
    gc.set_threshold(700, 10, 10)
    gc_tuning.resume()
    assert gc.get_threshold() == (700, 10, 10) and not gc.get_freeze_count()


def test_idle_collector_waits_for_pause_and_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    full: list[int] = []
    enough = gc_tuning.MIN_YOUNG_COLLECTIONS
    monkeypatch.setattr(gc_tuning.gc, "collect", lambda: full.append(1))
    monkeypatch.setattr(gc_tuning.gc, "get_count", lambda: (0, 0, enough))
    collector, now = gc_tuning.IdleCollector(), time.monotonic()
    collector.collect(now)
    assert not full, "a key was pressed just now"
    collector.collect(now - 60)
    assert full
    monkeypatch.setattr(gc_tuning.gc, "get_count", lambda: (0, 0, enough - 1))
    gc_tuning.IdleCollector().collect(now - 60)
    assert len(full) == 1


def test_disable_leaves_nothing_to_collect() -> None:
    gc_tuning.disable()
    assert gc.get_freeze_count() and not gc.get_objects(generation=2)


def test_headless_thresholds_make_full_collections() -> None:
    gc.freeze()
    gc.collect()  # Python makes a full collection only where a quarter of the old objects is new
    gc_tuning.defer()
    gc_tuning.resume(gc_tuning.HEADLESS_THRESHOLDS)
    before = gc.get_stats()[2]["collections"]
    made: list[object] = []
    small, few, full = gc_tuning.HEADLESS_THRESHOLDS
    while gc.get_stats()[2]["collections"] == before:
        made.append([])
        assert len(made) < 2 * small * few * full
