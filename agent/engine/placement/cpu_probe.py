"""Whether llama.cpp runs on this processor at all, and whether repacked weights are faster: tried in
a child process (`trial`), because what is wrong ends it; remembered for this build and machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import signal
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agent.config.settings import Places
from agent.engine.placement.cpu_probe_child import Speed
from tools import private_files

GAIN = 1.05
"""So much faster must repacked weights be to be worth their memory and their longer load."""
SECONDS = 60.0
"""After which a child counts as dead."""

_CHILD = ("-m", "agent.engine.placement.cpu_probe_child")


@dataclass(frozen=True, slots=True)
class Result:
    """What the child found."""

    plain: Speed | None
    """None: llama.cpp died on ordinary weights."""
    repacked: Speed | None
    """None: it died on repacked ones, or they were wrong."""
    died: str = ""
    """How it died."""

    @property
    def repack(self) -> bool | None:
        """Whether to repack weights; None: it works, but gained too little to say."""
        if self.plain is None or self.repacked is None:
            return False
        gains = self.repacked.prefill / self.plain.prefill, self.repacked.decode / self.plain.decode
        return True if max(gains) >= GAIN and min(gains) >= 1 / GAIN else None


def repack(where: Places, types: Iterable[int]) -> bool | None:
    """Whether to repack weights of these types, as far as is known; costs one small file's read."""
    found = recall(where, types)
    return found.repack if found else None


def recall(where: Places, types: Iterable[int]) -> Result | None:
    """What an earlier probe found of weights of these types; None when there was none."""
    try:
        noted = json.loads(_notes(where).read_text(encoding="utf-8"))[_key(types)]
        plain, repacked = noted["plain"], noted["repacked"]
        return Result(
            Speed(**plain) if plain else None,
            Speed(**repacked) if repacked else None,
            noted["died"],
        )
    except (OSError, ValueError, LookupError, TypeError):
        return None


async def run(where: Places, types: Iterable[int]) -> Result:
    """Probe weights of these types in a child and remember what came of it."""
    types = sorted(types)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, *_CHILD, *map(str, types)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(),
    )
    try:
        out, _ = await asyncio.wait_for(child.communicate(), SECONDS)
    except TimeoutError:
        out = b""
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    result = _result(out, child.returncode or 0)
    _remember(where, types, result)
    return result


def avoid(where: Places, types: Iterable[int], result: Result) -> None:
    """Remember that a process died with repacked weights of these types, whatever the probe said."""
    died = result.died or "a load with repacked weights"
    _remember(where, types, replace(result, repacked=None, died=died))


def _environment() -> dict[str, str]:
    return {**os.environ, "GGML_NO_BACKTRACE": "1", "PYTHONSAFEPATH": "1"}


def _result(out: bytes, code: int) -> Result:
    """From the lines of a child and how it ended."""
    lines: list[dict[str, Any]] = []
    for line in out.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break  # it died while it wrote
    stages = {line["stage"]: line for line in lines if isinstance(line, dict) and "stage" in line}
    speeds = {name: Speed(s["prefill"], s["decode"]) for name, s in stages.items()}
    died = ""
    if code:
        died = signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"
    return Result(speeds.get("plain"), speeds.get("repacked"), died)


def _remember(where: Places, types: Iterable[int], result: Result) -> None:
    path = _notes(where)
    try:
        notes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError):
        notes = {}
    try:
        private_files.folder(path.parent)
        notes[_key(types)] = asdict(result)
        path.write_text(json.dumps(notes, indent=1), encoding="utf-8")
    except OSError:
        return  # it is found out again next time


def _notes(where: Places) -> Path:
    return where.cache / "probe.json"


def _key(types: Iterable[int]) -> str:
    """This build of llama.cpp, this processor, these types of weights."""
    import llama_cpp

    library = Path(llama_cpp.__file__).parent / "lib"
    build = sorted((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in library.iterdir())
    about = json.dumps([build, _processor(), sorted(types)])
    return hashlib.sha256(about.encode()).hexdigest()[:16]


def _processor() -> str:
    """Name and abilities of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    names = ("model name", "flags", "Features")
    return " ".join(sorted({line for line in lines if line.startswith(names)}))
