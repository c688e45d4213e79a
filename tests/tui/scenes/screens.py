"""Scenes of the screens over the conversation, the first start, and the token view."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from textual.widgets import Input

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.formats.harmony.encoding import load_encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool, PromptHeader, Repair
from agent.models.catalog import Model
from agent.models.download import PullEstimate
from agent.models.download_process import Download
from agent.models.listing import ModelRow
from agent.models.machine import Machine, estimate_fit
from agent.store.conversations import Store
from agent.tiny.vocabulary import ranks
from agent.turn.options import TurnOptions
from agent.util.temporary_folders import make_temporary_folder
from tests.support.fake_app import AppDriver, FakeHost, emit_call, emit_message, emit_reasoning
from tests.tui.scenes import Scene
from tests.tui.scenes.turns import end_turn
from tools.builtin.files.journal import ChangeJournal
from tools.builtin.files.root_folder import RootFolder
from tools.config.importers import ClientServers
from tools.config.servers import ServerConfig
from tools.policy.approvals import Policy
from tools.types import Answer, ServerState, Tool
from tui.screens.changes import ChangesScreen, read_changes
from tui.screens.compare import CompareScreen
from tui.screens.dialogs import ConfirmDialog
from tui.screens.models import ModelsScreen
from tui.screens.welcome import WelcomeScreen, welcome_offers

HEAD = PromptHeader(
    "2026-01-31", python=True,
    functions=(FunctionTool("read", "Read a file.", {"type": "object", "properties": {}}, "files"),),
)  # fmt: skip
MARKUP = (
    "<|channel|>analysis<|message|>Multiply: ask python.<|end|>"
    "<|start|>assistant<|channel|>commentary to=python code<|message|>print(123 * 456)"
    "<|start|>assistant<|channel|>final<|message|>It is 56088: 五万六千八十八.<|return|>"
)
"""The second message has no end token."""
COMPARED = (
    (
        "They ask about scattering.",
        "Air scatters blue light more than red light, in all directions.",
    ),
    (
        "They ask about the colour of the sky. Rayleigh scattering goes with the fourth power.",
        "Air scatters short waves, blue light, far more than red light, in all directions.\n\nAt dusk"
        " the way is longer, and red is what is left.",
    ),
)
"""Thought and answer of two turns."""
MODELS = [
    ModelRow("tiny", (), True, True, None, "embedded", None,
        "embedded demonstration model (a few million parameters)"),
    ModelRow("gpt-oss-20b", (), False, False, None, "hub", None,
        "OpenAI gpt-oss-20b, MXFP4, about 12 GB", 12_110_000_000),
    ModelRow("gpt-oss-120b", (), False, False, None, "hub", None,
        "OpenAI gpt-oss-120b, MXFP4, about 63 GB", 63_390_000_000),
    ModelRow("qwen3-8b", (), False, True, 5_030_000_000, "pulled",
        "/home/ada/.cache/agent/models/Qwen3-8B-Q4_K_M.gguf", "Qwen3 8B, Q4_K_M, about 5 GB"),
    ModelRow("llama3.2:3b", (), False, True, 2_020_000_000, "Ollama",
        "/home/ada/.ollama/models/blobs/sha256-dde5aa3fc5ff", "llama, 3.2 B, Q4_K_M"),
]  # fmt: skip

FACTS = {
    "qwen3-8b": [
        ("Size", "5.0 GB"), ("Quantisation", "Q4_K_M"), ("Architecture", "qwen3 · 36 layers"),
        ("Trained for", "40,960 tokens"), ("Chat format", "qwen3"),
        ("Context", "32,768 tokens, KV cache f16"),
        ("Placement", "37 layers on the GPU"), ("Memory", "0.8 GB + 9.9 GB on GPU 0"),
        ("License", "apache-2.0"), ("Speed", "61 tok/s in the last turn"),
    ]
}  # fmt: skip
"""What is said of a model's file and placement."""

LAPTOP = Machine(28_000_000_000, 0, shares_memory=False, bandwidth=40e9)
"""A laptop with 32 GB of memory and no GPU."""


# --- conversations ---


