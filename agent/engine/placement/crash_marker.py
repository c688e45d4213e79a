"""A note that a load is under way: found again after the process died of it, it tells the next one."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agent.config.settings import Places
from agent.engine.placement import cpu_probe
from agent.engine.protocol import EngineError
from tools import private_files

log = logging.getLogger(__name__)

_BEFORE = "died-before.json"
"""Stands beside the notes from a death until a load is lived through."""
COMMON = (8, 39)
"""Types of weights that are probed where nothing is known of a model: Q8_0, MXFP4."""
REBUILD = (
    'CMAKE_ARGS="-DGGML_NATIVE=ON" pip install --force-reinstall --no-cache-dir llama-cpp-python'
)


@contextmanager
def attempt(where: Places, types: Iterable[int], repacked: bool) -> Iterator[None]:
    """Leaves a note while the body runs; it stays when the process dies in there."""
    note = where.cache / f"loading-{os.getpid()}.json"
    with suppress(OSError):
        private_files.folder(note.parent)
        note.write_text(json.dumps({"types": sorted(types), "repacked": repacked}))
    try:
        yield
    finally:
        with suppress(OSError):
            note.unlink()
            (where.cache / _BEFORE).unlink(missing_ok=True)


async def after_a_death(where: Places) -> None:
    """Where an earlier process died while it loaded: find out what of llama.cpp works here.

    Costs nothing otherwise. Raises EngineError when llama.cpp dies on this processor whatever is done.
    """
    for note in where.cache.glob("loading-*.json"):
        if _lives(note):
            continue
        types, repacked = _read(note)
        log.warning("a process died while it loaded a model (repacked weights: %s)", repacked)
        try:
            result = await cpu_probe.run(where, types or COMMON)
        except OSError:
            log.exception("the probe failed")
            return
        if result.plain is None:
            raise EngineError(
                f"llama.cpp dies on this processor ({result.died}): it was built for another one;"
                f" install it again with: {REBUILD}"
            )
        before = where.cache / _BEFORE
        if repacked and before.exists():  # twice is no accident, whatever the probe says
            cpu_probe.avoid(where, types, result)
        with suppress(OSError):
            note.replace(before)


def _lives(note: Path) -> bool:
    import psutil

    number = note.stem.removeprefix("loading-")
    if not number.isdigit() or int(number) == os.getpid():
        return False
    try:
        started = psutil.Process(int(number)).create_time()
        return started <= note.stat().st_mtime  # or the number was given to another process since
    except (psutil.Error, OSError):
        return False


def _read(note: Path) -> tuple[list[int], bool]:
    try:
        found = json.loads(note.read_text())
        return [int(kind) for kind in found["types"]], bool(found["repacked"])
    except (OSError, ValueError, LookupError, TypeError):
        return [], False
