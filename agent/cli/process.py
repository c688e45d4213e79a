"""Runs a command, or the app, as a process: a failure becomes a sentence on stderr and an exit code."""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TextIO

from agent.config.launch import LaunchOptions
from agent.errors import UserError, system_refusal
from agent.util import process
from agent.util.sanitize import echo
from agent.util.user_files import provide_home

PLAIN_TERMINALS = ("dumb", "unknown")
"""Values of TERM that say that the terminal cannot move the cursor."""
MIN_FILES = 24
"""Open files without which nothing here runs; a turn has some 20."""


def run_guarded(command: Callable[[], object]) -> None:
    """Run a command. An exception, SIGTERM or SIGHUP ends the process with a sentence and an exit code
    of `agent.util.process`; SystemExit passes."""
    _open_missing_streams()
    provide_home()
    try:
        process.raise_at_interrupt()
        process.exit_at_once_on(signal.SIGTERM, signal.SIGHUP)
        _require_files()
        command()
    except KeyboardInterrupt:
        sys.exit(process.EXIT_CANCELLED)
    except BrokenPipeError:
        # The reader of our output is gone; nothing more can be reported to it.
        sys.stderr.close()
        sys.exit(process.EXIT_BROKEN_PIPE)
    except Exception as error:
        if isinstance(error, OSError) and process.is_terminal_gone():
            sys.exit(process.EXIT_HANGUP)
        sentence, code = _explain(error)
        echo(f"agent: {sentence}", file=sys.stderr)
        sys.exit(code)
    finally:
        process.exit_on_signals()
        if process.is_terminal_gone():  # else Python complains that it cannot flush them
            sys.stdout = sys.stderr = _null_device("w")


def require_app_terminal(instead: str) -> None:
    """Raise UserError where the terminal says that it cannot show the app; ``instead``: what can."""
    if (name := os.environ.get("TERM")) in PLAIN_TERMINALS:
        raise UserError(
            f"The app needs a terminal that can move the cursor, and TERM is {name}; {instead}."
        )


def run_app(launch: LaunchOptions, *, plain: bool = False, **options: Any) -> int:
    """Run the app with these options of `tui.session.Session` and return its exit code. ``plain``, or a
    terminal that cannot show it: `agent.cli.plain_chat`."""
    if plain or os.environ.get("TERM") in PLAIN_TERMINALS:
        from agent.cli.plain_chat import main as chat

        return chat(launch, **options)
    from tui.main import main  # no other command imports it

    began = time.time()
    code = main(launch, **options)
    if code == process.EXIT_DONE and sys.stderr.isatty():
        _print_resume_hint(began)
    return code


def _print_resume_hint(began: float) -> None:
    from agent.config.paths import user_paths
    from agent.store.lookup import conversation_of_process, short_id

    name = conversation_of_process(user_paths().store, os.getpid(), began)
    if name is not None:
        echo(f"Resume this conversation with: agent --resume {short_id(name)}", file=sys.stderr)


def _require_files() -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < MIN_FILES:
        raise UserError(
            f"This program needs {MIN_FILES} open files, and may have {files}: raise ulimit -n."
        )


def _open_missing_streams() -> None:
    """Open /dev/null for closed standard streams, or the next open file would get their number."""
    sys.stdin = sys.stdin or _null_device("r")
    sys.stdout = sys.stdout or _null_device("w")
    sys.stderr = sys.stderr or _null_device("w")


def _null_device(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def _has_folder() -> bool:
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


def _explain(error: Exception) -> tuple[str, int]:
    # Imported only now: a start that succeeds needs none of it.
    import logging
    import sqlite3

    from agent.config.paths import user_paths
    from agent.engine.protocol import EngineError
    from tools.config.servers import ConfigError

    match error:
        case UserError():
            return str(error), process.EXIT_USAGE
        case ConfigError():
            return f"{error}.", process.EXIT_USAGE
        case EngineError():
            return str(error), process.EXIT_FAILED
        case FileNotFoundError() if not _has_folder():
            sentence = "the working folder does not exist any more: go to another one."
            return sentence, process.EXIT_USAGE
        case UnicodeEncodeError():
            return f"{error.object!r} is not text in UTF-8.", process.EXIT_USAGE
        case _ if refusal := system_refusal(error):
            logging.getLogger(__name__).info("the system refused", exc_info=error)
            return refusal, process.EXIT_FAILED
        case sqlite3.Error():
            from agent.store.damage import explain

            return explain(user_paths().store, error), process.EXIT_FAILED
        case _:
            from agent.observability.logging import log_to_file

            paths = user_paths()
            if not logging.getLogger().handlers:
                log_to_file(paths)
            logging.getLogger(__name__).exception("the program broke")
            text = f"something went wrong inside this program; {paths.log_file} has the details."
            return text, process.EXIT_FAILED