@contextmanager
def at(day: int, hour: int) -> Iterator[None]:
    """Set the time of what is stored meanwhile, in January 2026, local time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: datetime(2026, 1, day, hour, 5).timestamp())
        yield


def store_conversation(store: Store, name: str, *turns: tuple[str, str]) -> None:
    """Store a conversation with these prompts and answers."""
    conversation = Conversation(name)
    conversation.vocabulary = "o200k_harmony"
    for number, (prompt, answer) in enumerate(turns):
        item = ev.MessageItem(
            id=f"msg_{number}", phase="final_answer", content=[ev.OutputText(text=answer)],
            status="completed",
        )  # fmt: skip
        response = ev.Response(
            id=f"resp_{name}_{number}", created_at=0, model="tiny", status="completed",
            output=[item],
        )  # fmt: skip
        store.begin(conversation, prompt, response)
        conversation.entries += [Entry([number], role="user"), Entry([number], role="assistant")]
        store.finish(conversation, response)


def open_store(driver: AppDriver) -> Store:
    """Give the session a store with three conversations."""
    storage = driver.session.storage
    store = storage._store = Store(driver.session.launch.root / "store.sqlite")
    with at(28, 9):
        store_conversation(store, "conv_a", ("Where is Paris?", "In France, on the Seine."),
             ("And where does that end?", "The Seine ends in the Channel, at Le Havre."))  # fmt: skip
    with at(30, 17):
        store_conversation(
            store, "conv_b", ("Write a haiku of the Seine", "Old river, slow\nA barge leaps in")
        )
    with at(31, 8):
        store_conversation(store, "conv_c", ("Sum up notes.md", "They tell of a garden."))
    driver.session.conversation = store.load("conv_b")
    return store


async def conversations(driver: AppDriver) -> None:
    open_store(driver)
    await driver.pilot.press("f5")
    await driver.expect_text("Type to search titles")
    await driver.pilot.press(*"seine")
    driver.app.screen.query_one(Input).cursor_blink = False
    await driver.expect_text("Old river")


async def deleting(driver: AppDriver) -> None:
    await conversations(driver)
    await driver.pilot.press("ctrl+d")
    await driver.expect_text("for good?")


async def replayed(driver: AppDriver) -> None:
    """A stored conversation was replayed."""
    open_store(driver)
    driver.session.replay_speed = 1e9
    await driver.app.startup.show_conversation()
    await driver.expect_text("The replay has ended")


# --- models ---


async def models(driver: AppDriver) -> None:
    download = Download("gpt-oss-20b", lambda: None)
    download.done, download.total = 4_480_000_000, 12_110_000_000
    screen = ModelsScreen(
        MODELS, lambda: MODELS, {download.name: download}, "tiny", lambda wish: None,
        lambda row: FACTS.get(row.name, ()),
    )  # fmt: skip
    await driver.app.push_screen(screen)
    await driver.pilot.press("down")
    screen.query_one(Input).cursor_blink = False
    await driver.expect_text("Downloading in the background")


async def model_details(driver: AppDriver) -> None:
    await models(driver)
    await driver.pilot.press("down", "down")
    await driver.expect_text("36 layers", "Enter switches to it")


async def first(driver: AppDriver) -> None:
    """The welcome screen of the first start."""
    cursor = ClientServers("Cursor", Path("/home/ada/.cursor/mcp.json"), {"git": {}, "time": {}})
    offered = [row for row in MODELS if row.source != "pulled"]
    examples = ["What is 123 * 456?", "List the files here", "What is 17% of 640?"]
    offers = welcome_offers("tiny", examples, offered, [cursor], LAPTOP, 186_000_000_000)
    await driver.app.push_screen(WelcomeScreen("tiny", offers))
    await driver.expect_text("Import MCP servers", "usable: on the CPU")


async def downloading(driver: AppDriver) -> None:
    """The question before a download."""
    model = Model("gpt-oss-120b", repo="ggml-org/gpt-oss-120b-GGUF")
    size = 63_390_000_000
    fit = estimate_fit(model.name, size, LAPTOP)
    estimate = PullEstimate(model, size, size, 186_000_000_000, Path("/models"), fit)
    question = f"Download {estimate.title}?\n\n{estimate.figures}"
    await driver.app.push_screen(ConfirmDialog(question, "download"))
    await driver.expect_text("does not fit in memory")


async def examples(driver: AppDriver) -> None:
    """What to ask, on the empty screen."""
    prompts = ("What is 123 * 456?", "List the files here", "What is 17% of 640?")
    runtime: Any = driver.session.runtime
    runtime.model = replace(runtime.model, examples=prompts)
    driver.app.startup.show_examples()
    await driver.expect_text("17% of 640")
    await driver.pilot.press("tab", "down")


# --- servers ---


def harmony() -> HarmonyFormat:
    return HarmonyFormat(load_encoding(ranks))


def schema(**names: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": text} for name, text in names.items()}
    return {"type": "object", "properties": properties, "required": list(names)[:1]}


LOG_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "only those that touch it"},
        "count": {"type": "integer", "default": 20},
        "order": {"enum": ["date", "topology"]},
        "authors": {
            "type": "array", "description": "only commits by one of them",
            "items": {"type": "object", "properties": {"name": {"type": "string"}},
                      "required": ["name"]},
        },
    },
    "required": ["path"],
}  # fmt: skip


class AllStatesHost(FakeHost):
    """MCP servers in every state."""

    OFFERED = (
        Tool("files", "read", "Read a file below the root.", schema(path="which"), "files__read"),
        Tool("files", "search", "Find lines that match.", schema(pattern="a regular expression"),
             "files__search"),
        Tool("git", "log", "The latest commits.", LOG_SCHEMA, "log"),
        Tool("git", "push", "Send the branch to its remote; force: whatever is there.",
             schema(remote="its name", force="yes or no"), "push"),
    )  # fmt: skip
    ORIGINS: ClassVar = {
        "git": "uvx mcp-server-git", "weather": "uvx weather", "slow": "npx slow",
        "notes": "https://notes.example.org/mcp",
    }  # fmt: skip

    def __init__(self) -> None:
        ends = "ended with exit code 1; last on its stderr: KeyError: 'WEATHER_KEY'"
        stderr = (
            'weather 0.3.1\nTraceback (most recent call last):\n  File "weather.py", line 8,'
            " in <module>\n    key = os.environ[\"WEATHER_KEY\"]\nKeyError: 'WEATHER_KEY'\n"
        )
        login = "requires a login (HTTP 401): agent mcp login notes"
        super().__init__([
            ServerState("files", "ready", ["read", "search"], transport="built in"),
            ServerState("git", "ready", ["log", "push"], protocol="2025-11-25", transport="stdio"),
            ServerState("weather", "failed", [], ends, stderr=stderr, transport="stdio"),
            ServerState("notes", "failed", [], login, transport="http"),
            ServerState("slow", "starting", [], transport="stdio"),
        ])  # fmt: skip

    def tools(self) -> list[Tool]:
        return [tool for tool in self.OFFERED if not self.is_tool_disabled(tool.server, tool.name)]

    def all_tools(self) -> list[Tool]:
        return list(self.OFFERED)

    def is_tool_disabled(self, server: str, tool: str) -> bool:
        return (server, tool) == ("files", "search")

    def server_config(self, server: str) -> ServerConfig:
        return ServerConfig(server, command_line=self.ORIGINS.get(server, ""))


async def servers(driver: AppDriver) -> None:
    """A tool whose definition has changed since it was approved."""
    host, policy, runtime = AllStatesHost(), Policy(), driver.session.runtime
    before = Tool("git", "push", "Send the branch to its remote.", schema(remote="its name"))
    policy.record_answer(before, host.server_config("git"), Answer("session"), "{}", "the person")
    runtime.host, runtime.policy, runtime.format = host, policy, harmony()  # type: ignore[assignment]
    driver.session.options = TurnOptions()
    await driver.pilot.press("f7", *["down"] * 5)
    driver.app.screen.query_one(Input).cursor_blink = False
    await driver.expect_text("+++ now")


async def tool_parameters(driver: AppDriver) -> None:
    """A tool with parameters of all kinds, nested ones too."""
    await servers(driver)
    await driver.pilot.press("up")
    await driver.expect_text("authors[].name", "default 20")


async def server_failed(driver: AppDriver) -> None:
    await servers(driver)
    await driver.pilot.press("down")
    await driver.expect_text("WEATHER_KEY")


async def approvals(driver: AppDriver) -> None:
    """What the person allowed, for this session."""
    policy = driver.session.runtime.policy = Policy()
    tool, rules = AllStatesHost.OFFERED[3], ["run git status …", "write /home/ada/fox/src/…"]
    config = AllStatesHost().server_config("git")
    policy.record_answer(tool, config, Answer("session"), "{}", "the person")
    policy.record_answer(tool, config, Answer("session"), "{}", "the person", rules=rules)
    await driver.type_text("/approvals ")
    await driver.pilot.press("enter")
    await driver.expect_text("commands that begin so")
    driver.app.screen.query_one(Input).cursor_blink = False


async def approval_revoked(driver: AppDriver) -> None:
    await approvals(driver)
    await driver.pilot.press("ctrl+d")
    await driver.expect_text("y revoke")
    await driver.pilot.press("y")
    await driver.expect_text("write /home/ada", gone="run git status")


# --- tokens ---


async def raw(driver: AppDriver) -> None:
    """The token view, with a repair of the model's markup."""
    harmony_format, session = harmony(), driver.session
    session.runtime.format = harmony_format
    turn = await driver.ask("What is 123*456?")
    user_entry = Entry(harmony_format.user_message("What is 123*456?"), role="user")
    conversation = session.conversation = Conversation(turn.conversation.id, [user_entry])
    conversation.set_header(harmony_format, HEAD)
    ids = harmony_format.encoding.encode(MARKUP, allowed_special="all")
    parser = harmony_format.parser(None)
    turn.conversation, turn.has_real_tokens = conversation, True
    turn.emit(ev.AgentPrompt(ids=conversation.prompt(harmony_format)), ev.AgentTokens(ids=ids))
    for piece in [*parser.feed(ids), *parser.finish()]:
        if isinstance(piece, Repair):
            turn.emit(ev.AgentRepair(rule=piece.rule, at=piece.at, text=piece.text))
    emit_reasoning(turn, "Multiply: ask python.").close(True)
    emit_call(turn, "code_interpreter", "python", "print(123 * 456)").completed("")
    emit_message(turn, "It is 56088: 五万六千八十八.").close(True)
    await end_turn(driver, turn)
    await driver.pilot.press("f8")
    await driver.expect_text("<|return|>")


