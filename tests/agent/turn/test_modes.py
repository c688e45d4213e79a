"""The modes of a turn: what the model is told, and which of its calls run."""

import json
from pathlib import Path

from agent.conversation.conversation import Conversation
from agent.formats.harmony.format import HarmonyFormat
from agent.turn.loop import Turn
from agent.turn.options import PLAN_TEXT, TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import call, final
from tests.support.turns import read_events, write_script
from tools.types import Mode

WRITE = call("files__write", path="new.txt", content="x")


async def outcome(make_runtime: MakeRuntime, folder: Path, mode: Mode) -> tuple[str, list[str]]:
    """What the model read of the call's result, and the roles of the conversation."""
    (root := folder / mode).mkdir()
    script = write_script(folder / f"{mode}.jsonl", {"markup": WRITE}, {"markup": final("ok")})
    runtime = await make_runtime(script, tools="files", root=root)
    options, talk = TurnOptions(mode=mode), Conversation("c")
    turn = Turn(runtime, talk, options.prompt_messages("go"), options).start()
    response = check(await read_events(turn))
    item = response["output"][0]
    result = item["error"]["message"] if item["error"] else item["output"]
    assert (root / "new.txt").exists() == (item["error"] is None)
    assert isinstance(runtime.format, HarmonyFormat)
    assert (PLAN_TEXT in runtime.format.encoding.decode(talk.ids())) == (mode == "plan")
    return json.dumps(result), [entry.role for entry in talk.entries]


async def test_turn_in_each_mode(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    result, roles = await outcome(make_runtime, tmp_path, "ask")
    assert "no person to approve it" in result and roles[0] == "user"
    result, roles = await outcome(make_runtime, tmp_path, "plan")
    assert "plan mode" in result and roles[:2] == ["developer", "user"]
    result, roles = await outcome(make_runtime, tmp_path, "accept-edits")
    assert "created new.txt" in result and roles[0] == "user"
