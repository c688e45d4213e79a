"""Fakes of session and turn that a test steps by hand, and drivers of the app under test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

from textual.pilot import Pilot
from textual.strip import Strip

from agent import events as ev
from agent.config.launch import LaunchOptions
from agent.conversation.conversation import Conversation, Entry
from agent.conversation.messages import Message, User
from agent.models.catalog import Model
from agent.runtime.runtime import Hub
from agent.turn.call_writers import McpCallWriter
from agent.turn.endings import StopReason
from agent.turn.log import EventLog
from agent.turn.options import TurnOptions
from agent.turn.output import MessageWriter, Output, ReasoningWriter
from agent.util.ids import new_id
from tests.support import waiting
from tools.builtin_server import BuiltinServers
from tools.types import Prompt, Resource, ServerState, Tool
from tui.app import AgentApp
from tui.next_prompt import NextPrompt
from tui.session import Serving, Session
from tui.session_storage import SessionStorage
from tui.widgets.assistant_message import AssistantMessage

TINY = Model(
    "tiny", "embedded demonstration model (a few million parameters)", embedded=True, examples=()
)


class Clock:
    """Monotonic time that advances only when a test sets ``now``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeTurn:
    """A ``RunningTurn`` whose events the test emits."""

    def __init__(
        self, prompt: str, source: str = "app", conversation: Conversation | None = None
    ) -> None:
        self.prompt: Sequence[Message] = [User(prompt)]
        self.source = source
        self.conversation = conversation or Conversation(new_id("conv"))
        self.log = EventLog()
        self.output = Output(self.log.append)
        self.first_entry = 0
        self.items: list[ev.Item] = []
        self.has_real_tokens = False
        """Set by tests that emit ``agent.tokens`` themselves."""
        self.stopped: str | None = None
        """The reason with which the app has stopped the turn."""
        self.steering: list[str] = []
        self.answered_now = 0
        """How often the app has asked for the answer."""
        self.reasons = True
        """Whether its reasoning can be ended."""
        self.response = ev.Response(id="resp_1", created_at=0, model="tiny")

    @property
    def prompt_text(self) -> str:
        """The text of the prompt's only message."""
        (message,) = self.prompt
        assert isinstance(message, User)
        return message.text

    def emit_tokens(self, count: int) -> None:
        """Emit ``count`` generated tokens, all of them id 0, unless the test emits real ones."""
        if not self.has_real_tokens:
            self.emit(ev.AgentTokens(ids=[0] * count))

    def emit(self, *events: ev.Event) -> None:
        """Append events to the turn's log."""
        for event in events:
            self.log.append(event)

    def start(self) -> "FakeTurn":
        """Emit the events with which a turn begins: start and prefill."""
        servers = [ev.ServerStatus(name="code_interpreter", status="ready", tools=["python"])]
        self.emit(
            ev.AgentStart(
                model="tiny", context_length=32768, engine="llama.cpp",
                tools=["code_interpreter.python"], mcp_servers=servers,
            ),
            ev.AgentPrefill(done=512, total=512, cached=0),
        )  # fmt: skip
        return self

    def answer_now(self) -> bool:
        self.answered_now += 1
        return self.reasons

    def steer(self, text: str) -> None:
        self.steering.append(text)

    def queued_steering(self) -> list[str]:
        return list(self.steering)

    def take_back_steering(self) -> str | None:
        return self.steering.pop() if self.steering else None

    def pending_entries(self) -> list[Entry]:
        return []

    async def done(self) -> ev.Response:
        async for _ in self.log.follow():
            pass
        return self.response

    def stop(self, reason: StopReason = "cancelled") -> None:
        self.stopped = reason
        self.end("cancelled")

    def end(self, status: ev.Status = "completed", error: str | None = None) -> None:
        """Emit statistics and the terminal event, and close the log."""
        response = self.response.model_copy(
            update={
                "status": status,
                "error": ev.ResponseError(code="server_error", message=error) if error else None,
                "output": self.output.items,
                "usage": ev.Usage(input_tokens=512, output_tokens=96, total_tokens=608),
            }
        )
        self.response = response
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


