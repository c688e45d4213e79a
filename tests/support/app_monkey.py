"""Plays with the app as nobody would: random keys, commands, pastes, resizes, clicks and faults.

The actions follow from the seed. The app must live, take letters after each of them, and end with 0.
"""

import asyncio
import errno
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from textual import events
from textual.command import CommandPalette

from agent.store.conversations import Store
from tests.support.fake_app import ScreenDriver, screen_text
from tests.support.waiting import wait_until

KEYS = (
    *(f"f{number}" for number in range(1, 11)), "escape", "enter", "tab", "shift+tab", "up", "down",
    "left", "right", "home", "end", "pageup", "pagedown", "backspace", "delete", "space", "y", "n",
    "x", "question_mark", "slash", "at", "ctrl+up", "ctrl+down", "ctrl+home", "ctrl+end", "alt+x",
    "alt+y", *(f"ctrl+{letter}" for letter in "abdefhijklnoprstuvwxyz"), "shift+left", "ctrl+left",
)  # fmt: skip
"""Without Ctrl-Q and Ctrl-C, which leave, and Ctrl-G, which needs a terminal for the editor."""
TEXTS = (
    "", "hello", "2", "-1", "0", "99999999999999999999", "nan", "all", "none", "high", "code", "md",
    "json", "~nobody-here/x", "a" * 300, "a/" * 2100, "\x1b[2J", "\u202e", "İ\u0301👩‍👩‍👧", "a\nb",
    "@", "@loop", "@folder/", "see @notes.txt", "tiny", "far", "silent",
    "temperature=0", "temperature=x", "effort=low", "conv_", "[b]x[/b]", "$(x)", "'", '"', "%s", "\t",
    "|a|b|\n|-|-|", "```\nx",
)  # fmt: skip
LEFT_OUT = {"quit", "exit", "pull"}
"""Commands that leave, or speak to a hub."""
LATEST_ERRORS = (errno.EIO, errno.EACCES, errno.ENOSPC, errno.ELOOP)


ECHO_SECONDS, FREEZE_SECONDS = 0.1, 1.0
"""Within the first the next key has to be shown; a step of the event loop that takes more CPU time than
the second is a fault, however slow the machine is."""


@contextmanager
def handlers_timed() -> Iterator[list[tuple[float, str]]]:
    """Collect which steps of the event loop take longer than `ECHO_SECONDS` of this thread's CPU time,
    which other processes do not change: (seconds, what ran)."""
    slow: list[tuple[float, str]] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began, what = time.thread_time(), handle._callback  # type: ignore[attr-defined]
        run(handle)
        if (seconds := time.thread_time() - began) > ECHO_SECONDS:
            slow.append((seconds, repr(getattr(what, "__self__", what))[:200]))

    with patch.object(asyncio.Handle, "_run", timed):
        yield slow


