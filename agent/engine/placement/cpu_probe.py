"""Finds out whether llama.cpp runs on this processor, and whether repacked weights are faster, in a
child process (`cpu_probe_child`), as that may be killed. The result is stored for this build of
llama.cpp, this processor and the model's weight types."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agent.engine.placement.cpu_probe_child import Speed
from agent.util import private_files
from agent.util.own_modules import module_arguments

MIN_SPEEDUP = 1.05
"""Factor by which repacked weights must be faster to be worth their memory and longer load."""
PROBE_TIMEOUT_SECONDS = 60.0

CHILD_ARGUMENTS = module_arguments("agent.engine.placement.cpu_probe_child")
"""Arguments of the Python interpreter that run the child; the weight types follow."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Measurements of the child before it ended."""

    plain: Speed | None
    """None: llama.cpp died on ordinary weights."""
    repacked: Speed | None
    """None: it died on repacked ones, or their results were wrong."""
    cause_of_death: str = ""
    """A signal's name or an exit code; empty if the child ended normally."""

    @property
    def should_repack(self) -> bool | None:
        """Whether to repack weights; None: it works, but gains too little to decide."""
        if self.plain is None or self.repacked is None:
            return False
        gains = self.repacked.prefill / self.plain.prefill, self.repacked.decode / self.plain.decode
        return True if max(gains) >= MIN_SPEEDUP and min(gains) >= 1 / MIN_SPEEDUP else None


def should_repack(cache_folder: Path, types: Iterable[int]) -> bool | None:
    """Say whether to repack weights of these ggml types; None: unknown. Reads one small file."""
    result = cached_result(cache_folder, types)
    return result.should_repack if result else None


def cached_result(cache_folder: Path, types: Iterable[int]) -> ProbeResult | None:
    try:
        stored = json.loads((cache_folder / "probe.json").read_text(encoding="utf-8"))
        entry = stored[_cache_key(types)]
        plain, repacked = entry["plain"], entry["repacked"]
        return ProbeResult(
            Speed(**plain) if plain else None,
            Speed(**repacked) if repacked else None,
            entry["died"],
        )
    except (OSError, ValueError, LookupError, TypeError):
        return None


async def probe(
    cache_folder: Path,
    types: Iterable[int],
    *,
    arguments: Sequence[str] = CHILD_ARGUMENTS,
    timeout: float = PROBE_TIMEOUT_SECONDS,
) -> ProbeResult:
    """Probe weights of these types in a child and store the result; ``timeout``: seconds."""
    types = sorted(types)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments, *map(str, types)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "GGML_NO_BACKTRACE": "1", "PYTHONSAFEPATH": "1"},
    )
    try:
        out, _ = await asyncio.wait_for(child.communicate(), timeout)
    except TimeoutError:
        out = b""
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    result = _parse_result(out, child.returncode or 0)
    store_result(cache_folder, types, result)
    return result


def record_crash(cache_folder: Path, types: Iterable[int], result: ProbeResult) -> None:
    """Store that a process died with repacked weights of these types, whatever the probe found."""
    cause = result.cause_of_death or "a load with repacked weights"
    store_result(cache_folder, types, replace(result, repacked=None, cause_of_death=cause))


def _parse_result(out: bytes, code: int) -> ProbeResult:
    lines: list[dict[str, Any]] = []
    for line in out.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break  # it died while it wrote
    stages = {line["stage"]: line for line in lines if isinstance(line, dict) and "stage" in line}
    speeds = {name: Speed(s["prefill"], s["decode"]) for name, s in stages.items()}
    cause = ""
    if code:
        cause = signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"
    return ProbeResult(speeds.get("plain"), speeds.get("repacked"), cause)


def store_result(cache_folder: Path, types: Iterable[int], result: ProbeResult) -> None:
    """Store a result for `cached_result`; nothing happens where the cache cannot be written."""
    path = cache_folder / "probe.json"
    try:
        entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError):
        entries = {}
    fields = asdict(result)
    fields["died"] = fields.pop("cause_of_death")  # the file's name for it
    try:
        private_files.make_folder(path.parent)
        entries[_cache_key(types)] = fields
        private_files.write_text(path, json.dumps(entries, indent=1))
    except OSError:
        return  # the next start probes again


def _cache_key(types: Iterable[int]) -> str:
    import llama_cpp  # here, since it loads the native library

    library = Path(llama_cpp.__file__).parent / "lib"
    build = sorted((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in library.iterdir())
    key = json.dumps([build, processor_id(), sorted(types)])
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def processor_id() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    names = ("model name", "flags", "Features")
    return " ".join(sorted({line for line in lines if line.startswith(names)}))
