"""The rooms beside the conversation, the first start, and the model's own tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from textual.widgets import Input

from agent import events as ev
from agent.cli.models import Row
from agent.conversation.conversation import Conversation, Entry
from agent.formats.harmony.encoding import encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool, Head, Repair
from agent.models.download_process import Download
from agent.store.conversations import Store
from agent.tiny.vocabulary import ranks
from agent.turn.options import Options
from tests.support.fake_app import Person, PlayedHost, calls, says, thinks
from tests.tui.scenes import Scene
from tests.tui.scenes.turns import ends
from tools.config.importers import Found
from tools.config.servers import ServerConfig
from tools.policy.approvals import Policy
from tools.types import Answer, ServerState, Tool
from tui.screens.models import Models
from tui.screens.welcome import First, offers

HEAD = Head(
    "2026-01-31", python=True,
    functions=(FunctionTool("read", "Read a file.", {"type": "object", "properties": {}}, "files"),),
)  # fmt: skip
WRITTEN = (
    "<|channel|>analysis<|message|>Multiply: ask python.<|end|>"
    "<|start|>assistant<|channel|>commentary to=python code<|message|>print(123 * 456)"
    "<|start|>assistant<|channel|>final<|message|>It is 56088: 五万六千八十八.<|return|>"
)
"""The second message does not end."""
MODELS = [
    Row("tiny", (), True, True, None, "embedded", None,
        "embedded demonstration model (a few million parameters)"),
    Row("gpt-oss-20b", (), False, False, None, "hub", None,
        "OpenAI gpt-oss-20b, MXFP4, about 12 GB"),
    Row("gpt-oss-120b", (), False, False, None, "hub", None,
        "OpenAI gpt-oss-120b, MXFP4, about 63 GB"),
    Row("qwen3-8b", (), False, True, 5_030_000_000, "pulled",
        "/home/ada/.cache/agent/models/Qwen3-8B-Q4_K_M.gguf", "Qwen3 8B, Q4_K_M, about 5 GB"),
    Row("llama3.2:3b", (), False, True, 2_020_000_000, "Ollama",
        "/home/ada/.ollama/models/blobs/sha256-dde5aa3fc5ff", "llama, 3.2 B, Q4_K_M"),
]  # fmt: skip


# --- conversations ---


@contextmanager
def at(day: int, hour: int) -> Iterator[None]:
    """What is kept meanwhile is kept at this time, as the clocks of this place have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: datetime(2026, 1, day, hour, 5).timestamp())
        yield


def keep(store: Store, name: str, *turns: tuple[str, str]) -> None:
    """A conversation with these prompts and answers."""
    talk = Conversation(name)
    talk.vocabulary = "o200k_harmony"
    for number, (prompt, answer) in enumerate(turns):
        item = ev.MessageItem(
            id=f"msg_{number}", phase="final_answer", content=[ev.OutputText(text=answer)],
            status="completed",
        )  # fmt: skip
        response = ev.Response(
            id=f"resp_{name}_{number}", created_at=0, model="tiny", status="completed",
            output=[item],
        )  # fmt: skip
        store.begin(talk, prompt, response)
        talk.entries += [Entry([number], role="user"), Entry([number], role="assistant")]
        store.finish(talk, response)


def remembers(someone: Person) -> Store:
    """Three conversations are kept."""
    store = someone.session._store = Store(someone.session.shared.root / "store.sqlite")
    with at(28, 9):
        keep(store, "conv_a", ("Where is Paris?", "In France, on the Seine."),
             ("And where does that end?", "The Seine ends in the Channel, at Le Havre."))  # fmt: skip
    with at(30, 17):
        keep(store, "conv_b", ("Write a haiku of the Seine", "Old river, slow\nA barge leaps in"))
    with at(31, 8):
        keep(store, "conv_c", ("Sum up notes.md", "They tell of a garden."))
    someone.session.conversation = store.load("conv_b")
    return store


async def conversations(someone: Person) -> None:
    remembers(someone)
    await someone.pilot.press("f5", *"seine")
    someone.app.screen.query_one(Input).cursor_blink = False
    await someone.sees("Old river")


async def deleting(someone: Person) -> None:
    await conversations(someone)
    await someone.pilot.press("ctrl+d")
    await someone.sees("for good?")


async def replayed(someone: Person) -> None:
    """A kept conversation was played again."""
    remembers(someone)
    someone.session.replay = 1e9
    await someone.app.show_conversation()
    await someone.sees("The replay is over")


# --- models ---


async def models(someone: Person) -> None:
    download = Download("gpt-oss-20b", lambda: None)
    download.done, download.total = 4_480_000_000, 12_110_000_000
    room = Models(MODELS, lambda: MODELS, {download.name: download}, "tiny", lambda wish: None)
    await someone.app.push_screen(room)
    await someone.pilot.press("down")
    room.query_one(Input).cursor_blink = False
    await someone.sees("It is being downloaded")


