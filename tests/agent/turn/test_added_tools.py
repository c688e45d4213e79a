"""Tools that a server adds while a turn runs."""

from pathlib import Path

import pytest

from tests.support.hosts import server_option
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import call, final
from tests.support.turns import run_turn, write_script

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("chosen", [False, True])
async def test_tool_that_a_call_adds_is_callable_in_the_same_turn(
    make_runtime: MakeRuntime, tmp_path: Path, chosen: bool
) -> None:
    """Where the turn has all tools; those that it was given by name stay as they are."""
    replies = (call("plain__grow"), call("plain__grown", x=1), final("done"))
    script = write_script(tmp_path / "s.jsonl", *({"markup": reply} for reply in replies))
    runtime = await make_runtime(script, tools="plain", mcp=(server_option("plain"),))
    await runtime.host.wait_started()
    tools = tuple(runtime.host.tools()) if chosen else None
    response = check(await run_turn(runtime, tools=tools))
    added, used, _ = response["output"]
    assert added["output"].startswith(
        "grown\n[The server has new tools, with these arguments: grown"
    )
    if chosen:
        assert "there is no tool named functions.plain__grown" in used["error"]["message"]
    else:
        assert used["error"] is None and (used["server_label"], used["name"]) == ("plain", "grown")
