"""Servers that flood, overfill, never end and define tools in odd ways: the host stays upright."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import psutil
import pytest

from tests.support.hosts import Hosting, alive, server, tool, until
from tools.mcp.call_scope import FREE_REPORTS, MAX_OUTPUT
from tools.mcp.host import Host

pytestmark = pytest.mark.slow


@pytest.fixture
async def odd(hosting: Hosting) -> Host:
    host = hosting(server("odd"))
    await host.start()
    await host.settled()
    assert host.servers()[0].status == "ready", host.servers()
    return host


async def test_200_tools_and_names_of_every_kind_can_all_be_called(odd: Host) -> None:
    tools = odd.tools()
    assert len(tools) == 212
    names = [one.model_name for one in tools]
    assert all(re.fullmatch(r"[A-Za-z0-9_]{1,64}", name) for name in names)
    assert len({name.lower() for name in names}) == len(names)
    for one in [*tools[:3], *tools[200:]]:
        assert (await odd.call(one, {})).text == repr(one.name)


async def test_what_definitions_hide_is_not_shown(odd: Host) -> None:
    tree, _, _, _, _, _, _, long, *_ = odd.tools()
    assert tree.parameters["$defs"]["node"]["properties"]["value"]["description"] == "Hidden here."
    assert len(long.description) == 4000
    (state,) = odd.servers()
    assert "readone" in state.tools, "names are shown without what reorders them"


async def test_50_mb_are_kept_in_a_file(hosting: Hosting, tmp_path: Path) -> None:
    host = hosting(server("hostile", "well"), results=tmp_path)
    await host.start()
    await host.settled()
    huge = await host.call(tool(host, "hostile__huge"), {})
    assert huge.failure == "none" and len(huge.text) <= 32_000
    assert huge.whole is not None and Path(huge.whole).stat().st_size == 50_000_000
    assert (await host.call(tool(host, "hostile__ping"), {})).text == "pong"


async def test_a_flood_is_held_back(hosting: Hosting) -> None:
    host = hosting(server("hostile", "well"))
    await host.start()
    await host.settled()
    reports: list[float] = []
    output: list[str] = []
    flooded = await host.call(
        tool(host, "hostile__flood"),
        {},
        on_progress=lambda at, *_: reports.append(at),
        on_output=lambda _, text: output.append(text),
    )
    assert flooded.text == "flooded"
    assert FREE_REPORTS <= len(reports) < 1500
    assert sum(map(len, output)) < MAX_OUTPUT + 100 and "not shown" in output[-1]
    assert len(host.servers()[0].stderr) <= 4000


async def test_tools_that_change_all_the_time_are_read_now_and_then(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.mcp import listing

    reads = 0
    listed = listing.list_tools

    async def counted(*given: object) -> object:
        nonlocal reads
        reads += 1
        return await listed(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(listing, "list_tools", counted)
    host = hosting(server("hostile", "well"))
    await host.start()
    await host.settled()
    said = await host.call(tool(host, "hostile__restless"), {})
    assert said.text == "still the same"
    await until(lambda: reads > 1)
    assert reads < 20


async def test_more_tools_than_any_prompt_holds(hosting: Hosting) -> None:
    host = hosting(server("hostile", "many"))
    await host.start()
    await host.settled()
    (state,) = host.servers()
    assert state.status == "failed" and "lists more than 5,000 tools" in (state.error or "")


async def test_a_result_that_breaks_its_promise_is_told(hosting: Hosting) -> None:
    host = hosting(server("hostile", "well"))
    await host.start()
    await host.settled()
    wrong = await host.call(tool(host, "hostile__shapeless"), {})
    assert wrong.failure != "none" and "number" in wrong.text


async def test_a_server_that_will_not_end_is_ended(hosting: Hosting) -> None:
    host = hosting(server("hostile", "deaf"))
    await host.start()
    await host.settled()
    pids = [child.pid for child in psutil.Process().children(True)]
    assert pids
    await asyncio.wait_for(host.close(), 60)
    await until(lambda: not any(alive(pid) for pid in pids))
