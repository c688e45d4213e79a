"""The tokens that a model reads and writes, as the raw pane shows them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from textual.app import App, ComposeResult

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.errors import UserError
from agent.formats.protocol import Format
from agent.turn.log import EventLog
from tui import theme
from tui.base_screen import BaseScreen
from tui.widgets.text_stream import TextStream
from tui.widgets.token_browser import TokenBrowser
from tui.widgets.token_view import TokenPosition, TokenView, TokenWriter

MARKUP = {1: "<|start|>", 2: "<|message|>", 3: "<|end|>"}


class Letters:
    """A format in which a letter is a token, and a byte of anything else."""

    def token_bytes(self, token: int) -> bytes:
        return MARKUP[token].encode() if token in MARKUP else bytes([token])

    def is_markup(self, token: int) -> bool:
        return token in MARKUP

    def open_assistant(self) -> list[int]:
        return [1]


async def no_choices(position: TokenPosition) -> Any:
    raise UserError("There is no model.")


class Bare(App[None]):
    def get_default_screen(self) -> BaseScreen:
        return BaseScreen()

    def compose(self) -> ComposeResult:
        yield TokenView(no_choices)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme.DEFAULT_VARIABLES


def ids(text: str) -> list[int]:
    for token, mark in MARKUP.items():
        text = text.replace(mark, chr(token))
    return list(text.encode())


async def test_token_view_writes_prompt_generation_and_late_repair() -> None:
    form, log = cast(Format, Letters()), EventLog()
    earlier, question = "<|start|>earlier<|end|>", "<|start|>why?<|end|>"
    talk = Conversation("conv_1", [Entry(ids(earlier)), Entry(ids(question))])
    turn: Any = SimpleNamespace(log=log)
    async with Bare().run_test(size=(100, 30)) as pilot:
        view = pilot.app.query_one(TokenView)

        def text() -> str:
            view.follow(turn, talk, form)
            return view.query_one(TextStream).text

        assert text() == "", "nothing is read while it is closed"
        view.toggle()
        await pilot.pause()
        before = f"{earlier}\n{question}\n"
        assert text() == before, "the conversation, until the turn generates"
        log.append(ev.AgentPrompt(ids=ids(f"{earlier}{question}<|start|>")))
        log.append(ev.AgentTokens(ids=ids("<|message|>é")))
        assert text() == before + "<|start|><|message|>é"
        log.append(ev.AgentTokens(ids=ids("so<|end|><|start|>on")))
        log.append(ev.AgentRepair(rule="end_missing", at=3, text=""))
        assert text() == before + "<|start|><|message|>é end_missing so<|end|>\n<|start|>on"
        log.append(ev.AgentRepair(rule="late", at=1, text=""))
        assert "<|message|> late é end_missing so" in text(), "it is written once more"
        log.append(ev.AgentPrompt(ids=ids("<|start|>42<|end|><|start|>")))
        log.append(ev.AgentTokens(ids=ids("done")))
        assert text().endswith("on\n<|start|>42<|end|>\n<|start|>done")


async def test_token_view_colours_of_a_branch_are_those_of_its_own_tokens() -> None:
    """The probabilities of a branch's first generation begin with those of messages before it."""
    form, log = cast(Format, Letters()), EventLog()
    log.append(ev.AgentPrompt(ids=ids("<|start|>why?<|end|><|start|>")))
    log.append(ev.AgentTokens(ids=ids("so")))
    log.append(ev.AgentPrompt(ids=ids("<|start|>42<|end|><|start|>")))
    log.append(ev.AgentTokens(ids=ids("yes")))
    log.append(ev.AgentPrompt(ids=ids("<|start|>43<|end|><|start|>")))  # stopped at once
    turn: Any = SimpleNamespace(log=log)
    async with Bare().run_test(size=(100, 30)) as pilot:
        view = pilot.app.query_one(TokenView)
        view.toggle()
        await pilot.pause()
        view.colour(turn, [[0.1], [0.2, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8]])
        view.follow(turn, Conversation("conv_1"), form)
        shown = [dict(each.probabilities) for each in view.writer.log.generations]
    assert shown[:2] == [{0: 0.4, 1: 0.5}, {0: 0.6, 1: 0.7, 2: 0.8}]


async def test_token_view_colours_rewrite_what_the_turn_wrote_and_not_its_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form, log, talk = cast(Format, Letters()), EventLog(), Conversation("conv_1")
    log.append(ev.AgentStart(model="m", context_length=9, engine="e", tools=[], mcp_servers=[]))
    log.append(ev.AgentPrompt(ids=ids("<|start|>why?<|end|><|start|>")))
    log.append(ev.AgentTokens(ids=ids("so<|end|>")))
    log.append(ev.AgentRepair(rule="end_missing", at=1, text=""))
    log.append(ev.AgentPrompt(ids=ids("<|start|>42<|end|><|start|>")))
    log.append(ev.AgentTokens(ids=ids("yes")))
    turn: Any = SimpleNamespace(log=log)
    prompts: list[str] = []
    write_prompt = TokenWriter._write_prompt

    def counted(writer: TokenWriter, ids: Any, form: Format) -> None:
        prompts.append(bytes(ids).decode())
        write_prompt(writer, ids, form)

    async with Bare().run_test(size=(100, 30)) as pilot:
        view = pilot.app.query_one(TokenView)
        view.toggle()
        await pilot.pause()
        view.follow(turn, talk, form)
        stream = view.query_one(TokenBrowser)
        stream.move_cursor_to(9)
        plain = [(line.text, list(line.styles)) for line in stream.lines]
        logged = list(view.writer.log.ids)
        monkeypatch.setattr(TokenWriter, "_write_prompt", counted)
        view.colour(turn, [[0.3, 0.05, 0.9], [0.004, 0.6, 0.99]])
        assert prompts == [bytes(ids("<|start|>42<|end|>")).decode()]
        assert [line.text for line in stream.lines] == [text for text, _ in plain]
        styles = {style for line in stream.lines for _, style in line.styles}
        assert {"chance2", "odd chance3", "chance4", "odd chance1"} <= styles
        assert stream.cursor == 9 and view.writer.log.ids == logged
        assert view.writer.log.generations[0].probabilities == {0: 0.3, 1: 0.05, 2: 0.9}
        log.append(ev.AgentTokens(ids=ids("!")))
        view.follow(turn, talk, form)
        assert stream.text.endswith("yes!")
        view.colour(None, [])
        assert [(line.text, line.styles) for line in stream.lines][:-1] == plain[:-1]
