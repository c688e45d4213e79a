"""The entry point. The app with simple options starts without what reads all of them: its first paint
is what people wait for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TextIO

from agent.turn.endings import EXIT_UNREAD, leaving
from agent.util import gc_tuning
from agent.util.sanitize import say

TEXTS = ("--model", "--tools", "--approve", "--system")
"""Options whose texts are taken as they are."""


def main() -> None:
    gc_tuning.starting()
    simple = _simple(sys.argv[1:])
    told(_command if simple is None else lambda: _app(**simple))


def _simple(arguments: list[str]) -> dict[str, Any] | None:
    """What is asked of the app, where it is no more than texts; None: something else."""
    given: dict[str, Any] = {}
    rest = iter(arguments)
    for option in rest:
        if option in ("-c", "--continue"):
            given["go_on"] = True
        elif option in TEXTS and (text := next(rest, "")) and not text.startswith("-"):
            given[option[2:]] = text
        else:
            return None
    return given


def _command() -> None:
    from agent.cli import main as cli

    cli.main()


def _app(*, go_on: bool = False, **texts: Any) -> None:
    from agent.cli import trust
    from agent.cli.shared import Shared

    shared = trust.asked(Shared(**texts))
    from tui.main import main

    sys.exit(main(shared, go_on=go_on))


def told(run: Callable[[], object]) -> None:
    """Run the program: everything that people did wrong is one sentence, with an exit code."""
    _have_streams()
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output is gone; nothing more can be said to them.
        sys.stderr.close()
        sys.exit(EXIT_UNREAD)
    except Exception as error:
        sentence, code = _told(error)
        say(f"agent: {sentence}", file=sys.stderr)
        sys.exit(code)
    finally:
        leaving()


def _have_streams() -> None:
    """What whoever started us has closed is empty, and leads nowhere: nobody's file gets its number."""
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = sys.stdout or _nothing("w")
    sys.stderr = sys.stderr or _nothing("w")


def _nothing(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def _told(error: Exception) -> tuple[str, int]:
    from agent.engine.protocol import EngineError
    from agent.errors import UserError

    match error:
        case UserError():
            return str(error), 2
        case EngineError():
            return str(error), 1
        case _:
            import logging

            from agent.config.settings import places
            from agent.observability import logging as logs

            if not logging.getLogger().handlers:
                logs.to_file(places())
            logging.getLogger(__name__).exception("the program broke")
            return f"something went wrong inside this program; {places().log} has the details.", 1


if __name__ == "__main__":
    main()
