"""MCP servers that behave, and servers that do not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.hosts import Hosting, alive, server, tool, until
from tools import process_groups
from tools.builtin.files.server import Files
from tools.builtin.python.server import Python
from tools.config.servers import ServerConfig
from tools.mcp import host as host_module
from tools.mcp.host import Host
from tools.sandbox.isolation import Isolation
from tools.types import Tool

UNKNOWN = Tool("plain", "nothing", "", {})


@pytest.fixture
async def plain(hosting: Hosting, tmp_path: Path) -> Host:
    host = hosting(server("plain"), results=tmp_path / "results")
    await host.start()
    await host.settled()
    return host


async def test_calls_of_every_kind(plain: Host, tmp_path: Path) -> None:
    said = await plain.call(tool(plain, "plain__echo"), {"text": "hello"})
    assert (said.text, said.failure) == ("hello", "none")
    assert said.content == [{"type": "text", "text": "hello"}]
    assert tool(plain, "plain__echo").read_only
    assert tool(plain, "plain__echo").description == "Say it again."

    failed = await plain.call(tool(plain, "plain__fail"), {})
    assert failed.failure == "execution"
    assert "the moon is in the way" in failed.text

    seen = await plain.call(tool(plain, "plain__picture"), {})
    dot, image, link = seen.text.splitlines()
    assert (dot, link) == ("a dot", "[resource link more file:///more]")
    assert image.startswith(f"[image image/png, 12 kB, kept in {tmp_path}/results/result-")
    assert seen.content[1]["mimeType"] == "image/png"

    table = await plain.call(tool(plain, "plain__table"), {})
    assert table.text.count("rows") == 1

    wrong = await plain.call(tool(plain, "plain__echo"), {"words": 1})
    assert wrong.failure == "execution"

    odd = next(one for one in plain.tools() if one.name == "a.b c-é")
    assert odd.model_name == "plain__a_b_c_e"
    assert (await plain.call(odd, {})).text == "odd"

    gone = await plain.call(UNKNOWN, {})
    assert (gone.failure, gone.code) == ("protocol", -32602)
    assert "nothing" in gone.text
    nowhere = await plain.call(Tool("nowhere", "x", "", {}), {})
    assert (nowhere.failure, nowhere.text) == ("protocol", "Error: no such server: nowhere")


async def test_a_result_of_5_mb_is_cut_for_the_model_and_kept_whole(plain: Host) -> None:
    big = await plain.call(tool(plain, "plain__big"), {"size": 5_000_000})
    assert big.failure == "none"
    assert len(big.text) <= 32_000
    assert big.text[0] == "a" and big.text[-1] == "z"
    assert "of 5,000,000 characters left out" in big.text
    assert big.whole is not None
    assert Path(big.whole).stat().st_size == 5_000_000
    assert Path(big.whole).stat().st_mode & 0o077 == 0


async def test_progress_is_passed_on(plain: Host) -> None:
    seen: list[tuple[float, float | None, str | None]] = []
    done = await plain.call(
        tool(plain, "plain__count"), {"to": 3}, on_progress=lambda *step: seen.append(step)
    )
    assert done.text == "counted"
    await until(lambda: len(seen) == 3)
    assert seen[-1] == (3, 3, "step 3")


async def test_cancelling_the_caller_cancels_the_tool(plain: Host, tmp_path: Path) -> None:
    started, cancelled = tmp_path / "started", tmp_path / "cancelled"
    call = asyncio.create_task(
        plain.call(
            tool(plain, "plain__wait"), {"started": str(started), "cancelled": str(cancelled)}
        )
    )
    await until(started.exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(cancelled.exists)
    assert (await plain.call(tool(plain, "plain__echo"), {"text": "on"})).text == "on"


async def test_a_server_that_hangs_at_its_start_delays_nobody(hosting: Hosting) -> None:
    host = hosting(
        server("hostile", "hang", startup_timeout_sec=1.0, required=True), server("plain")
    )
    await host.start()
    assert [one.status for one in host.servers()] == ["starting", "starting"]
    await until(lambda: host.servers()[1].status == "ready")
    await host.settled()
    hung = host.servers()[0]
    assert (hung.status, hung.required) == ("failed", True)
    assert hung.error == "did not answer within 1 s of its start"


async def test_only_who_is_needed_is_waited_for(hosting: Hosting) -> None:
    host = hosting(server("hostile", "hang"), server("plain"))
    await host.start()
    await host.settled({"plain"})
    await host.settled(patience=0.01)
    assert [one.status for one in host.servers()] == ["starting", "ready"]


async def test_a_server_that_fails_says_why(hosting: Hosting, tmp_path: Path) -> None:
    host = hosting(
        server("hostile", "refuse"),
        ServerConfig("absent", command="no-such-command-anywhere"),
        ServerConfig("folder", command=sys.executable, cwd=str(tmp_path / "none")),
        ServerConfig("old", command=sys.executable, args=("-c", "from mcp import FastMCPX")),
        ServerConfig("unset", problem="mcp.json: the environment variable KEY is not set"),
        server("plain", name="off", enabled=False),
    )
    await host.start()
    await host.settled()
    errors = {one.name: one.error or "" for one in host.servers()}
    assert host.servers()[0].stderr == "cannot find the database"
    assert errors["hostile"] == ("ended with exit code 3; its last words: cannot find the database")
    assert errors["absent"] == "cannot be started: no such command: no-such-command-anywhere"
    assert "no such folder" in errors["folder"]
    assert "uvx --with 'mcp<2'" in errors["old"]
    assert "KEY is not set" in errors["unset"]
    assert [one.status for one in host.servers()] == ["failed"] * 5 + ["disabled"]
    assert list(host.tools()) == []
    failed = await host.call(Tool("unset", "x", "", {}), {})
    assert (failed.failure, failed.code) == ("protocol", -32000)
    assert "KEY is not set" in failed.text


async def test_a_server_that_failed_is_tried_again(hosting: Hosting, tmp_path: Path) -> None:
    host = hosting(server("hostile", "once", str(tmp_path / "mark")))
    await host.start()
    await host.settled()
    assert host.servers()[0].status == "failed"
    await until(lambda: host.servers()[0].status == "ready")
    assert (await host.call(tool(host, "hostile__ping"), {})).text == "pong"


async def test_a_server_that_was_reconnected_may_fail_again(
    hosting: Hosting, tmp_path: Path
) -> None:
    host = hosting(server("hostile", "once", str(tmp_path / "mark")))
    await host.start()
    await host.settled()
    host.reconnect("hostile")
    await until(lambda: host.servers()[0].status == "ready")
    await host.call(tool(host, "hostile__die"), {})
    await until(lambda: host.servers()[0].status == "failed")


async def test_dying_in_a_call_is_a_clean_error_and_the_next_call_works(hosting: Hosting) -> None:
    host = hosting(server("hostile", "well"))
    await host.start()
    await host.settled()
    died = await host.call(tool(host, "hostile__die"), {})
    assert (died.failure, died.code) == ("protocol", -32000)
    assert died.text.startswith("Error: the server hostile ended with exit code 7 before")
    assert "out of cheese" in died.text
    assert host.tools()  # a conversation's tools do not come and go
    assert (await host.call(tool(host, "hostile__ping"), {})).text == "pong"


async def test_what_a_restarted_server_says_of_its_tools_counts(
    hosting: Hosting, tmp_path: Path
) -> None:
    host = hosting(server("hostile", "change", str(tmp_path / "mark")))
    await host.start()
    await host.settled()
    before = tool(host, "hostile__ping")
    assert before.description == "First." and tool(host, "hostile__ping") is before
    await host.call(tool(host, "hostile__die"), {})
    changed = await host.call(before, {})
    assert changed.text == "Error: the server hostile has just changed ping; call it again"
    now = tool(host, "hostile__ping")
    assert now.description == "Second." and await host.current(before) is now
    assert (await host.call(now, {})).text == "pong"


async def test_kill_9_is_noticed_without_a_call(hosting: Hosting) -> None:
    host = hosting(server("hostile", "well"))
    await host.start()
    await host.settled()
    first = int((await host.call(tool(host, "hostile__process"), {})).text)
    call = asyncio.create_task(host.call(tool(host, "hostile__hang"), {}))
    await asyncio.sleep(0)
    os.kill(first, signal.SIGKILL)
    assert (await call).failure == "protocol"
    await until(lambda: host.servers()[0].status == "failed")
    assert "was killed by signal 9" in (host.servers()[0].error or "")
    second = await host.call(tool(host, "hostile__process"), {})
    assert second.failure == "none"
    assert int(second.text) != first


async def test_a_tool_that_hangs_times_out(hosting: Hosting) -> None:
    host = hosting(server("hostile", "well", tool_timeout_sec=0.3))
    await host.start()
    await host.settled()
    hung = await host.call(tool(host, "hostile__hang"), {})
    assert (hung.failure, hung.code) == ("protocol", -32001)
    assert hung.text == "Error: the server hostile did not answer within 0.3 s"


async def test_junk_on_stdout_is_survived(hosting: Hosting) -> None:
    host = hosting(server("hostile", "junk"))
    await host.start()
    await host.settled()
    assert (await host.call(tool(host, "hostile__shout"), {})).text == "said"
    assert (await host.call(tool(host, "hostile__ping"), {})).text == "pong"


async def test_nothing_is_left_after_close(hosting: Hosting, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    host = hosting(server("hostile", "orphan", str(note)), server("plain"))
    await host.start()
    await host.settled()
    pids = [int(note.read_text()), *(child.pid for child in psutil.Process().children(True))]
    await host.close()
    await until(lambda: not any(alive(pid) for pid in pids))
    assert (await host.call(UNKNOWN, {})).failure == "protocol"


async def test_all_can_be_killed_at_once(hosting: Hosting, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    host = hosting(server("hostile", "orphan", str(note)), server("plain"))
    await host.start()
    await host.settled()
    pids = [int(note.read_text()), *(child.pid for child in psutil.Process().children())]
    assert len(process_groups.groups) == 2
    process_groups.kill_all()
    await until(lambda: not any(alive(pid) for pid in pids))
    await host.close()
    assert not process_groups.groups
    process_groups.kill_all()


async def test_an_orphan_of_a_dead_server_is_ended(hosting: Hosting, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    host = hosting(server("hostile", "orphan", str(note)))
    await host.start()
    await host.settled()
    orphan = int(note.read_text())
    assert (await host.call(tool(host, "hostile__die"), {})).failure == "protocol"
    await until(lambda: not alive(orphan))


@pytest.mark.parametrize("moment", ["at once", "importing", "connecting"])
async def test_close_may_race_with_start(hosting: Hosting, moment: str) -> None:
    host = hosting(server("hostile", "hang"), server("plain"))
    await host.start()
    if moment == "importing":
        await asyncio.sleep(0)
    if moment == "connecting":
        await until(lambda: len(psutil.Process().children()) >= 2)
    await host.close()
    await until(lambda: not psutil.Process().children(True))
    await host.settled()  # does not wait for what will never come


def test_the_sdk_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, asyncio\n"
        "from tools.factory import assemble\n"
        "box = assemble()\n"
        "assert [t.model_name for t in box.host.tools()] =="
        " ['python', 'files__read', 'files__list', 'files__search']\n"
        "assert all(s.status == 'ready' for s in box.host.servers())\n"
        "heavy = {'mcp', 'anyio', 'pydantic', 'httpx2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    root = Path(host_module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


async def test_a_hand_is_connected_when_a_call_is_near(hosting: Hosting, tmp_path: Path) -> None:
    host = hosting(ServerConfig("files", hand=Files(tmp_path)))
    await host.start()
    await host.settled()
    (before,) = host.servers()
    host.begin("files")
    await until(lambda: host.servers()[0].protocol)
    assert (before.status, before.protocol) == ("ready", "") and len(host.tools()) > 1


async def test_a_chosen_tool_that_a_server_lacks_is_told(hosting: Hosting) -> None:
    host = hosting(server("plain", enabled_tools=("echo", "ecko"), disabled_tools=("big",)))
    await host.start()
    await host.settled()
    (state,) = host.servers()
    assert (state.status, state.tools) == ("ready", ["echo"])
    assert state.error == "has no tool ecko"
    refused = await host.call(Tool("plain", "fail", "", {}), {})
    assert (refused.failure, refused.code) == ("protocol", -32602)


async def test_an_older_server_and_a_hand_side_by_side(hosting: Hosting, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    host = hosting(
        ServerConfig("time", command=sys.executable, args=("-m", "mcp_server_time")),
        ServerConfig("files", hand=Files(tmp_path)),
    )
    await host.start()
    await host.settled()
    names = [one.model_name for one in host.tools()]
    assert names[:2] == ["time__get_current_time", "time__convert_time"]
    now = await host.call(tool(host, "time__get_current_time"), {"timezone": "Europe/Berlin"})
    assert "Europe/Berlin" in now.text
    assert (await host.call(tool(host, "files__read"), {"path": "a.txt"})).text == "hello"


async def test_names_of_files_that_are_not_utf_8_are_listed(
    hosting: Hosting, tmp_path: Path
) -> None:
    try:
        Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).write_text("hello")
    except OSError:
        pytest.skip("no such names here")
    host = hosting(ServerConfig("files", hand=Files(tmp_path)))
    for name, arguments in (("list", {}), ("search", {"query": "hello"})):
        found = await host.call(tool(host, f"files__{name}"), arguments)
        assert found.text.startswith("?.txt")
    missing = await host.call(tool(host, "files__read"), {"path": "\udcff"})
    assert missing.text == "Error: no such file: ?"


async def test_a_hand_that_cannot_work_is_not_offered(hosting: Hosting, tmp_path: Path) -> None:
    bare = Python(isolation=Isolation("none", "nothing works here", False))
    host = hosting(ServerConfig(bare.name, hand=bare, required=True))
    await host.start()
    await host.settled()
    (state,) = host.servers()
    assert (state.status, state.error) == ("failed", "is not available: nothing works here")
    assert list(host.tools()) == []
    refused = await host.call(Python.tools[0], {"code": "1"})
    assert (refused.failure, refused.code) == ("protocol", -32000)
    assert refused.text == (
        "Error: the server code_interpreter is not available: nothing works here"
    )


async def test_a_hand_streams_its_output_through_the_host(hosting: Hosting) -> None:
    hand = Python()
    host = hosting(ServerConfig(hand.name, hand=hand))
    seen: list[tuple[str, str]] = []
    result = await host.call(
        Python.tools[0], {"code": "print(6*7)"}, on_output=lambda *part: seen.append(part)
    )
    if result.failure == "protocol":
        pytest.skip(result.text)
    assert result.text == "42"
    assert "".join(text for _, text in seen) == "42\n"
    failed = await host.call(Python.tools[0], {"code": "1/0"})
    assert (failed.failure, failed.code) == ("execution", 0)
    missing = await host.call(Python.tools[0], {})
    assert missing.text == "Error: missing argument: code"
