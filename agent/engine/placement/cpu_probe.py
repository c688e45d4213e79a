"""Finds out whether llama.cpp runs on this processor, and whether repacked weights are faster, in a
child process (`cpu_probe_child`), as that may be killed. The result is stored for this build of
llama.cpp, this processor and the model's weight types.

While a model is loaded there is a file ``loading-PID.json`` in the cache folder. Where llama.cpp kills
the process it stays, and the next one probes the processor before it loads anything."""

import asyncio
import hashlib
import json
import logging
import os
import platform
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from agent.engine.placement.hardware import compile_command
from agent.engine.protocol import EngineError
from agent.util import private_files
from agent.util.programs import module_arguments

log = logging.getLogger(__name__)

MIN_SPEEDUP = 1.05
"""Factor by which repacked weights must be faster to be worth their memory and longer load."""
PROBE_TIMEOUT_SECONDS = 60.0
COMMON_WEIGHT_TYPES = (8, 39)
"""ggml types that are probed where nothing is known of a model: Q8_0, MXFP4."""
_RESULTS_FILE = "probe.json"
_LAST_CRASH = "died-before.json"
"""The marker of the last crash; it stays until a load succeeds."""

CHILD_ARGUMENTS = module_arguments("agent.engine.placement.cpu_probe_child")
"""Arguments of the Python interpreter that run the child; the weight types follow."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of the prompt and of the output."""

    prefill: float
    decode: float


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


_RESULTS = TypeAdapter(dict[str, ProbeResult])


def should_repack(cache_folder: Path, types: Iterable[int]) -> bool | None:
    """Say whether to repack weights of these ggml types; None: unknown. Reads one small file."""
    result = cached_result(cache_folder, types)
    return result.should_repack if result else None


def cached_result(cache_folder: Path, types: Iterable[int]) -> ProbeResult | None:
    return _read_results(cache_folder).get(_cache_key(types))


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


def _parse_result(out: bytes, code: int) -> ProbeResult:
    speeds = {}
    for line in out.splitlines():
        with suppress(ValueError, LookupError, TypeError):  # it died while it wrote
            stage = json.loads(line)
            speeds[stage["stage"]] = Speed(stage["prefill"], stage["decode"])
    cause = ""
    if code:
        cause = signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"
    return ProbeResult(speeds.get("plain"), speeds.get("repacked"), cause)


def _read_results(cache_folder: Path) -> dict[str, ProbeResult]:
    try:
        return _RESULTS.validate_json((cache_folder / _RESULTS_FILE).read_bytes())
    except (OSError, ValueError):
        return {}


def store_result(cache_folder: Path, types: Iterable[int], result: ProbeResult) -> None:
    """Store a result for `cached_result`; nothing happens where the cache cannot be written."""
    results = _read_results(cache_folder) | {_cache_key(types): result}
    with suppress(OSError):  # the next start probes again
        private_files.make_folder(cache_folder)
        text = _RESULTS.dump_json(results, indent=1).decode()
        private_files.write_text(cache_folder / _RESULTS_FILE, text)


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


# --- after a crash ---


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
    cache_folder: Path, *, arguments: Sequence[str] = CHILD_ARGUMENTS
) -> None:
    """Probe what of llama.cpp works here if an earlier process died while it loaded; two crashes in a
    row with repacked weights forbid these. Raises EngineError if it always crashes."""
    markers: list[Path] = []
    with suppress(OSError):  # a disk that fails says nothing of a crash
        markers.extend(cache_folder.glob("loading-*.json"))
    for marker in markers:
        if _is_running(marker):
            continue
        types, repacked = _read_marker(marker)
        log.warning("a process died while it loaded a model (repacked weights: %s)", repacked)
        try:
            result = await probe(cache_folder, types, arguments=arguments)
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
            cause = result.cause_of_death or "a load with repacked weights"
            result = replace(result, repacked=None, cause_of_death=cause)
            store_result(cache_folder, types, result)
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
        return list(COMMON_WEIGHT_TYPES), False