async def first(someone: Person) -> None:
    """The first start ever."""
    cursor = Found("Cursor", Path("/home/ada/.cursor/mcp.json"), {"git": {}, "time": {}})
    others = [row for row in MODELS if row.source != "pulled"]
    await someone.app.push_screen(First("tiny", offers(others, [cursor])))
    await someone.sees("Take over MCP servers")


# --- servers ---


def harmony() -> HarmonyFormat:
    return HarmonyFormat(encoding(ranks))


def schema(**names: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": text} for name, text in names.items()}
    return {"type": "object", "properties": properties, "required": list(names)[:1]}


class Panel(PlayedHost):
    """Servers in every state."""

    OFFERED = (
        Tool("files", "read", "Read a file below the root.", schema(path="which"), "files__read"),
        Tool("files", "search", "Find lines that match.", schema(pattern="a regular expression"),
             "files__search"),
        Tool("git", "log", "The latest commits.", schema(path="only those that touch it"), "log"),
        Tool("git", "push", "Send the branch to its remote; force: whatever is there.",
             schema(remote="its name", force="yes or no"), "push"),
    )  # fmt: skip
    ORIGINS: ClassVar = {
        "git": "uvx mcp-server-git", "weather": "uvx weather", "slow": "npx slow",
        "notes": "https://notes.example.org/mcp",
    }  # fmt: skip

    def __init__(self) -> None:
        ends = "ended with exit code 1; its last words: KeyError: 'WEATHER_KEY'"
        stderr = (
            'weather 0.3.1\nTraceback (most recent call last):\n  File "weather.py", line 8,'
            " in <module>\n    key = os.environ[\"WEATHER_KEY\"]\nKeyError: 'WEATHER_KEY'\n"
        )
        login = "wants a login (HTTP 401): agent mcp login notes"
        super().__init__([
            ServerState("files", "ready", ["read", "search"], transport="built in"),
            ServerState("git", "ready", ["log", "push"], protocol="2025-11-25", transport="stdio"),
            ServerState("weather", "failed", [], ends, stderr=stderr, transport="stdio"),
            ServerState("notes", "failed", [], login, transport="http"),
            ServerState("slow", "starting", [], transport="stdio"),
        ])  # fmt: skip

    def tools(self) -> list[Tool]:
        return [tool for tool in self.OFFERED if not self.is_off(tool.server, tool.name)]

    def all_tools(self) -> list[Tool]:
        return list(self.OFFERED)

    def is_off(self, server: str, tool: str) -> bool:
        return (server, tool) == ("files", "search")

    def config(self, server: str) -> ServerConfig:
        return ServerConfig(server, origin=self.ORIGINS.get(server, ""))


async def servers(someone: Person) -> None:
    """A tool is other than it was when it was allowed."""
    host, policy, runtime = Panel(), Policy(), someone.session.runtime
    before = Tool("git", "push", "Send the branch to its remote.", schema(remote="its name"))
    policy.answered(before, host.config("git"), Answer("session"), "{}", "the person")
    runtime.host, runtime.policy, runtime.format = host, policy, harmony()  # type: ignore[assignment]
    someone.session.options = Options()
    await someone.pilot.press("f7", *["down"] * 5)
    someone.app.screen.query_one(Input).cursor_blink = False
    await someone.sees("+++ now")


async def server_failed(someone: Person) -> None:
    await servers(someone)
    await someone.pilot.press("down")
    await someone.sees("WEATHER_KEY")


# --- tokens ---


async def raw(someone: Person) -> None:
    """What a model reads and writes, with what had to be repaired."""
    form, session = harmony(), someone.session
    session.runtime.format = form  # type: ignore[assignment]
    turn = await someone.ask("What is 123*456?")
    asked = Entry(form.user("What is 123*456?"), role="user")
    talk = session.conversation = Conversation("conv_1", [asked])
    talk.set_head(form, HEAD)
    ids = form.encoding.encode(WRITTEN, allowed_special="all")
    parser = form.parser(None)
    turn.conversation = talk
    turn.generations = [SimpleNamespace(read=[asked], since=0, ids=ids)]
    for piece in [*parser.feed(ids), *parser.finish()]:
        if isinstance(piece, Repair):
            turn.emit(ev.AgentRepair(rule=piece.rule, at=piece.at, text=piece.text))
    thinks(turn, "Multiply: ask python.").close(True)
    calls(turn, "code_interpreter", "python", "print(123 * 456)").completed("")
    says(turn, "It is 56088: 五万六千八十八.").close(True)
    await ends(someone, turn)
    await someone.pilot.press("f8")
    await someone.sees("<|return|>")


SCENES: list[Scene] = [
    conversations, deleting, replayed, models, first, servers, server_failed, raw,
]  # fmt: skip