async def compared(driver: AppDriver) -> None:
    for thought, answer in COMPARED:
        turn = await driver.ask("Why is the sky blue?")
        emit_reasoning(turn, thought).close(True)
        driver.clock.now += 4.2
        emit_message(turn, answer).close(True)
        await end_turn(driver, turn)
    left, right = driver.app.transcript.own_turns
    answers = ("as it was", left), ("effort=high", right)
    await driver.app.push_screen(CompareScreen(*answers))


async def compared_plain(driver: AppDriver) -> None:
    """What differs is told without colours too."""
    await compared(driver)


async def changed_files(driver: AppDriver) -> None:
    folder = make_temporary_folder("agent-scene-")
    root = folder / "root"
    root.mkdir()
    before = "".join(f"value_{number} = {number}\n" for number in range(1, 31))
    (root / "values.py").write_text(before)
    after = before.replace("_3 = 3\n", '_3 = "three"  # a word\n').replace("value_25 = 25\n", "")
    journal = ChangeJournal(RootFolder(root), folder / "undo")
    journal.make({root / "values.py": after.encode()}, "resp_1")
    journal.make({root / "new.txt": b"one line\n"}, "resp_2")
    turns = {"resp_1": "1 ❯ Write three as a word", "resp_2": "2 ❯ Now a new file"}
    screen = ChangesScreen(journal, turns, read_changes(journal, turns), lambda _: None)
    await driver.app.push_screen(screen)
    await driver.pilot.press("down", "down", "down")
    await driver.expect_text("# a word", "25    - value_25")


async def changed_files_plain(driver: AppDriver) -> None:
    """Signs and numbers tell without colours what is new."""
    await changed_files(driver)


PLAIN: list[Scene] = [compared_plain, changed_files_plain]
SCENES: list[Scene] = [
    compared, changed_files, *PLAIN,
    conversations, deleting, replayed, models, model_details, first, downloading, examples, servers,
    tool_parameters, server_failed, approvals, approval_revoked, raw,
]  # fmt: skip
