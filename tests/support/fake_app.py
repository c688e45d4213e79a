"""Turns that a test plays by hand, so that the app can be looked at in any moment of one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from textual.pilot import Pilot

from agent import events as ev
from agent.cli.shared import Shared
from agent.conversation.conversation import Conversation, User
from agent.models.catalog import Model
from agent.runtime.hub import Hub, Log
from agent.turn.output import Output, new_id
from tools.types import Prompt, ServerState, Tool
from tui.app import AgentApp
from tui.session import Serving, Session
from tui.widgets.assistant_message import Message

TINY = Model("tiny", "embedded demonstration model (a few million parameters)", embedded=True)


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class PlayedTurn:
    """What the app reads of a turn; the test writes its events."""

    def __init__(
        self, prompt: str, source: str = "app", conversation: Conversation | None = None
    ) -> None:
        self.prompt, self.source = [User(prompt)], source
        self.conversation = conversation or Conversation(new_id("conv"))
        self.log = Log()
        self.output = Output(self.log.append)
        self.stopped: str | None = None
        self.steering: list[str] = []
        self.response = ev.Response(id="resp_1", created_at=0, model="tiny")
        self.generations: list[Any] = []
        """Where a test looks at tokens: what the turn has of each generation."""

    @property
    def generated(self) -> list[list[int]]:
        """Without generations, as many tokens as there were deltas."""
        if self.generations:
            return [one.ids for one in self.generations]
        return [[0 for event in self.log.events if getattr(event, "delta", None)]]

    def emit(self, *events: ev.Event) -> None:
        for event in events:
            self.log.append(event)

    def start(self) -> PlayedTurn:
        servers = [ev.ServerStatus(name="code_interpreter", status="ready", tools=["python"])]
        self.emit(
            ev.AgentStart(
                model="tiny", context_length=32768, engine="llama.cpp",
                tools=["code_interpreter.python"], mcp_servers=servers,
            ),
            ev.AgentPrefill(done=512, total=512, cached=0),
        )  # fmt: skip
        return self

    def steer(self, text: str) -> None:
        self.steering.append(text)

    def stop(self, reason: str = "cancelled") -> None:
        self.stopped = reason
        self.end("cancelled")

    def end(self, status: ev.Status = "completed", error: str | None = None) -> None:
        response = self.response.model_copy(
            update={
                "status": status,
                "error": ev.ResponseError(code="server_error", message=error) if error else None,
                "output": self.output.items,
                "usage": ev.Usage(input_tokens=512, output_tokens=96, total_tokens=608),
            }
        )
        self.emit(
            ev.AgentStats(
                prefill_tokens=512, cached_tokens=0, output_tokens=96, tokens_per_second=41.5,
                time_to_first_token_ms=90.0, tool_ms=120.0, total_ms=2500.0,
            )
        )  # fmt: skip
        match status:
            case "completed":
                self.emit(ev.ResponseCompleted(response=response))
            case "failed":
                self.emit(ev.ResponseFailed(response=response))
            case _:
                self.emit(ev.ResponseIncomplete(response=response))
        self.log.close()


class PlayedHost:
    def __init__(self, states: list[ServerState]) -> None:
        self.states = states
        self.review = Prompt("review", "Look at a change.", (("file", True), ("how", False)))

    def listen(self, callback: Callable[[str], None]) -> None:
        self.heard = callback

    def servers(self) -> list[ServerState]:
        return self.states

    def tools(self) -> list[Tool]:
        return [Tool(one.name, tool, "", {}) for one in self.states for tool in one.tools]

    def config(self, server: str) -> Any:
        return SimpleNamespace(hand=None)

    async def prompts(self, server: str) -> list[Prompt]:
        if server != "git":
            raise ValueError("has no prompts")
        return [self.review]

    async def prompt(self, server: str, name: str, given: dict[str, str]) -> list[tuple[str, str]]:
        return [("user", f"{server} {name} {given}")]


class PlayedRuntime:
    script = None
    context_length = 32768

    def __init__(self, states: list[ServerState]) -> None:
        self.model, self.hub, self.host = TINY, Hub(), PlayedHost(states)


class Played(Session):
    """A session without engine, tools and store."""

    def __init__(
        self,
        *,
        servers: list[ServerState] | None = None,
        loads: bool = True,
        root: Path = Path(),
    ) -> None:
        """``loads``: the model is there at once; else ``loaded`` is set by the test."""
        serving = Serving("127.0.0.1:8080", self._serve)
        super().__init__(Shared(root=root), serving=serving)
        ready = [
            ServerState("code_interpreter", "ready", ["python"]),
            ServerState("files", "ready", ["read", "write"]),
        ]
        self.states = ready if servers is None else servers
        self.turns: list[PlayedTurn] = []
        self.laid: list[str] = []
        self.approver: Any = None
        self.loaded = asyncio.Event()
        self.progress: Callable[[float], None] = lambda fraction: None
        if loads:
            self.loaded.set()

    async def _serve(self, runtime: object) -> None:
        await asyncio.Event().wait()

    async def begin(self) -> None:
        self.runtime = cast(Any, PlayedRuntime(self.states))

    @property
    def kept(self) -> bool:
        return True

    async def load(self, progress: Callable[[float], None]) -> None:
        self.progress = progress
        await self.loaded.wait()

    def turn(self, prompt: str, approver: Any, answerer: Any = None) -> Any:
        self.approver, self.answerer = approver, answerer
        self.turns.append(PlayedTurn(prompt).start())
        return self.turns[-1]

    @property
    def position(self) -> int:
        return len(self.turns)

    def alternatives(self, start: int) -> tuple[int, list[str]]:
        return 0, []

    def context_used(self) -> int | None:
        return 608

    def lay_ahead(self, draft: str, before: int | None = None) -> None:
        self.laid.append(draft)

    async def finish(self, turn: Any) -> None:
        return

    async def close(self) -> None:
        return


class Person:
    """What a person does with the app, and what they see."""

    def __init__(self, app: AgentApp, session: Played, pilot: Pilot[int]) -> None:
        self.app, self.session, self.pilot = app, session, pilot
        self.clock = cast(Clock, app.clock)

    async def see(self, seen: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until it is so; never a fixed time."""
        await wait_until(self.pilot, seen, seconds)

    async def sees(self, *texts: str, gone: str | None = None) -> None:
        """All of this at once, and no more of what is ``gone``."""

        def seen() -> bool:
            screen = screen_text(self.app)
            return all(text in screen for text in texts) and (gone is None or gone not in screen)

        await self.see(seen)

    async def resizes(self, columns: int, rows: int) -> None:
        """They make the window larger or smaller; until all is painted for it."""
        await self.pilot.resize_terminal(columns, rows)
        messages = self.app.query(Message)
        await self.see(lambda: all(message.settled for message in messages if message.part.settled))
        await self.pilot.pause()

    async def writes(self, text: str, *keys: str) -> None:
        """All at once, for the pilot waits after each key; then these keys."""
        self.app.prompt.insert(text)
        await self.pilot.press(*keys)

    async def ask(self, text: str) -> PlayedTurn:
        before = len(self.session.turns)
        await self.writes(text, "enter")
        await self.see(lambda: len(self.session.turns) > before)
        return self.session.turns[-1]


