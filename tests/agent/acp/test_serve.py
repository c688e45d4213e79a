"""`agent acp` as a process, with the SDK's own client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp.schema as S
import pytest
from acp import RequestError, text_block
from acp.helpers import embedded_text_resource, image_block, resource_block, resource_link_block

from tests.support.editors import open_editor, script_option
from tests.support.scripts import call, final, hold, python, thought
from tests.support.waiting import HANG_SECONDS

FILES = S.FileSystemCapabilities(read_text_file=True, write_text_file=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


async def test_prompt_thought_and_answer_come_as_chunks(tmp_path: Path, project: Path) -> None:
    options = script_option(tmp_path, thought("Two words.") + final("Hello there."))
    async with open_editor(tmp_path, *options) as (editor, agent, _):
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        answer = await agent.prompt(session_id=session.session_id, prompt=[text_block("Hi")])
        assert answer.stop_reason == "end_turn"
        assert editor.text() == "Hello there."
        assert editor.text("agent_thought_chunk") == "Two words."
        assert any(u.session_update == "usage_update" for u in editor.updates)


async def test_embedded_model_answers(tmp_path: Path, project: Path) -> None:
    async with open_editor(tmp_path, "--model", "tiny", "--temperature", "0") as (editor, agent, _):
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        prompt = [text_block("What is 12*34?")]
        answer = await agent.prompt(session_id=session.session_id, prompt=prompt)
        assert answer.stop_reason == "end_turn" and "408" in editor.text()
        loads = [u for u in editor.updates if getattr(u, "tool_call_id", "") == "load"]
        assert loads[-1].status == "completed"


async def test_write_shows_diff_asks_and_reaches_editor(tmp_path: Path, project: Path) -> None:
    written = call("files__write", path="a.txt", content="two\n")
    options = script_option(tmp_path, written, final("Done."))
    file = str(project / "a.txt")
    async with open_editor(tmp_path, *options, "--tools", "files", files=FILES) as opened:
        editor, agent, _ = opened
        editor.files[file] = "unsaved\n"
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("Write")])
        (asked, choices), *_ = editor.questions
        assert asked.content and asked.content[0] == S.FileEditToolCallContent(
            type="diff", path=file, old_text="unsaved\n", new_text="two\n"
        )
        assert [c.kind for c in choices] == [
            "allow_once", "allow_always", "allow_always", "reject_once"
        ]  # fmt: skip
        assert editor.files[file] == (project / "a.txt").read_text() == "two\n"
        last = [u for u in editor.updates if u.session_update == "tool_call_update"][-1]
        assert last.status == "completed" and last.content[0].type == "diff"


@pytest.mark.parametrize(("choice", "stop"), [("no", "end_turn"), ("cancelled", "cancelled")])
async def test_refused_write_changes_nothing(
    tmp_path: Path, project: Path, choice: str, stop: str
) -> None:
    written = call("files__write", path="a.txt", content="two\n")
    options = script_option(tmp_path, written, final("As you like."))
    async with open_editor(tmp_path, *options, "--tools", "files") as (editor, agent, _):
        editor.choice = choice
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        answer = await agent.prompt(session_id=session.session_id, prompt=[text_block("Write")])
        assert answer.stop_reason == stop
        assert (project / "a.txt").read_text() == "one\n"


async def test_always_is_stored_for_folder(tmp_path: Path, project: Path) -> None:
    written = call("files__write", path="a.txt", content="two\n")
    options = script_option(tmp_path, written, final("Done."))
    for expected in (1, 0):
        async with open_editor(tmp_path, *options, "--tools", "files") as (editor, agent, _):
            editor.choice = "always"
            session = await agent.new_session(cwd=str(project), mcp_servers=[])
            await agent.prompt(session_id=session.session_id, prompt=[text_block("Write")])
            assert len(editor.questions) == expected


async def test_load_replays_history_and_list_has_it(tmp_path: Path, project: Path) -> None:
    options = script_option(tmp_path, python("print(6*7)"), thought("So.") + final("It is 42."))
    async with open_editor(tmp_path, *options) as (_, agent, _process):
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("What?")])
    async with open_editor(tmp_path, *options) as (editor, agent, _process):
        (listed,) = (await agent.list_sessions()).sessions
        assert (listed.session_id, listed.title) == (session.session_id, "What?")
        await agent.load_session(cwd=str(project), session_id=listed.session_id, mcp_servers=[])
        assert editor.text("user_message_chunk") == "What?" and editor.text() == "It is 42."
        calls = [u for u in editor.updates if u.session_update == "tool_call_update"]
        assert calls[-1].status == "completed" and calls[-1].raw_output == {"output": "42"}
        await agent.prompt(session_id=listed.session_id, prompt=[text_block("Again")])


async def test_store_that_cannot_be_written_is_a_notice(tmp_path: Path, project: Path) -> None:
    options = script_option(tmp_path, final("Hello there."))
    async with open_editor(tmp_path, *options) as (editor, agent, _):
        session = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=[text_block("Hi")])
        (store,) = tmp_path.rglob("store.sqlite")
        with contextlib.closing(sqlite3.connect(store)) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE INSERT ON turns"
                " BEGIN SELECT RAISE(ABORT, 'disk full'); END"
            )
        answer = await agent.prompt(session_id=session, prompt=[text_block("Again")])
        assert answer.stop_reason == "end_turn"
        await editor.until(lambda: "disk full" in editor.text("agent_thought_chunk"))


async def test_cancel_ends_prompt_as_cancelled(tmp_path: Path, project: Path) -> None:
    options = script_option(tmp_path, hold(final("one two three four"), after=6))
    async with open_editor(tmp_path, *options) as (editor, agent, _):
        session = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        prompting = asyncio.create_task(
            agent.prompt(session_id=session, prompt=[text_block("Count")])
        )
        await editor.until(editor.text)
        with pytest.raises(RequestError, match="being answered"):
            await agent.prompt(session_id=session, prompt=[text_block("And?")])
        await agent.cancel(session_id=session)
        assert (await prompting).stop_reason == "cancelled"


async def test_resources_are_attached_and_images_refused(tmp_path: Path, project: Path) -> None:
    options = script_option(tmp_path, final("Read."))
    async with open_editor(tmp_path, *options) as (editor, agent, _):
        session = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        blocks = [
            text_block("See"),
            resource_link_block("a.txt", (project / "a.txt").as_uri()),
            resource_block(embedded_text_resource("file:///b.txt", "bee")),
        ]
        await agent.prompt(session_id=session, prompt=blocks)
        await agent.load_session(cwd=str(project), session_id=session, mcp_servers=[])
        assert editor.text("user_message_chunk") == f"See @{project}/a.txt @/b.txt"
        with pytest.raises(RequestError, match="cannot see images"):
            await agent.prompt(session_id=session, prompt=[image_block("AAAA", "image/png")])


async def test_commands_and_settings(tmp_path: Path, project: Path) -> None:
    options = script_option(tmp_path, final("Yes."))
    async with open_editor(tmp_path, *options) as (editor, agent, _):
        session = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=[text_block("/context")])
        assert editor.text() == "There are no messages yet."
        await agent.prompt(session_id=session, prompt=[text_block("/effort high")])
        changed = await agent.set_config_option(config_id="effort", session_id=session, value="low")
        assert changed is not None and changed.config_options[1].current_value == "low"
        for config_id, value in (("effort", "huge"), ("model", "none"), ("colour", "red")):
            with pytest.raises(RequestError):
                await agent.set_config_option(config_id=config_id, session_id=session, value=value)


async def test_modes_decide_what_runs(tmp_path: Path, project: Path) -> None:
    written = call("files__write", path="a.txt", content="two\n")
    replies = (written, final("A plan."), written, final("Written."), final("Done."))
    options = script_option(tmp_path, *replies)
    launch = (*options, "--tools", "files", "--mode", "plan")
    async with open_editor(tmp_path, *launch) as (editor, agent, _):
        opened = await agent.new_session(cwd=str(project), mcp_servers=[])
        session, modes = opened.session_id, opened.modes
        assert modes is not None and modes.current_mode_id == "plan"
        assert [mode.id for mode in modes.available_modes] == ["ask", "plan", "accept-edits"]
        await agent.prompt(session_id=session, prompt=[text_block("Write")])
        assert (project / "a.txt").read_text() == "one\n" and not editor.questions

        await agent.set_session_mode(session_id=session, mode_id="accept-edits")
        await editor.until(lambda: editor.modes() == ["accept-edits"] * 2)
        await agent.prompt(session_id=session, prompt=[text_block("Write")])
        assert (project / "a.txt").read_text() == "two\n" and not editor.questions

        for mode in ("", "Plan", "bypass"):
            with pytest.raises(RequestError, match="must be ask, plan, accept-edits"):
                await agent.set_session_mode(session_id=session, mode_id=mode)
        with pytest.raises(RequestError, match="no plan to accept"):
            await agent.prompt(session_id=session, prompt=[text_block("/accept")])
        await agent.set_config_option(config_id="mode", session_id=session, value="plan")
        await editor.until(lambda: editor.modes()[2:] == ["plan"] * 2)
        loaded = await agent.load_session(cwd=str(project), session_id=session, mcp_servers=[])
        assert loaded.modes is not None and loaded.modes.current_mode_id == "plan", "of --mode"
        await agent.prompt(session_id=session, prompt=[text_block("/mode ask")])
        await agent.prompt(session_id=session, prompt=[text_block("/mode plan")])
        await agent.prompt(session_id=session, prompt=[text_block("/accept")])
        assert editor.modes()[4:] == ["ask"] * 2 + ["plan"] * 2 + ["ask"] * 2
        assert editor.text().endswith("Done.")


async def test_list_has_conversations_of_a_folder(tmp_path: Path, project: Path) -> None:
    other, inner = tmp_path / "other", project / "inner"
    other.mkdir()
    inner.mkdir()
    (project / ".git").mkdir()
    options = script_option(tmp_path, final("Hello."))
    async with open_editor(tmp_path, *options) as (_, agent, _process):
        names = {}
        for folder in (inner, other):
            session = (await agent.new_session(cwd=str(folder), mcp_servers=[])).session_id
            await agent.prompt(session_id=session, prompt=[text_block("Hi")])
            names[session] = folder

        async def listed(cwd: Path | None) -> list[tuple[Path, str]]:
            sessions = (await agent.list_sessions(cwd=str(cwd) if cwd else None)).sessions
            return [(names[each.session_id], each.cwd) for each in sessions]

        assert await listed(inner) == [(inner, str(inner))]
        assert await listed(project) == [(inner, str(project))], "the repository's"
        assert await listed(other) == [(other, str(other))]
        assert await listed(tmp_path / "gone") == []
        assert await listed(None) == [(other, str(other)), (inner, str(project))]
        # Another folder can continue it, and does not take it over.
        first = next(iter(names))
        await agent.load_session(cwd=str(other), session_id=first, mcp_servers=[])
        await agent.prompt(session_id=first, prompt=[text_block("Again")])
        assert [folder for folder, _ in await listed(other)] == [other]
        with pytest.raises(RequestError, match="absolute path"):
            await agent.list_sessions(cwd="relative")


async def test_sessions_have_folders_of_their_own(tmp_path: Path, project: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("other's")
    options = script_option(tmp_path, call("files__read", path="a.txt"), final("Read."))
    async with open_editor(tmp_path, *options) as (editor, agent, _):
        for folder in (project, other):
            session = await agent.new_session(cwd=str(folder), mcp_servers=[])
            await agent.prompt(session_id=session.session_id, prompt=[text_block("Read")])
        done = [u.raw_output["output"] for u in editor.updates if getattr(u, "raw_output", None)]
        assert done == ["one\n", "other's"]


async def test_folder_servers_do_not_start_unasked(tmp_path: Path, project: Path) -> None:
    server = {"command": "touch", "args": [str(tmp_path / "started")]}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"evil": server}}))
    options = script_option(tmp_path, final("Hello."))
    async with open_editor(tmp_path, *options) as (editor, agent, _):
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("Hi")])
        await editor.until(lambda: "not trusted" in editor.text("agent_thought_chunk"))
    assert not (tmp_path / "started").exists()


@pytest.mark.long
async def test_editor_server_asks_before_its_tools_run(tmp_path: Path, project: Path) -> None:
    options = script_option(
        tmp_path, call("clock__get_current_time", timezone="UTC"), final("Late.")
    )
    clock = S.McpServerStdio(
        name="clock", command=sys.executable, args=["-m", "mcp_server_time"], env=[]
    )
    async with open_editor(tmp_path, *options) as (editor, agent, _):
        session = await agent.new_session(cwd=str(project), mcp_servers=[clock])
        prompt = [text_block("What does clock say?")]
        await agent.prompt(session_id=session.session_id, prompt=prompt)
        assert [asked.title for asked, _ in editor.questions] == ["clock.get_current_time"]
        (output,) = [u.raw_output for u in editor.updates if getattr(u, "raw_output", None)]
        assert "UTC" in output["output"]


async def test_missing_model_is_an_error_with_a_sentence(tmp_path: Path, project: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    async with open_editor(tmp_path, "--model", str(broken)) as (_, agent, _process):
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        with pytest.raises(RequestError, match=r"broken\.gguf"):
            await agent.prompt(session_id=session.session_id, prompt=[text_block("Hi")])


@pytest.mark.parametrize("ending", ["eof", "term"])
@pytest.mark.parametrize("stage", ["prompt", "question"])
async def test_end_in_a_turn_stores_it(
    tmp_path: Path, project: Path, ending: str, stage: str
) -> None:
    held = hold(final("one two three four"), after=6)
    reply = held if stage == "prompt" else call("files__write", path="a.txt", content="two")
    options = script_option(tmp_path, reply)
    async with open_editor(tmp_path, *options, "--tools", "files") as (editor, agent, process):
        editor.choice = None
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        prompting = asyncio.create_task(
            agent.prompt(session_id=session.session_id, prompt=[text_block("Go")])
        )
        await editor.until(lambda: editor.text() or editor.questions)
        if ending == "eof":
            assert process.stdin is not None
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(HANG_SECONDS):
            assert await process.wait() == 0
        prompting.cancel()
        await asyncio.gather(prompting, return_exceptions=True)
    async with open_editor(tmp_path, *options) as (_, agent, _process):
        (listed,) = (await agent.list_sessions()).sessions
        assert listed.session_id == session.session_id


def _raw(home: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Send lines to the program; return its answers once stdin has ended."""
    done = subprocess.run(
        [sys.executable, "-m", "agent", "acp", *script_option(home, final("Hi"))],
        input=b"\n".join(lines), capture_output=True, timeout=HANG_SECONDS, check=True,
        env={**os.environ, "AGENT_HOME": str(home)},
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_hostile_lines_are_answered_and_the_next_ones_too(tmp_path: Path) -> None:
    deep, lone = b"[" * 100_000, b'{"jsonrpc":"2.0","id":"\\ud800","method":"x"}'
    hostile = (
        b"{", b"\xff", b"NaN", deep, b"[]", b"1", b'"x"', b"null", b"{}", b'{"id":[],"result":1}',
        b'{"id":1,"method":5}', b'{"id":1,"error":"x"}', b'{"id":{},"method":"initialize"}',
    )  # fmt: skip
    start = b'{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":1}}'
    answers = _raw(tmp_path, *hostile, lone, b"", start)
    codes = [each["error"]["code"] for each in answers if each["id"] is None]
    assert codes == [-32700] * 4 + [-32600] * 9
    assert {each["id"] for each in answers if each["id"] is not None} == {"?", 7}


def test_wrong_parameters_are_answered_with_errors(tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = [
        ("session/new", {"cwd": 5}), ("session/new", []),
        ("session/new", {"cwd": "relative", "mcpServers": []}), ("session/prompt", {"prompt": []}),
        ("nothing", {}),
        ("session/load", {"cwd": "/", "sessionId": "no", "mcpServers": []}), ("_own/thing", {}),
        ("session/prompt", {"sessionId": "no", "prompt": [{"type": "text", "text": "x"}]}),
        ("session/list", {"cursor": "²"}), ("session/list", {"cwd": "/a\0"}),
        ("session/set_mode", {"sessionId": "no", "modeId": "x"}),
    ]  # fmt: skip
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": at, "method": method, "params": params}).encode()
        for at, (method, params) in enumerate(calls)
    ]
    reader_of_end = b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"no"}}'
    answers = _raw(tmp_path, *lines, reader_of_end)
    assert all("error" in each for each in answers)
    assert not any("Traceback" in json.dumps(each) for each in answers)
