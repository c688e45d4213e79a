"""Keys that are typed at the moment of Ctrl-Z."""

import os
import pty
import tty
from threading import Event, Thread

import pytest
from textual import events
from textual.message import Message

from tui.terminal.driver import TerminalDriver


@pytest.mark.parametrize(
    ("typed", "expected"),
    [(b"ls\r", ["l", "s", "enter"]), (b"\x1b", ["escape"]), (b"", []), (b"\x1b[A", ["up"])],
)
def test_keys_typed_while_reading_ends_are_passed_on(typed: bytes, expected: list[str]) -> None:
    """Textual's thread of keys waits a moment before its end without reading."""
    keyboard, terminal = pty.openpty()
    tty.setraw(terminal)
    keys: list[str] = []

    class Driver(TerminalDriver):
        def __init__(self) -> None:
            self.fileno, self.exit_event = terminal, Event()

        def process_message(self, message: Message) -> None:
            if isinstance(message, events.Key):
                keys.append(message.key)

    def end_reading() -> None:
        driver.exit_event.wait()
        os.write(keyboard, typed)

    driver = Driver()
    driver._key_thread = Thread(target=end_reading)
    driver._key_thread.start()
    try:
        driver.finish_reading()
        assert keys == expected and not driver.exit_event.is_set()
    finally:
        os.close(keyboard)
        os.close(terminal)