class AppMonkey:
    """Plays with one app. ``root`` is its folder, ``home`` holds its configuration."""

    def __init__(self, driver: ScreenDriver, root: Path, home: Path, seed: int) -> None:
        self._driver, self._root, self._home = driver, root, home
        self._rng = random.Random(seed)
        self.played: list[str] = []
        """What was done so far; the last actions explain a fault."""

    async def play(self, actions: int) -> None:
        """Do so many actions. Raises AssertionError where the app does not take a letter any more."""
        kinds: tuple[tuple[Callable[[], Awaitable[None]], int], ...] = (
            (self._press, 40), (self._type, 15), (self._command, 25), (self._paste, 8),
            (self._resize, 4), (self._click, 8),
        )  # fmt: skip
        names, weights = zip(*kinds, strict=True)
        done = 0
        while done < actions:
            fault = self._fault() if self._rng.random() < 0.4 else ExitStack()
            with fault, patch.object(self._driver.app, "exit"):  # the palette leaves, too
                for _ in range(self._rng.randint(1, 10)):
                    (act,) = self._rng.choices(names, weights)
                    await act()
                    done += 1
            await self._check()

    async def _check(self) -> None:
        """Go back to the prompt, as a person can, and type a letter. Where a command opens a list just
        then, the letter is the list's."""
        typed = False
        for _ in range(8):
            if typed := await self._type_letter():
                break
        assert typed, self._state()
        self._driver.app.prompt.clear()

    async def _type_letter(self) -> bool:
        app, pilot = self._driver.app, self._driver.pilot
        for _ in range(8):
            if app.screen is app.default_screen:
                break
            await pilot.press("escape")
        assert app.is_running and app._exception is None, self._recent()
        assert app.screen is app.default_screen, self._state()
        app.prompt.focus()
        app.prompt.clear()
        await pilot.press("q")

        # A prompt that could not be sent may have gone back into the input, before what is typed.
        def typed() -> bool:
            return app.prompt.text.endswith("q")

        await wait_until(lambda: typed() or app.screen is not app.default_screen, self._state)
        return typed()

    def _state(self) -> str:
        return f"{self._recent()}\n{screen_text(self._driver.app)}"

    def _recent(self) -> str:
        return "\n".join(self.played[-25:])

    # --- actions ---

    async def _press(self) -> None:
        keys = self._rng.choices(KEYS, k=self._rng.choice((1, 1, 1, 2, 3)))
        if "ctrl+p" in keys or isinstance(self._driver.app.screen, CommandPalette):
            # Textual's palette fails at a page where it has no row for its list.
            keys = [key for key in keys if not key.startswith("page")]
        self.played.append(f"press {keys}")
        await self._driver.pilot.press(*keys)

    async def _type(self) -> None:
        text = self._rng.choice(TEXTS)
        self.played.append(f"type {text!r}")
        self._driver.app.screen.post_message(events.Paste(text))
        await self._driver.pilot.press(self._rng.choice(("enter", "escape", "space")))

    async def _command(self) -> None:
        app, rng = self._driver.app, self._rng
        names = [command.name for command in app.commands.all() if command.name not in LEFT_OUT]
        line = f"/{rng.choice(names)} {rng.choice(TEXTS) if rng.random() < 0.7 else ''}"
        self.played.append(f"command {line!r}")
        if app.screen is app.default_screen:
            app.prompt.focus()
            app.prompt.replace_with(line)
            await self._driver.pilot.press(*["enter"] * rng.choice((1, 1, 2)))

    async def _paste(self) -> None:
        text = "".join(self._rng.choices(TEXTS, k=5)) * self._rng.choice((1, 1, 100))
        self.played.append(f"paste {len(text)} characters")
        self._driver.app.screen.post_message(events.Paste(text[:20_000]))
        await self._driver.pilot.pause()

    async def _resize(self) -> None:
        size = self._rng.choice(((80, 24), (200, 50), (20, 5), (3, 2), (40, 10), (120, 30)))
        self.played.append(f"resize {size}")
        await self._driver.pilot.resize_terminal(*size)

    async def _click(self) -> None:
        size = self._driver.app.size
        place = self._rng.randrange(max(1, size.width)), self._rng.randrange(max(1, size.height))
        self.played.append(f"click {place}")
        await self._driver.pilot.click(offset=place, times=self._rng.choice((1, 1, 2)))

    # --- faults ---

    @contextmanager
    def _fault(self) -> Iterator[None]:
        fault = self._rng.choice(
            (
                self._broken_file, self._locked_store, self._failing_store, self._missing_folder,
                self._failing_folders, self._failing_writes,
            )
        )  # fmt: skip
        self.played.append(f"fault {fault.__name__}")
        with fault():
            yield
        self.played.append("fault ends")

    @contextmanager
    def _broken_file(self) -> Iterator[None]:
        path = self._home / "config" / self._rng.choice(("config.toml", "models.toml", "mcp.json"))
        path.parent.mkdir(exist_ok=True)
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(self._rng.choice((b"[", b"\xff", b"a = 1e999", b'{"mcpServers": 3}')))
        try:
            yield
        finally:
            if before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(before)

    @contextmanager
    def _locked_store(self) -> Iterator[None]:
        """Another program writes to the store meanwhile."""
        path = self._home / "state/store.sqlite"
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            yield

    @contextmanager
    def _missing_folder(self) -> Iterator[None]:
        aside = self._root.with_name("aside")
        self._root.rename(aside)
        try:
            yield
        finally:
            if self._root.exists():  # the program created it
                shutil.rmtree(self._root)
            aside.rename(self._root)

    @contextmanager
    def _failing_store(self) -> Iterator[None]:
        error = sqlite3.OperationalError("database is locked")
        names = self._rng.sample(("begin", "finish", "rename", "turns", "summaries", "load"), k=2)
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(patch.object(Store, name, side_effect=error))
            yield

    @contextmanager
    def _failing_folders(self) -> Iterator[None]:
        number, scandir = self._rng.choice(LATEST_ERRORS), os.scandir

        def fail(path: Any = ".") -> Any:
            if Path(os.fsdecode(path) if not isinstance(path, int) else ".") == self._root:
                raise OSError(number, os.strerror(number), str(path))
            return scandir(path)

        with patch("os.scandir", fail):
            yield

    @contextmanager
    def _failing_writes(self) -> Iterator[None]:
        number = self._rng.choice(LATEST_ERRORS)
        error = OSError(number, os.strerror(number), "file")
        with patch("agent.util.private_files.write_text", side_effect=error):
            yield