class FakeHost:
    """MCP servers with fixed states; ``git`` has one prompt, ``review``, and two resources."""

    withheld = ""

    def __init__(self, states: list[ServerState]) -> None:
        self.states = states
        self.builtins = BuiltinServers([])
        self.content = self
        self.review = Prompt("review", "Look at a change.", (("file", True), ("how", False)))

    def subscribe(self, callback: Callable[[str], None]) -> None:
        self.on_change = callback

    def subscribe_logins(self, callback: Callable[[str], None]) -> None:
        pass

    def server_states(self) -> list[ServerState]:
        return self.states

    def count_servers(self) -> tuple[int, int]:
        enabled = [s.status for s in self.states if s.status != "disabled" and not s.is_builtin]
        return enabled.count("ready"), len(enabled)

    def tools(self) -> list[Tool]:
        return [Tool(state.name, tool, "", {}) for state in self.states for tool in state.tools]

    def server_config(self, server: str) -> Any:
        return SimpleNamespace(builtin=None)

    async def prompts(self, server: str) -> list[Prompt]:
        if server != "git":
            raise ValueError("has no prompts")
        return [self.review]

    async def resources(self, server: str) -> list[Resource]:
        log = Resource("git://log/HEAD", "log", "What was done.", size=1200)
        return [log, Resource("git://blob/{path}", "blob", template=True)]

    async def read_resource(self, server: str, uri: str) -> str:
        if uri != "git://log/HEAD":
            raise ValueError(f"the server {server} has no {uri}")
        return f"[resource {uri}]\nfirst commit"

    async def get_prompt(
        self, server: str, name: str, arguments: dict[str, str]
    ) -> list[tuple[str, str]]:
        return [("user", f"{server} {name} {arguments}")]


class FakeRuntime:
    """The attributes that the app reads of a runtime."""

    script = None
    context_length = 32768
    format = loaded = None
    running_turns = 0

    def __init__(self, states: list[ServerState]) -> None:
        self.model, self.hub, self.host = TINY, Hub(), FakeHost(states)

    def restart_idle_timers(self) -> None:
        """Do nothing: there is no idle work."""

    def on_keystroke(self) -> None:
        """Do nothing: there is no idle work."""


class FakeStorage(SessionStorage):
    """A store with nothing in it."""

    @property
    def is_open(self) -> bool:
        return True

    async def branches_at(self, conversation: Conversation, start: int) -> tuple[int, list[str]]:
        return 0, []


class FakeNextPrompt(NextPrompt):
    """A prompt whose tokens are not counted."""

    def __init__(self, runtime: Any, storage: SessionStorage, turns: list[FakeTurn]) -> None:
        super().__init__(runtime, TurnOptions(), Conversation("conv_fake"), storage)
        self._turns = turns
        self.prefetched: list[str] = []
        """The drafts of ``prefetch``."""

    @property
    def first_entry(self) -> int:
        return len(self._turns)

    def token_count(self) -> int | None:
        return 608

    def prefetch(self, draft: str, before: int | None = None) -> None:
        self.prefetched.append(draft)


class FakeSession(Session):
    """A session without engine, tools and store; its turns are ``FakeTurn``s."""

    def __init__(
        self,
        *,
        servers: list[ServerState] | None = None,
        model_loaded: bool = True,
        root: Path = Path(),
    ) -> None:
        """``model_loaded``: the model is there at once; otherwise the test sets ``loaded``."""
        serving = Serving("127.0.0.1:8080", self._serve)
        super().__init__(LaunchOptions(root=root), serving=serving)
        ready = [
            ServerState("code_interpreter", "ready", ["python"], transport="built in"),
            ServerState("files", "ready", ["read", "write"], transport="built in"),
        ]
        self.server_states = ready if servers is None else servers
        self.storage = FakeStorage()
        self.turns: list[FakeTurn] = []
        self.approver: Any = None
        self.loaded = asyncio.Event()
        self.progress: Callable[[float], None] = lambda fraction: None
        if model_loaded:
            self.loaded.set()

    async def _serve(self, runtime: object) -> None:
        await asyncio.Event().wait()

    async def begin(self) -> None:
        runtime: Any = FakeRuntime(self.server_states)
        self._next_prompt = FakeNextPrompt(runtime, self.storage, self.turns)

    async def _read_project_instructions(self) -> None:
        """Read none: a test sets those that it needs."""

    async def load(self, progress: Callable[[float], None]) -> None:
        self.progress = progress
        await self.loaded.wait()

    def start_turn(
        self, prompt: str, approver: Any, answerer: Any = None, login: Any = None, begin: Any = None
    ) -> Any:
        self.approver, self.answerer = approver, answerer
        self.turns.append(FakeTurn(prompt).start())
        return self.turns[-1]

    async def close(self) -> None:
        return


