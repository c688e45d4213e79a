"""When Python looks for garbage."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from agent.util import gc_tuning


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()  # an app that was started by another test
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_a_start_made_is_not_looked_at_again() -> None:
    gc_tuning.starting()
    gc_tuning.started()
    frozen = gc.get_freeze_count()
    assert frozen and gc.get_threshold() == gc_tuning.RUNNING
    made = [[number] for number in range(1000)]
    gc_tuning.started()
    assert gc.get_freeze_count() < frozen + len(made), "another model that is loaded is no start"


def test_who_did_not_ask_for_it_keeps_their_settings() -> None:
    gc.set_threshold(700, 10, 10)
    gc_tuning.started()
    assert gc.get_threshold() == (700, 10, 10) and not gc.get_freeze_count()


def test_all_is_looked_through_while_nobody_types_and_enough_has_come_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full: list[int] = []
    monkeypatch.setattr(gc_tuning.gc, "collect", lambda: full.append(1))
    monkeypatch.setattr(gc_tuning.gc, "get_count", lambda: (0, 0, gc_tuning.ENOUGH))
    quiet, now = gc_tuning.Quiet(), time.monotonic()
    quiet.collect(now)
    assert not full, "a key was pressed just now"
    quiet.collect(now - 60)
    assert full
    monkeypatch.setattr(gc_tuning.gc, "get_count", lambda: (0, 0, gc_tuning.ENOUGH - 1))
    gc_tuning.Quiet().collect(now - 60)
    assert len(full) == 1


def test_an_end_does_not_wait_for_it() -> None:
    gc_tuning.ending()
    assert gc.get_freeze_count() and not gc.get_objects(generation=2)


def test_where_nobody_types_full_collections_come_by_themselves() -> None:
    gc_tuning.starting()
    gc_tuning.started(gc_tuning.UNSEEN)
    before = gc.get_stats()[2]["collections"]
    made: list[object] = []
    small, few, full = gc_tuning.UNSEEN
    while gc.get_stats()[2]["collections"] == before:
        made.append([])
        assert len(made) < 2 * small * few * full
