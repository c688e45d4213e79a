"""Finds the files that the settings of servers name: whoever writes them decides what runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.config.servers import ServerConfig


def named_files(root: Path, servers: Iterable[ServerConfig]) -> Iterator[Path]:
    """Yield the existing files below ``root`` that commands, arguments and variables of servers name
    which may be started.

    Modules of Python (``-m name``) are looked for in the folder that a server runs in; a virtual
    environment is named with its Python. What a script imports or reads is not known.
    """
    for server in servers:
        if server.problem:
            continue
        folder = root / (server.cwd or ".")
        previous = ""
        for text in (server.command, *server.args, *server.env.values()):
            words = {text, text.partition("=")[2], *text.split()}
            if previous == "-m":
                module = text.replace(".", "/")
                words |= {f"{module}.py", f"{module}/__main__.py", f"{module}/__init__.py"}
            previous = text
            for word in words - {""}:
                path = Path(os.path.abspath(folder / Path(word)))  # noqa: PTH100 - follows no links
                with contextlib.suppress(OSError, ValueError):
                    if path.is_relative_to(root) and path.is_file():
                        yield path
                        environment = path.parent.parent  # of a Python: it runs what is in there
                        if environment != root and (environment / "pyvenv.cfg").is_file():
                            yield environment
