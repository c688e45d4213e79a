"""Starting and ending the app: the terminal is ours in between, and given back on every way out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING

from agent.util import gc_tuning
from agent.util.sanitize import say
from tui.app import AgentApp
from tui.session import Serving, Session
from tui.terminal import bracketed_paste, screen

if TYPE_CHECKING:
    from agent.cli.shared import Shared
    from agent.config.settings import Places, Settings

log = logging.getLogger(__name__)


def main(
    shared: Shared,
    *,
    go_on: bool = False,
    resume: str | None = None,
    serving: Serving | None = None,
    replay: float | None = None,
) -> int:
    """Run the app; the exit code. ``serving``: the HTTP face beside it, in the same loop."""
    from agent.config.settings import keep, places

    gc_tuning.starting()
    # No thread that renders or loads keeps the screen waiting for 5 ms at a time.
    sys.setswitchinterval(0.001)
    where = places()
    looks = _looks(where)
    trouble: str | None
    try:
        bracketed_paste.guard()
        with screen.kept(where.log) as guard:
            session = Session(shared, go_on=go_on, resume=resume, serving=serving, replay=replay)
            app = AgentApp(
                session,
                history=where.state / "prompts.jsonl",
                theme=looks.theme,
                keep_theme=lambda name: keep(where, "theme", name),
                painted=guard,
            )
            if not looks.animations:
                app.animation_level, app.prompt.cursor_blink = "none", False
            code = asyncio.run(_run(app))
            trouble = f"{app.trouble} ({where.log})." if code == 1 else app.trouble
            gc_tuning.ending()
    except screen.NoTerminal as error:
        trouble, code = str(error), 2
    if trouble:
        say(f"agent: {trouble}", file=sys.stderr)
    return code


def _looks(where: Places) -> Settings:
    """What config.toml says of them; the session tells what is wrong with it."""
    from agent.config.settings import Settings, settings
    from agent.errors import UserError

    with contextlib.suppress(UserError):
        return settings(where)
    return Settings()


async def _run(app: AgentApp) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, app.exit, 128 + number, 128 + number)
    try:
        code = await app.run_async()
    finally:
        await app.shut_down()
    if app.trouble:
        return app.return_code or 1
    return code or 0
