"""`agent doctor`: what a turn needs, each line ok or what to do."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.config import Places, places

Check = tuple[str, bool, str]
"""What, whether it is all right, what was found or what to do."""


def main() -> int:
    """Print all checks; 0 when nothing is wrong."""
    where = places()
    wrong = 0
    for group in (_python, _llama, _vocabulary, _models, _hands, _files):
        for name, ok, text in _guarded(group, where):
            wrong += not ok
            print(f"{'ok   ' if ok else 'WRONG'}  {name:14} {text}", flush=True)
    print("Everything is in order." if not wrong else f"{wrong} to mend.")
    return 1 if wrong else 0


def _guarded(group: Callable[[Places], Iterator[Check]], where: Places) -> Iterator[Check]:
    try:
        yield from group(where)
    except Exception as error:  # a check that breaks is a finding, not a traceback
        yield group.__name__.strip("_"), False, f"{type(error).__name__}: {error}"


def _python(where: Places) -> Iterator[Check]:
    version = platform.python_version()
    yield "python", sys.version_info >= (3, 11), f"{version} at {sys.executable}"


def _llama(where: Places) -> Iterator[Check]:
    import llama_cpp

    version = importlib.metadata.version("llama-cpp-python")
    system = llama_cpp.llama_print_system_info().decode(errors="replace")
    gpu = "GPU offload" if llama_cpp.llama_supports_gpu_offload() else "CPU only"
    yield "llama.cpp", True, f"llama-cpp-python {version}; {gpu}; {system.strip()}"


def _vocabulary(where: Places) -> Iterator[Check]:
    from agent import vocabulary
    from agent.tiny.vocabulary import ranks

    encoding = vocabulary.encoding(ranks, where.cache / "vocabulary")
    yield "vocabulary", True, f"o200k_harmony, {len(encoding.special_tokens_set)} special tokens"


def _models(where: Places) -> Iterator[Check]:
    from agent.models import choose, known

    for model in known(where).values():
        state = "ready" if model.installed else f"not installed: agent models pull {model.name}"
        yield "model", True, f"{model.name}: {state}"
    yield "default model", True, choose(None, where).name


def _hands(where: Places) -> Iterator[Check]:
    from tools.sandbox import isolation

    active = isolation()
    yield "python tool", active.ok, f"isolation {active.name}: {active.detail}"
    yield "files tool", True, f"root {Path.cwd()}"


def _files(where: Places) -> Iterator[Check]:
    for name, folder in (("cache", where.cache), ("state", where.state)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
            yield name, True, str(folder)
        except OSError as error:
            yield name, False, f"{folder} cannot be written ({error.strerror}); set AGENT_HOME"
    servers = where.servers
    yield "mcp.json", True, str(servers) if servers.exists() else f"none of your own ({servers})"
    yield "approvals", True, f"{where.approvals}; every decision: {where.calls}"
    path = where.config / "models.toml"
    yield "models.toml", True, str(path) if path.exists() else f"none of your own ({path})"
    yield "log file", True, str(where.log)
