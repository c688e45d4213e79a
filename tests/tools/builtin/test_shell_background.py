"""Commands in the background: read, written to, stopped, and ended with whatever they belong to."""

import asyncio
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.util.temporary_folders import process_folder
from tests.support.commands import Commands
from tests.support.hosts import Children
from tests.support.runtimes import MakeRuntime
from tests.support.turns import FINAL, run_turn, write_script
from tests.support.waiting import HANG_SECONDS, wait_until
from tools.builtin.shell.process import MAX_PER_CONVERSATION, MAX_UNREAD_CHARS, BackgroundCommand
from tools.builtin_server import StructuredText, ToolError, conversation_id
from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.policy.approvals import Policy
from tools.policy.rules import OnceOnlyError
from tools.policy.taint import Exposure
from tools.sandbox import isolation
from tools.sandbox.isolation import NETWORK_ISOLATION
from tools.types import Tool

LONG = f"4712.{os.getpid()}"
"""Seconds to sleep, as no other process of this machine does."""
ROOT = Path(__file__).parents[3]


def living() -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if LONG in (p.info["cmdline"] or ())]


class Background:
    """Calls of the shell's tools on commands in the background."""

    def __init__(self, shell: Commands) -> None:
        self.shell, self.builtin = shell, shell.builtin
        self.seen: defaultdict[str, str] = defaultdict(str)
        """All that was answered, by the id of the command."""

    async def start(self, line: str, **more: Any) -> tuple[str, str]:
        """Start a command; its id and what was answered."""
        arguments = {"cmd": ["bash", "-c", line], "background": True, **more}
        result = await self.builtin.call("exec", arguments)
        assert isinstance(result, StructuredText)
        self.seen[result.structured["id"]] += result.text
        return result.structured["id"], result.text

    async def call(self, name: str, id: str, **more: Any) -> str:
        result = await self.builtin.call(name, {"id": id, **more})
        assert isinstance(result, str)
        self.seen[id] += result
        return result

    async def read_until(self, id: str, text: str) -> str:
        async with asyncio.timeout(HANG_SECONDS):
            while text not in self.seen[id]:
                await self.call("read", id)
        return self.seen[id]


@pytest.fixture
async def background(shell: Commands, children: Children) -> AsyncIterator[Background]:
    conversation_id.set("one")
    yield Background(shell)
    await shell.builtin.close()
    assert not children() and not living()
    assert not list(process_folder().glob("agent-shell-*"))


async def test_background_read_write_and_end(background: Background) -> None:
    id, _ = await background.start("echo ready; while read -r x; do echo got $x; done; exit 3")
    await background.read_until(id, "ready")
    assert background.builtin.running()[id].startswith(f"{id}: echo ready; while")
    await background.call("write", id, text="a\nb\n")
    await background.call("write", id, text="ü\n")
    seen = await background.read_until(id, "got ü\n")
    assert "got a\n" in seen and "got b\n" in seen and "[exit code" not in seen
    (background.builtin.root / "stop").touch()
    id2, _ = await background.start("until test -e stop2; do sleep 0.05; done; echo over")
    (background.builtin.root / "stop2").touch()
    assert "over\n" in await background.read_until(id2, "[exit code 0]")
    with pytest.raises(ToolError, match=f"no command {id2} runs here; there is: {id}"):
        await background.call("read", id2)
    text = await background.call("stop", id)
    assert text.endswith("[exit code 137]")
    assert background.builtin.running() == {} and "Error" not in text


async def test_background_output_comes_once_and_is_bounded(background: Background) -> None:
    id, _ = await background.start(f"seq 500000; echo end; sleep {LONG}")
    entry = background.builtin.background.find(id, "one")
    await wait_until(lambda: entry.unread.endswith("end\n"))
    text = await background.call("read", id)
    assert text.startswith("[... ") and len(text) < MAX_UNREAD_CHARS + 200
    assert text.endswith(f"500000\nend\n[{id} is running]")
    assert await background.call("read", id, timeout=0) == f"[{id} is running]"


async def test_background_flood_leaves_loop_to_others(background: Background) -> None:
    id, _ = await background.start("exec cat /dev/zero")
    entry = background.builtin.background.find(id, "one")
    await wait_until(lambda: entry.dropped > 1_000_000)
    assert len(entry.unread) <= MAX_UNREAD_CHARS
    assert "here\n" in await background.shell("echo here")


async def test_background_is_of_its_conversation(background: Background) -> None:
    id, _ = await background.start(f"sleep {LONG} & sleep {LONG}")
    await wait_until(lambda: len(living()) == 2)
    conversation_id.set("two")
    for name, more in (("read", {}), ("write", {"text": "x"}), ("stop", {})):
        with pytest.raises(ToolError, match=f"no command {id} runs here; there is: none"):
            await background.call(name, id, **more)
    host = Host([ServerConfig("shell", builtin=background.builtin)])
    host.builtins.end_conversation("other")
    host.builtins.end_conversation("one", "two")
    assert "is running" in await background.call("read", id, timeout=0)
    host.builtins.end_conversation("two")
    assert background.builtin.running() == {}
    await wait_until(lambda: not living())


@pytest.mark.long
async def test_background_number_is_bounded(background: Background) -> None:
    ids = [(await background.start(f"sleep {LONG}"))[0] for _ in range(MAX_PER_CONVERSATION)]
    with pytest.raises(ToolError, match="4 commands run in the background; stop one"):
        await background.start("true")
    await background.call("stop", ids[0])
    id, _ = await background.start("echo more")
    await background.read_until(id, "more")


