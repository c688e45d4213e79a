"""MCP servers that behave, and servers that do not."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hosts import Children, MakeHost, is_alive, server, tool
from tests.support.waiting import HANG_SECONDS, wait_until
from tools import process_groups
from tools.builtin.files.server import FilesServer
from tools.builtin.python.server import PythonServer
from tools.config.servers import ServerConfig
from tools.mcp import host as host_module
from tools.mcp.host import Host
from tools.sandbox.isolation import Isolation
from tools.types import Tool

UNKNOWN = Tool("plain", "nothing", "", {})


@pytest.fixture
async def plain(make_host: MakeHost, tmp_path: Path) -> Host:
    host = make_host(server("plain"), results_folder=tmp_path / "results")
    await host.start()
    await host.wait_started()
    return host


async def test_call_result_kinds(plain: Host, tmp_path: Path) -> None:
    result = await plain.call(tool(plain, "plain__echo"), {"text": "hello"})
    assert (result.text, result.failure) == ("hello", "none")
    assert result.content == [{"type": "text", "text": "hello"}]
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
    assert (nowhere.failure, nowhere.text) == ("protocol", "no such server: nowhere")


async def test_call_result_of_5_mb_shortened_and_saved(plain: Host) -> None:
    big = await plain.call(tool(plain, "plain__big"), {"size": 5_000_000})
    assert big.failure == "none"
    assert len(big.text) <= 32_000
    assert big.text[0] == "a" and big.text[-1] == "z"
    assert "of 5,000,000 characters left out" in big.text
    assert big.full_text_path is not None
    assert Path(big.full_text_path).stat().st_size == 5_000_000
    assert Path(big.full_text_path).stat().st_mode & 0o077 == 0


async def test_call_progress_passed_on(plain: Host) -> None:
    seen: list[tuple[float, float | None, str | None]] = []
    done = await plain.call(
        tool(plain, "plain__count"), {"to": 3}, on_progress=lambda *step: seen.append(step)
    )
    assert done.text == "counted"
    await wait_until(lambda: len(seen) == 3)
    assert seen[-1] == (3, 3, "step 3")


async def test_call_cancelled_cancels_tool(plain: Host, tmp_path: Path) -> None:
    started, cancelled = tmp_path / "started", tmp_path / "cancelled"
    call = asyncio.create_task(
        plain.call(
            tool(plain, "plain__wait"), {"started": str(started), "cancelled": str(cancelled)}
        )
    )
    await wait_until(started.exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await wait_until(cancelled.exists)
    assert (await plain.call(tool(plain, "plain__echo"), {"text": "on"})).text == "on"


async def test_hanging_start_times_out_alone(make_host: MakeHost) -> None:
    host = make_host(
        server("hostile", "hang", startup_timeout_sec=1.0, required=True), server("plain")
    )
    await host.start()
    assert [one.status for one in host.server_states()] == ["starting", "starting"]
    await wait_until(lambda: host.server_states()[1].status == "ready")
    await host.wait_started()
    hung = host.server_states()[0]
    assert (hung.status, hung.required) == ("failed", True)
    hint = '("startup_timeout_sec" in its settings allows more)'
    assert hung.error == f"did not answer within 1 s of its start {hint}"


async def test_wait_started_only_named_servers(make_host: MakeHost) -> None:
    host = make_host(server("hostile", "hang"), server("plain"))
    await host.start()
    await host.wait_started({"plain"})
    assert [one.status for one in host.server_states()] == ["starting", "ready"]


@pytest.mark.long
async def test_wait_for_turn_only_active_named_and_required(make_host: MakeHost) -> None:
    """Nobody waits for a server that does nothing, unless it is wanted for sure."""
    host = make_host(server("hostile", "hang", name="idle"), server("plain"))
    await host.start()
    waiting = asyncio.create_task(host.wait_for_turn("What is idleness?"))
    await wait_until(lambda: host.server_states()[1].status == "ready")
    await waiting
    assert [one.status for one in host.server_states()] == ["starting", "ready"]

    for text, required in (("Ask HUNG, please", False), ("hello", True)):
        config = server("hostile", "hang", name="hung", startup_timeout_sec=3.0, required=required)
        wanted = make_host(config)
        await wanted.start()
        await wanted.wait_for_turn(text, timeout=0.01)
        assert [one.status for one in wanted.server_states()] == ["failed"]


@pytest.mark.long
async def test_failed_server_states_reason(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(
        server("hostile", "refuse"),
        ServerConfig("absent", command="no-such-command-anywhere"),
        ServerConfig("folder", command=sys.executable, cwd=str(tmp_path / "none")),
        ServerConfig("old", command=sys.executable, args=("-c", "from mcp import FastMCPX")),
        ServerConfig("unset", problem="mcp.json: the environment variable KEY is not set"),
        server("plain", name="off", enabled=False),
    )
    await host.start()
    await host.wait_started()
    errors = {one.name: one.error or "" for one in host.server_states()}
    assert host.server_states()[0].stderr == "cannot find the database"
    assert errors["hostile"] == (
        "ended with exit code 3; last on its stderr: cannot find the database"
    )
    assert errors["absent"] == "cannot be started: no such command: no-such-command-anywhere"
    assert "no such folder" in errors["folder"]
    assert "uvx --with 'mcp<2'" in errors["old"]
    assert "KEY is not set" in errors["unset"]
    assert [one.status for one in host.server_states()] == ["failed"] * 5 + ["disabled"]
    assert list(host.tools()) == []
    failed = await host.call(Tool("unset", "x", "", {}), {})
    assert (failed.failure, failed.code) == ("protocol", -32000)
    assert "KEY is not set" in failed.text


async def test_failed_server_retried(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(server("hostile", "once", str(tmp_path / "mark")))
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].status == "failed"
    await wait_until(lambda: host.server_states()[0].status == "ready")
    assert (await host.call(tool(host, "hostile__ping"), {})).text == "pong"


async def test_reconnected_server_can_fail_again(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(server("hostile", "once", str(tmp_path / "mark")))
    await host.start()
    await host.wait_started()
    host.reconnect("hostile")
    await wait_until(lambda: host.server_states()[0].status == "ready")
    await host.call(tool(host, "hostile__die"), {})
    await wait_until(lambda: host.server_states()[0].status == "failed")


async def test_call_server_dies_next_call_works(make_host: MakeHost) -> None:
    host = make_host(server("hostile", "well"))
    await host.start()
    await host.wait_started()
    died = await host.call(tool(host, "hostile__die"), {})
    assert (died.failure, died.code) == ("protocol", -32000)
    assert died.text.startswith("the server hostile ended with exit code 7 before")
    assert "out of cheese" in died.text
    assert host.tools()  # a conversation's tools do not come and go
    assert (await host.call(tool(host, "hostile__ping"), {})).text == "pong"


async def test_call_changed_definition_refused(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(server("hostile", "change", str(tmp_path / "mark")))
    await host.start()
    await host.wait_started()
    before = tool(host, "hostile__ping")
    assert before.description == "First." and tool(host, "hostile__ping") is before
    await host.call(tool(host, "hostile__die"), {})
    changed = await host.call(before, {})
    assert changed.text == "the server hostile has just changed ping; call it again"
    now = tool(host, "hostile__ping")
    assert now.description == "Second." and await host.refresh_definition(before) is now
    assert (await host.call(now, {})).text == "pong"


async def test_killed_server_noticed_and_restarted(make_host: MakeHost) -> None:
    host = make_host(server("hostile", "well"))
    await host.start()
    await host.wait_started()
    first = int((await host.call(tool(host, "hostile__process"), {})).text)
    call = asyncio.create_task(host.call(tool(host, "hostile__hang"), {}))
    await asyncio.sleep(0)
    os.kill(first, signal.SIGKILL)
    assert (await call).failure == "protocol"
    await wait_until(lambda: host.server_states()[0].status == "failed")
    assert "was killed by signal 9" in (host.server_states()[0].error or "")
    second = await host.call(tool(host, "hostile__process"), {})
    assert second.failure == "none"
    assert int(second.text) != first


async def test_call_hanging_tool_times_out(make_host: MakeHost) -> None:
    host = make_host(server("hostile", "well", tool_timeout_sec=0.3))
    await host.start()
    await host.wait_started()
    hung = await host.call(tool(host, "hostile__hang"), {})
    assert (hung.failure, hung.code) == ("protocol", -32001)
    assert hung.text == "the server hostile did not answer within 0.3 s"


async def test_call_progress_extends_timeout(make_host: MakeHost) -> None:
    host = make_host(server("plain", tool_timeout_sec=4.0))
    await host.start()
    await host.wait_started()
    assert (await host.call(tool(host, "plain__steps"), {"seconds": 5})).text == "arrived"


async def test_call_progress_extends_timeout_not_forever(make_host: MakeHost) -> None:
    host = make_host(server("plain", tool_timeout_sec=0.3))
    await host.start()
    await host.wait_started()
    endless = await host.call(tool(host, "plain__steps"), {"seconds": 600})
    assert (endless.failure, endless.code) == ("protocol", -32001)
    # On a machine that is busy the pauses between two steps may be too long.
    assert endless.text in (
        "the server plain did not answer within 3 s, in spite of its progress",
        "the server plain reported no progress for 0.3 s",
    )


async def test_junk_on_stdout_ignored(make_host: MakeHost) -> None:
    host = make_host(server("hostile", "junk"))
    await host.start()
    await host.wait_started()
    assert (await host.call(tool(host, "hostile__shout"), {})).text == "said"
    assert (await host.call(tool(host, "hostile__ping"), {})).text == "pong"
    died = await host.call(tool(host, "hostile__die"), {})
    assert "out of cheese" in died.text and "stdout" not in died.text


async def test_close_leaves_no_process(
    make_host: MakeHost, tmp_path: Path, children: Children
) -> None:
    note = tmp_path / "pid"
    host = make_host(server("hostile", "orphan", str(note)), server("plain"))
    await host.start()
    await host.wait_started()
    pids = [int(note.read_text()), *(child.pid for child in children())]
    await host.close()
    await wait_until(lambda: not any(is_alive(pid) for pid in pids))
    assert (await host.call(UNKNOWN, {})).failure == "protocol"


async def test_kill_all_ends_servers(
    make_host: MakeHost, tmp_path: Path, children: Children
) -> None:
    note = tmp_path / "pid"
    host = make_host(server("hostile", "orphan", str(note)), server("plain"))
    await host.start()
    await host.wait_started()
    pids = [int(note.read_text()), *(child.pid for child in children())]
    assert len(process_groups.active_groups) == 2
    process_groups.kill_all()
    await wait_until(lambda: not any(is_alive(pid) for pid in pids))
    await host.close()
    assert not process_groups.active_groups
    process_groups.kill_all()


async def test_dead_server_orphan_is_ended(make_host: MakeHost, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    host = make_host(server("hostile", "orphan", str(note)))
    await host.start()
    await host.wait_started()
    orphan = int(note.read_text())
    assert (await host.call(tool(host, "hostile__die"), {})).failure == "protocol"
    await wait_until(lambda: not is_alive(orphan))


@pytest.mark.parametrize("moment", ["at once", "importing", "connecting"])
async def test_close_during_start(make_host: MakeHost, moment: str, children: Children) -> None:
    host = make_host(server("hostile", "hang"), server("plain"))
    await host.start()
    if moment == "importing":
        await asyncio.sleep(0)
    if moment == "connecting":
        await wait_until(lambda: len(children()) >= 2)
    await host.close()
    await wait_until(lambda: not children())
    await host.wait_started()  # does not wait for what will never come


def test_toolbox_does_not_import_sdk() -> None:
    code = (
        "import sys, asyncio\n"
        "from tools.factory import build_toolbox\n"
        "box = build_toolbox()\n"
        "assert [t.model_name for t in box.host.tools()] =="
        " ['python', 'files__read', 'files__list', 'files__search']\n"
        "assert all(s.status == 'ready' for s in box.host.server_states())\n"
        "heavy = {'mcp', 'anyio', 'pydantic', 'httpx2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    root = Path(host_module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert done.returncode == 0, done.stderr


async def test_connect_connects_builtin_server(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(ServerConfig("files", builtin=FilesServer(tmp_path)))
    await host.start()
    await host.wait_started()
    (before,) = host.server_states()
    host.connect("files")
    await wait_until(lambda: host.server_states()[0].protocol)
    assert (before.status, before.protocol) == ("ready", "") and len(host.tools()) > 1


async def test_missing_enabled_tool_reported(make_host: MakeHost) -> None:
    host = make_host(server("plain", enabled_tools=("echo", "ecko"), disabled_tools=("big",)))
    await host.start()
    await host.wait_started()
    (state,) = host.server_states()
    assert (state.status, state.tools) == ("ready", ["echo"])
    assert state.error == "has no tool ecko"
    refused = await host.call(Tool("plain", "fail", "", {}), {})
    assert (refused.failure, refused.code) == ("protocol", -32602)


@pytest.mark.long
async def test_older_server_beside_builtin_server(make_host: MakeHost, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    host = make_host(
        ServerConfig("time", command=sys.executable, args=("-m", "mcp_server_time")),
        ServerConfig("files", builtin=FilesServer(tmp_path)),
    )
    await host.start()
    await host.wait_started()
    names = [one.model_name for one in host.tools()]
    assert names[:2] == ["time__get_current_time", "time__convert_time"]
    now = await host.call(tool(host, "time__get_current_time"), {"timezone": "Europe/Berlin"})
    assert "Europe/Berlin" in now.text
    assert (await host.call(tool(host, "files__read"), {"path": "a.txt"})).text == "hello"


async def test_non_utf8_file_names_listed(make_host: MakeHost, tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).write_text("hello")
    except OSError:
        pytest.skip("no such names here")
    host = make_host(ServerConfig("files", builtin=FilesServer(tmp_path)))
    for name, arguments in (("list", {}), ("search", {"query": "hello"})):
        found = await host.call(tool(host, f"files__{name}"), arguments)
        assert found.text.startswith("\ufffd.txt")
    missing = await host.call(tool(host, "files__read"), {"path": "\udcff"})
    assert missing.text == "no such file: \ufffd"


async def test_builtin_server_with_problem_not_offered(make_host: MakeHost, tmp_path: Path) -> None:
    bare = PythonServer(isolation=Isolation("none", "nothing works here", False))
    host = make_host(ServerConfig(bare.name, builtin=bare, required=True))
    await host.start()
    await host.wait_started()
    (state,) = host.server_states()
    assert (state.status, state.error) == ("failed", "is not available: nothing works here")
    assert list(host.tools()) == []
    refused = await host.call(PythonServer.tools[0], {"code": "1"})
    assert (refused.failure, refused.code) == ("protocol", -32000)
    assert refused.text == ("the server code_interpreter is not available: nothing works here")


async def test_builtin_server_output_streams(make_host: MakeHost) -> None:
    builtin = PythonServer()
    host = make_host(ServerConfig(builtin.name, builtin=builtin))
    seen: list[tuple[str, str]] = []
    result = await host.call(
        PythonServer.tools[0], {"code": "print(6*7)"}, on_output=lambda *part: seen.append(part)
    )
    if result.failure == "protocol":
        pytest.skip(result.text)
    assert result.text == "42"
    assert "".join(text for _, text in seen) == "42\n"
    failed = await host.call(PythonServer.tools[0], {"code": "1/0"})
    assert (failed.failure, failed.code) == ("execution", 0)
    missing = await host.call(PythonServer.tools[0], {})
    assert missing.text == "missing argument: code"
