"""`agent doctor`: what a turn needs, each line ok or what to do."""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.cli.machine import Check, Machine
from agent.config.settings import Places, places, settings
from agent.util.sanitize import say
from tools import private_files


def main(model: str | None = None, *, bench: bool = False) -> int:
    """Print all checks; 0 when nothing is wrong. ``model``: instead of the default one."""
    where = places()
    wrong = 0

    def models(where: Places) -> Iterator[Check]:
        yield from Machine(where, model, bench).checks()

    for group in (_python, _vocabulary, models, _hands, _files):
        for name, ok, text in _guarded(group, where):
            wrong += not ok
            say(f"{'ok   ' if ok else 'WRONG'}  {name:14} {text}")
    say("Everything is in order." if not wrong else f"{wrong} to mend.")
    return 1 if wrong else 0


def _guarded(group: Callable[[Places], Iterator[Check]], where: Places) -> Iterator[Check]:
    try:
        yield from group(where)
    except Exception as error:  # a check that breaks is a finding, not a traceback
        yield group.__name__.strip("_"), False, f"{type(error).__name__}: {error}"


def _python(where: Places) -> Iterator[Check]:
    version = platform.python_version()
    yield "python", sys.version_info >= (3, 11), f"{version} at {sys.executable}"


def _vocabulary(where: Places) -> Iterator[Check]:
    from agent.formats.harmony import encoding as vocabulary
    from agent.tiny.vocabulary import ranks

    encoding = vocabulary.encoding(ranks, where.cache / "vocabulary")
    yield "vocabulary", True, f"o200k_harmony, {len(encoding.special_tokens_set)} special tokens"


def _hands(where: Places) -> Iterator[Check]:
    from tools.sandbox.isolation import isolation

    active = isolation()
    yield "python tool", active.ok, f"isolation {active.name}: {active.detail}"
    yield "files tool", True, f"root {Path.cwd()}"
    yield "shell tool", active.ok, "when it is named: --tools all,shell" if active.ok else "none"
    said = settings(where).browser
    where_to = said and (private_files.address(said.searxng) if said.searxng else said.search)
    yield (
        "browser tool",
        True,
        f"searches {where_to}" if where_to else "when it is named, no search",
    )


def _files(where: Places) -> Iterator[Check]:
    for name, folder in (("cache", where.cache), ("state", where.state)):
        try:
            private_files.folder(folder)
            with tempfile.TemporaryFile(dir=folder):
                pass
            yield name, True, str(folder)
        except OSError as error:
            yield name, False, f"{folder} cannot be written ({error.strerror}); set AGENT_HOME"
    servers = where.servers
    yield "mcp.json", True, str(servers) if servers.exists() else f"none of your own ({servers})"
    yield "approvals", True, f"{where.approvals}; every decision: {where.calls}"
    for name in ("config.toml", "models.toml"):
        path = where.config / name
        yield name, True, str(path) if path.exists() else f"none of your own ({path})"
    yield "log file", True, str(where.log)
