"""Runs the app on the terminal, and restores the terminal however the app ends."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from functools import partial
from typing import Any

from agent.config.launch import LaunchOptions
from agent.config.paths import Paths, user_paths
from agent.config.settings import Settings, load_settings, save_setting
from agent.errors import UserError
from agent.util import gc_tuning
from agent.util.daemon_threads import DaemonThreads
from agent.util.programs import set_root
from agent.util.sanitize import echo
from tools import process_groups
from tui.app import AgentApp
from tui.session import Session
from tui.terminal import bracketed_paste, screen

HANGUP_SECONDS = 20.0
"""Time that the app has to end in order once its terminal is gone."""


def main(launch: LaunchOptions, **options: Any) -> int:
    """Run the app with these options of `Session`, and return the exit code."""
    gc_tuning.defer()
    set_root(launch.root)
    # Python's 5 ms would let a thread that renders or loads delay each paint by as much.
    sys.setswitchinterval(0.001)
    for name in ("COLUMNS", "LINES"):  # exported, they would fix the app's size for ever
        os.environ.pop(name, None)
    paths = user_paths()
    settings = app_settings(paths)
    message: str | None
    try:
        bracketed_paste.patch_textual()
        with screen.own_terminal(paths.log_file) as guard:
            app = AgentApp(
                Session(launch, **options),
                history=paths.state / "prompts.jsonl",
                theme=settings.theme,
                shows_panes=settings.view != "conversation",
                probability_scale=settings.probability_scale,
                key_bindings=settings.keys,
                save_setting=partial(save_setting, paths),
                on_first_paint=guard,
            )
            if not settings.animations:
                app.animation_level, app.prompt.cursor_blink = "none", False
            code = asyncio.run(_run(app))
            message = f"{app.exit_message} ({paths.log_file})." if code == 1 else app.exit_message
            gc_tuning.disable()
    except screen.NoTerminalError as error:
        message, code = str(error), 2
    if message:
        echo(f"agent: {message}", file=sys.stderr)
    return code


def app_settings(paths: Paths) -> Settings:
    """The settings of config.toml, or the defaults; ``Session.begin`` reports what is wrong with it."""
    with contextlib.suppress(UserError):
        return load_settings(paths)
    return Settings()


def _end_without_terminal() -> None:
    """End this process soon: without a terminal a hang would not be noticed."""

    def end() -> None:
        process_groups.kill_all()
        os._exit(128 + signal.SIGHUP)

    timer = threading.Timer(HANGUP_SECONDS, end)
    timer.daemon = True
    timer.start()


async def _run(app: AgentApp) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonThreads())

    def end(signal_number: int) -> None:
        if signal_number == signal.SIGHUP:
            _end_without_terminal()
        app.exit(128 + signal_number, 128 + signal_number)

    for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(signal_number, end, signal_number)
    try:
        code = await app.run_async()
    finally:
        await app.shut_down()
    if app.exit_message:
        return app.return_code or 1
    return code or 0