async def test_background_too_many_conversations_longest_idle_makes_way(
    background: Background,
) -> None:
    commands = background.builtin.background
    for n in range(16):
        commands.reserve(f"c{n}", "x", isolation.NetworkAccess())
    with pytest.raises(ToolError, match="other conversations run too many"):
        await background.start("true")
    oldest: BackgroundCommand = commands.listed("c5")[0]
    oldest.used_at -= 4000
    id, _ = await background.start("echo here")
    assert "here" in await background.read_until(id, "here") and not commands.listed("c5")


async def test_background_keeps_limits(background: Background) -> None:
    id, _ = await background.start("for i in $(seq 200); do setsid sleep 20 & done; wait")
    assert "more than 40 processes" in await background.read_until(id, "[exit code 137]")
    with pytest.raises(ToolError, match="cannot have changes_git"):
        await background.start("true", changes_git=True)
    id, _ = await background.start("mkdir .vscode; echo 1 > .vscode/tasks.json; cat")
    text = await background.call("stop", id)
    if (background.builtin.root / ".vscode.refused").exists():  # Landlock may refuse it at once
        assert ".vscode" in text and "is now" in text
    assert not (background.builtin.root / ".vscode").exists()


async def test_background_loopback_serves_what_it_is_written(background: Background) -> None:
    if background.shell.isolation != NETWORK_ISOLATION:
        pytest.skip("no network here")
    (background.builtin.root / "page").write_text("served")
    id, _ = await background.start(
        "python3 -m http.server 8765 --bind 127.0.0.1 2>/dev/null >&2 & exec bash",
        network=["loopback"],
    )
    fetch = "until curl -sf http://localhost:8765/page; do sleep 0.1; done\n"
    await background.call("write", id, text=fetch)
    await background.read_until(id, "served")


KILLED = """
import asyncio, sys
from pathlib import Path
from tools.builtin.shell.server import ShellServer
from tools.sandbox.isolation import Isolation

async def main():
    shell = ShellServer(Path(sys.argv[1]), isolation=Isolation(sys.argv[2], "", True))
    line = f"trap '' TERM HUP; setsid sleep {sys.argv[3]} & echo on; sleep {sys.argv[3]}"
    result = await shell.call("exec", {"cmd": ["bash", "-c", line], "background": True})
    print("started", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_background_ends_when_this_program_is_killed(shell: Commands) -> None:
    words = [sys.executable, "-c", KILLED, str(shell.builtin.root), shell.isolation, LONG]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, cwd=ROOT)
    assert process.stdout is not None
    await process.stdout.readline()
    await wait_until(lambda: len(living()) == 3)  # this one is one of them
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await wait_until(lambda: not living())


async def test_background_write_needs_a_permission_of_its_own(background: Background) -> None:
    builtin, policy = background.builtin, Policy()
    config = ServerConfig("shell", builtin=builtin)
    tools = {tool.name: tool for tool in builtin.tools}
    started = await builtin.call("exec", {"cmd": ["python3", "-i"], "background": True})
    assert isinstance(started, StructuredText)
    arguments = {"id": started.structured["id"], "text": "1+1\n"}
    for name in ("read", "stop"):
        assert policy.decide(tools[name], config, {"id": "bg1"}).decision == "allow"
    verdict = policy.decide(tools["write"], config, arguments)
    assert (verdict.decision, verdict.rules) == ("ask", ("type to python3 -i",))
    policy.allow_rule("type to python3 -i")
    assert policy.decide(tools["write"], config, arguments).decision == "allow"
    assert "python3 -i\n1+1" in (builtin.preview("write", arguments) or "")
    id, _ = await background.start("cat")
    assert policy.decide(tools["write"], config, {"id": id, "text": ""}).rules == ()
    with pytest.raises(OnceOnlyError, match="a shell does whatever"):
        builtin.requirements("write", {"id": id, "text": ""})
    if background.shell.isolation == NETWORK_ISOLATION:
        id, _ = await background.start("cat", network=["a.example:22"])
        (extra,) = builtin.extra_permissions("write", {"id": id, "text": ""})
        read = Exposure.of([(Tool("files", "read", "", {}), False)], ())
        asks = policy.decide_extra(tools["write"], config, extra, read)
        assert asks.decision == "ask" and "could send off" in asks.reason
        assert policy.decide_extra(tools["write"], config, extra, Exposure()).decision == "allow"
        assert "may reach a.example:22" in builtin.access(["exec"]).running[-1]


async def test_turn_background_command_ends_with_the_runtime(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    line = f'{{"cmd": ["sleep", "{LONG}"], "background": true}}'
    call = f"<|channel|>commentary to=container.exec <|constrain|>json<|message|>{line}<|call|>"
    script = write_script(tmp_path / "s.jsonl", {"markup": call}, {"markup": FINAL})
    (root := tmp_path / "root").mkdir()
    runtime = await make_runtime(script, tools="shell", root=root, approve="shell")
    events = await run_turn(runtime)
    outputs = [e["item"]["output"] for e in events if e.get("item", {}).get("type") == "mcp_call"]
    assert "bg1 is running" in outputs[-1]
    running = [id for builtin in runtime.host.builtins for id in builtin.running()]
    assert running == ["bg1"]
    await wait_until(living)
    await runtime.close()
    assert not living()
