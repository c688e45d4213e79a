"""Runs the app, and says on the terminal afterwards how its conversation is resumed."""

import os
import sys
import time
from typing import Any

from agent.config.launch import LaunchOptions
from agent.util.process import EXIT_DONE
from agent.util.sanitize import echo


def run_app(launch: LaunchOptions, **options: Any) -> int:
    """Run the app with these options of `tui.session.Session` and return its exit code."""
    from tui.main import main  # no other command imports it

    began = time.time()
    code = main(launch, **options)
    if code == EXIT_DONE and sys.stderr.isatty():
        _print_resume_hint(began)
    return code


def _print_resume_hint(began: float) -> None:
    from agent.config.paths import user_paths
    from agent.store.lookup import conversation_of_process, short_id

    name = conversation_of_process(user_paths().store, os.getpid(), began)
    if name is not None:
        echo(f"Resume this conversation with: agent --resume {short_id(name)}", file=sys.stderr)