async def wait_until(pilot: Pilot[int], seen: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < until, f"never so; the screen:\n{screen_text(pilot.app)}"
        await asyncio.sleep(0.005)
    await pilot.pause()


def screen_text(app: Any) -> str:
    """The screen as text, as a person reads it."""
    lines = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in lines)


def app_of(session: Played) -> AgentApp:
    app = AgentApp(session)
    app.clock = Clock()
    return app


@asynccontextmanager
async def person(
    session: Played | None = None, *, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Person]:
    """A person in front of the app that has just started."""
    session = session or Played()
    app = app_of(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        someone = Person(app, session, pilot)
        await someone.see(lambda: app.begun)
        yield someone


# --- a whole turn, step by step ---


def thinks(turn: PlayedTurn, text: str) -> Any:
    from agent.turn.output import ReasoningWriter

    class Writer(ReasoningWriter):
        def close(self, complete: bool) -> None:
            turn.emit(ev.AgentReasoning(item_id=self.id, tokens=len(text.split())))
            super().close(complete)

    writer = Writer(turn.output)
    for word in text.split(" "):
        writer.delta(word + " ")
    return writer


def calls(turn: PlayedTurn, server: str, tool: str, arguments: str) -> Any:
    from agent.turn.output import McpCallWriter

    writer = McpCallWriter(turn.output, server, tool)
    writer.delta(arguments)
    return writer


def says(turn: PlayedTurn, text: str, phase: Any = "final_answer") -> Any:
    from agent.turn.output import MessageWriter

    writer = MessageWriter(turn.output, phase)
    for piece in text.split(" "):
        writer.delta(piece + " ")
    return writer
