"""Marks that a load is under way by a file ``loading-PID.json`` in the cache folder. Where llama.cpp
kills the process it stays, and the next one probes the processor before it loads anything."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from agent.engine.placement import cpu_probe
from agent.engine.placement.reinstall import compile_command
from agent.engine.protocol import EngineError
from agent.util import private_files

log = logging.getLogger(__name__)

_LAST_CRASH = "died-before.json"
"""The marker of the last crash; it stays until a load succeeds."""
COMMON_WEIGHT_TYPES = (8, 39)
"""ggml types that are probed where nothing is known of a model: Q8_0, MXFP4."""


@contextmanager
def crash_marker(cache_folder: Path, types: Iterable[int], repacked: bool) -> Iterator[None]:
    """Leave a marker while the body runs, which stays if the process dies. ``types``: ggml's."""
    marker = cache_folder / f"loading-{os.getpid()}.json"
    with suppress(OSError):
        private_files.make_folder(marker.parent)
        marker.write_text(json.dumps({"types": sorted(types), "repacked": repacked}))
    try:
        yield
    finally:
        with suppress(OSError):
            marker.unlink()
            (cache_folder / _LAST_CRASH).unlink(missing_ok=True)


async def recover_from_crash(
    cache_folder: Path, *, arguments: Sequence[str] = cpu_probe.CHILD_ARGUMENTS
) -> None:
    """Probe what of llama.cpp works here if an earlier process died while it loaded; two crashes in a
    row with repacked weights forbid these. Raises EngineError if it always crashes."""
    for marker in cache_folder.glob("loading-*.json"):
        if _is_running(marker):
            continue
        types, repacked = _read_marker(marker)
        log.warning("a process died while it loaded a model (repacked weights: %s)", repacked)
        try:
            result = await cpu_probe.probe(
                cache_folder, types or COMMON_WEIGHT_TYPES, arguments=arguments
            )
        except OSError:
            log.exception("the probe failed")
            return
        if result.plain is None:
            raise EngineError(
                f"llama.cpp crashes on this processor ({result.cause_of_death}): it was built for"
                f" another one; install it again with: {compile_command('-DGGML_NATIVE=ON')}"
            )
        last_crash = cache_folder / _LAST_CRASH
        if repacked and last_crash.exists():
            cpu_probe.record_crash(cache_folder, types, result)
        with suppress(OSError):
            marker.replace(last_crash)


def _is_running(marker: Path) -> bool:
    import psutil  # here, since most starts find no marker

    pid = marker.stem.removeprefix("loading-")
    if not pid.isdigit() or int(pid) == os.getpid():
        return False
    try:
        started = psutil.Process(int(pid)).create_time()
        return started <= marker.stat().st_mtime  # else another process has the number by now
    except (psutil.Error, OSError):
        return False


def _read_marker(marker: Path) -> tuple[list[int], bool]:
    try:
        fields = json.loads(marker.read_text())
        return [int(kind) for kind in fields["types"]], bool(fields["repacked"])
    except (OSError, ValueError, LookupError, TypeError):
        return [], False
