"""The entry point: ``agent``, and ``python -m agent``. With simple options the app starts without typer
and the commands' parser, which take 0.3 s before the first paint."""

import signal

from agent.util.process import exit_at_once_on

# Imports can take a while, and Python would print a traceback. The command takes over (`run_guarded`).
exit_at_once_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

import os  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

from agent.cli.process import run_app, run_guarded  # noqa: E402
from agent.util import gc_tuning  # noqa: E402

TEXT_OPTIONS = ("--model", "--tools", "--approve", "--system")
"""Options of the app whose value is taken as it is written."""


def main() -> None:
    """Run the command in ``sys.argv``; always ends the process with an exit code."""
    _leave_checkout()
    gc_tuning.defer()
    asks_completion = "_AGENT_COMPLETE" in os.environ  # the shell asks without arguments
    app_options = None if asks_completion else _simple_app_options(sys.argv[1:])
    run_guarded(_run_command if app_options is None else lambda: _run_app(**app_options))


def _leave_checkout() -> None:
    """Take the folder of a checkout off the import path, where an editable install puts it: it has no
    other packages than the program's, and anyone who can write there could shadow modules."""
    import tools  # noqa: F401 - found while the folder is on the path
    import tui  # noqa: F401

    checkout = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120
    if os.path.exists(f"{checkout}/pyproject.toml"):  # noqa: PTH110 - pathlib costs milliseconds
        left_out = (checkout, f"{checkout}/packaging/wheel")
        sys.path[:] = [path for path in sys.path if os.path.realpath(path) not in left_out]


def _simple_app_options(arguments: list[str]) -> dict[str, Any] | None:
    """The options of `_run_app`, as the full parser would read them; None: it has to read these."""
    options: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-c", "--continue"):
            options["continue_latest"] = True
        elif argument in TEXT_OPTIONS and (text := next(rest, "")) and not text.startswith("-"):
            options[argument[2:]] = text
        else:
            return None
    return options


def _run_command() -> None:
    from agent.cli.main import main  # typer and every option; see above

    main()


def _run_app(*, continue_latest: bool = False, **launch: Any) -> None:
    from agent.cli.trust import confirm_folder
    from agent.config.launch import LaunchOptions

    launch_options = confirm_folder(LaunchOptions(**launch))
    sys.exit(run_app(launch_options, continue_latest=continue_latest))


if __name__ == "__main__":
    main()
