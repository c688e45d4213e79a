"""The tokens that a model reads and writes, as the raw pane shows them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from textual.app import App, ComposeResult

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.formats.protocol import Format
from agent.runtime.hub import Log
from tui import theme
from tui.base_screen import Paper
from tui.widgets.text_stream import Stream
from tui.widgets.token_view import Raw

MARKUP = {1: "<|start|>", 2: "<|message|>", 3: "<|end|>"}


class Letters:
    """A format in which a letter is a token, and a byte of anything else."""

    def spelling(self, token: int) -> bytes:
        return MARKUP[token].encode() if token in MARKUP else bytes([token])

    def is_markup(self, token: int) -> bool:
        return token in MARKUP

    def open_assistant(self) -> list[int]:
        return [1]


class Bare(App[None]):
    def get_default_screen(self) -> Paper:
        return Paper()

    def compose(self) -> ComposeResult:
        yield Raw()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme.VARIABLES


def ids(text: str) -> list[int]:
    for token, mark in MARKUP.items():
        text = text.replace(mark, chr(token))
    return list(text.encode())


async def test_prompt_and_generations_with_their_repairs_as_they_come() -> None:
    form, log = cast(Format, Letters()), Log()
    earlier, asked = Entry(ids("<|start|>earlier<|end|>")), Entry(ids("<|start|>why?<|end|>"))
    talk = Conversation("conv_1", [earlier, asked])
    first = SimpleNamespace(read=[asked], since=0, ids=ids("<|message|>é"))
    turn: Any = SimpleNamespace(log=log, generations=[first], generated=[first.ids])
    async with Bare().run_test(size=(100, 30)) as pilot:
        raw = pilot.app.query_one(Raw)

        def seen() -> str:
            raw.follow(turn, talk, form)
            return raw.query_one(Stream).text

        assert seen() == "", "nothing is read while it is closed"
        raw.turn_over()
        await pilot.pause()
        before = "<|start|>earlier<|end|>\n<|start|>why?<|end|>\n"
        assert seen() == before + "<|start|><|message|>é"
        first.ids += ids("so<|end|><|start|>on")
        log.append(ev.AgentRepair(rule="end_missing", at=3, text=""))
        assert seen() == before + "<|start|><|message|>é end_missing so<|end|>\n<|start|>on"
        result = Entry(ids("<|start|>42<|end|>"))
        turn.generations.append(SimpleNamespace(read=[result], since=1, ids=ids("done")))
        assert seen().endswith("on\n<|start|>42<|end|>\n<|start|>done")
