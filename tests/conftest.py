"""Loads the fixtures of ``tests/support`` for every test."""

from __future__ import annotations

import os
import signal

# Started in the background of a script, pytest ignores Ctrl-C, and every program that it starts would.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where processes share the cores, llama.cpp's threads that spin for each other keep all waiting.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Programs are started with their byte code, as people start them; compiling takes a third of a start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

collect_ignore = ["clients"]  # they run in an environment of their own: make test-clients
pytest_plugins = [
    "tests.support.program",
    "tests.support.runtimes",
    "tests.support.turns",
    "tests.support.engines",
    "tests.support.endpoint",
    "tests.support.hosts",
    "tests.support.commands",
    "tests.support.model_hub",
    "tests.support.oauth",
]