class ScreenDriver:
    """Presses keys in an app under test and waits for what its screen shows."""

    def __init__(self, app: AgentApp, pilot: Pilot[int]) -> None:
        self.app, self.pilot = app, pilot

    async def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds; never for a fixed time."""
        await wait_until(self.pilot, condition)

    async def expect_text(self, *texts: str, gone: str | None = None) -> None:
        """Wait until the screen shows all the texts at once, and ``gone`` no more."""

        def condition() -> bool:
            screen = screen_text(self.app)
            return all(text in screen for text in texts) and (gone is None or gone not in screen)

        await self.wait_for(condition)

    async def resize(self, columns: int, rows: int) -> None:
        """Resize the terminal and wait until everything is painted for the new size."""
        await self.pilot.resize_terminal(columns, rows)
        messages = self.app.query(AssistantMessage)
        await self.wait_for(
            lambda: all(message.is_rendered for message in messages if message.item.is_complete)
        )
        await self.pilot.pause()

    async def type_text(self, text: str, *keys: str) -> None:
        """Insert the text at once, for the pilot waits after each key; then press these keys."""
        self.app.prompt.insert(text)
        await self.pilot.press(*keys)


class AppDriver(ScreenDriver):
    """Drives an app whose session and clock are fakes."""

    def __init__(self, app: AgentApp, session: FakeSession, pilot: Pilot[int]) -> None:
        super().__init__(app, pilot)
        self.session = session
        self.clock = cast(Clock, app.clock)

    async def ask(self, text: str) -> FakeTurn:
        """Send a prompt and wait for the turn that it starts."""
        before = len(self.session.turns)
        await self.type_text(text, "enter")
        await self.wait_for(lambda: len(self.session.turns) > before)
        return self.session.turns[-1]


async def wait_until(pilot: Pilot[int], condition: Callable[[], object]) -> None:
    """Wait until the condition holds and the app is idle; a failure shows the screen's text."""
    await waiting.wait_until(condition, lambda: screen_text(pilot.app))
    await pilot.pause()


def screen_strips(app: Any) -> list[Strip]:
    """The rows of the screen with their styles."""
    return app.screen._compositor.render_strips()


def screen_text(app: Any) -> str:
    """The text of the screen, without styles and trailing blanks."""
    return "\n".join(strip.text.rstrip() for strip in screen_strips(app))


def make_app(session: FakeSession, **options: Any) -> AgentApp:
    """Create an app with a clock that stands still; ``options``: the app's own."""
    app = AgentApp(session, **options)
    app.clock = Clock()
    return app


@asynccontextmanager
async def drive_app(
    session: FakeSession | None = None, *, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[AppDriver]:
    """Run the app without a terminal, until the end of the block; yields its driver once the session
    has begun. ``size``: columns and rows; ``options``: the app's own."""
    session = session or FakeSession()
    app = make_app(session, **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = AppDriver(app, session, pilot)
        await driver.wait_for(lambda: app.session_ready)
        yield driver


# --- the items of a turn: each function streams one and returns its writer, to be closed ---


def emit_reasoning(turn: FakeTurn, text: str) -> ReasoningWriter:
    """Stream reasoning word by word; closing it counts its words as tokens."""

    class Writer(ReasoningWriter):
        def close(self, complete: bool) -> None:
            turn.emit(ev.AgentReasoning(item_id=self.id, tokens=len(text.split())))
            super().close(complete)

    turn.emit_tokens(len(text.split(" ")))
    writer = Writer(turn.output)
    for word in text.split(" "):
        writer.delta(word + " ")
    return writer


def emit_call(turn: FakeTurn, server: str, tool: str, arguments: str) -> McpCallWriter:
    """Stream the arguments of a call of an MCP tool."""
    turn.emit_tokens(1 if arguments else 0)
    writer = McpCallWriter(turn.output, server, tool)
    writer.delta(arguments)
    return writer


def emit_message(
    turn: FakeTurn, text: str, phase: Literal["commentary", "final_answer"] = "final_answer"
) -> MessageWriter:
    """Stream a message word by word."""
    turn.emit_tokens(len(text.split(" ")))
    writer = MessageWriter(turn.output, phase)
    for word in text.split(" "):
        writer.delta(word + " ")
    return writer
