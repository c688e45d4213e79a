"""The hosts from which ``npx``, ``uvx`` and the like get packages, as npm and pip name them."""

from __future__ import annotations

import contextlib
import ensurepip
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from agent.util.programs import require_program
from tools.config.servers import NODE_RUNNERS
from tools.sandbox import isolation

NPM_SECONDS = 20.0
"""Timeout of the command that asks npm for its registry."""


def package_hosts(command: str) -> tuple[str, ...]:
    """Return the hosts from which ``command`` gets the package that it runs; blocks. Neither settings
    of the person nor of a folder count, for the sandbox does not see them. Raises OSError if the hosts
    are not known."""
    return _node_hosts() if PurePath(command).name in NODE_RUNNERS else _python_hosts()


def _node_hosts() -> tuple[str, ...]:
    npm = require_program("npm")
    with tempfile.TemporaryDirectory() as folder:
        variables = isolation.environment(Path(folder), programs=True)
        variables["PATH"] = f"{Path(npm).parent}:{variables['PATH']}"  # node is next to it
        try:
            done = subprocess.run(
                [npm, "config", "get", "registry"],
                cwd=folder, env=variables, capture_output=True, text=True, timeout=NPM_SECONDS,
                stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise OSError(0, "npm does not say where packages come from") from None
    url = urlsplit(done.stdout.strip())
    if not url.hostname:
        raise OSError(0, "npm does not say where packages come from")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return (host if url.port is None else f"{host}:{url.port}",)


def _python_hosts() -> tuple[str, ...]:
    """Return the index hosts of the installed pip, or of the one that Python brings along."""
    bundled = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    for place in ("", *map(str, bundled)):
        sys.path.append(place)
        try:
            with contextlib.suppress(ImportError):
                index = import_module("pip._internal.models.index").PyPI
                return index.netloc, index.file_storage_domain
        finally:
            sys.path.pop()
    raise OSError(0, "pip does not say where packages come from")
