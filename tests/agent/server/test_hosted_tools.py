"""Tools with items of their own: custom tools, code_interpreter, web_search."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.endpoint import Serve, engine_markup
from tests.support.invariants import check
from tests.support.requests import APPLY_PATCH, CODE_CONTAINER, CODE_INTERPRETER
from tests.support.scripts import HELLO, browser_call, final, python, raw_call, thought

INTERPRETING_EVENT = "response.code_interpreter_call.interpreting"


def event_types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def apply_patch_call(body: str) -> str:
    return f"<|channel|>commentary to=functions.apply_patch <|message|>{body}<|call|>"


async def test_custom_tool_round_trip(serve: Serve) -> None:
    text = '*** Begin Patch\n"a" {b}\n*** End Patch'
    served = await serve(thought("Edit.") + apply_patch_call(text), final("Done."))
    first = check(await served.stream(input="edit", tools=[APPLY_PATCH]))
    item = first["output"][1]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", text)
    assert first["tools"] == [APPLY_PATCH]
    before = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    output = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "ok"}
    second = check(
        await served.stream(input=[output], tools=[APPLY_PATCH], previous_response_id=first["id"])
    )
    assert second["output"][0]["content"][0]["text"] == "Done."
    assert list(served.runtime.loaded.engine.answered_ids)[: len(before)] == before  # type: ignore[attr-defined]
    assert "functions.apply_patch to=assistant" in engine_markup(served)
    resent = [{"role": "user", "content": "edit"}, *first["output"], output]
    check(await served.stream(input=resent, tools=[APPLY_PATCH], store=False))
    assert f"<|message|>{text}<|call|>" in engine_markup(served)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"input": "a\\nb"}', "a\nb"),
        ('{"input": "\\ud800"}', '{"input": "\\ud800"}'),
        ('{"other": 1}', '{"other": 1}'),
        ("{x", "{x"),
        ("", ""),
    ],
)
async def test_custom_tool_json_input_is_unwrapped(serve: Serve, body: str, text: str) -> None:
    served = await serve(apply_patch_call(body))
    (item,) = check(await served.stream(input="edit", tools=[APPLY_PATCH]))["output"]
    assert item["input"] == text


@pytest.mark.long
@pytest.mark.parametrize(
    ("syntax", "definition", "allowed"),
    [("regex", "(yes|no) [0-9]{2}", True), ("lark", 'start: "yes" | "no"', False)],
)
async def test_custom_tool_grammar_is_enforced(
    serve: Serve, syntax: str, definition: str, allowed: bool
) -> None:
    """The embedded model knows no such tool: only the grammar can make it write that."""
    served = await serve(model="tiny")
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    tool = {"type": "custom", "name": "decide", "format": form}
    response = check(
        await served.stream(
            input="decide",
            tools=[tool],
            tool_choice={"type": "custom", "name": "decide"},
            max_output_tokens=300,
        )
    )
    item = response["output"][-1]
    assert item["type"] == "custom_tool_call"
    word, _, number = item["input"].partition(" ")
    assert word in ("yes", "no") and (len(number) == 2) == allowed
    bad = {**tool, "format": {**form, "definition": "start: ("}} if not allowed else None
    if bad is not None:
        refused = await served.post({"input": "x", "tools": [bad]})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "tools"


async def test_code_interpreter_runs_python(serve: Serve) -> None:
    served = await serve(
        thought("Compute.") + python("print(6*7)"), final("42"), python("1/0"), final("No."),
        tools="python",
    )  # fmt: skip
    response = check(await served.stream(input="x", tools=[CODE_CONTAINER]))
    _, run, message = response["output"]
    assert (run["type"], run["code"], run["status"]) == (
        "code_interpreter_call",
        "print(6*7)",
        "completed",
    )
    assert run["outputs"] == [{"type": "logs", "logs": "42"}] and run["container_id"]
    assert message["content"][0]["text"] == "42"
    second = await served.client().responses.create(
        model="default",
        input="y",
        tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
    )
    item: Any = second.output[0]
    assert item.status == "completed" and item.code == "1/0"
    assert "ZeroDivisionError" in item.outputs[0].logs and "ZeroDivisionError" in engine_markup(
        served
    )
    # Without its answer, for a finished turn's call is left out of prompts.
    resent = [
        {"role": "user", "content": "x"},
        *response["output"][:-1],
        {"role": "user", "content": "y"},
    ]
    check(await served.stream(input=resent, tools=[CODE_CONTAINER], store=False))
    assert "to=python code<|message|>print(6*7)<|call|>" in engine_markup(served)
    assert "<|start|>python to=assistant<|channel|>analysis<|message|>42<|end|>" in engine_markup(
        served
    )


async def test_code_interpreter_beside_mcp_server(serve: Serve) -> None:
    """What is sent to `python` is OpenAI's tool, what is sent to the server the server's."""
    by_server = (
        "<|channel|>commentary to=mcp.code_interpreter <|constrain|>json<|message|>"
        '{"code":"print(2)"}<|call|>'
    )
    served = await serve(python("print(1)"), by_server, final("Done."), tools="python")
    response = check(await served.stream(input="x", tools=[CODE_CONTAINER, CODE_INTERPRETER]))
    assert [item["type"] for item in response["output"]] == [
        "mcp_list_tools",
        "code_interpreter_call",
        "mcp_call",
        "message",
    ]
    alone = check(await served.stream(input="x", tools=[CODE_CONTAINER]))
    assert [item["type"] for item in alone["output"]] == [
        "code_interpreter_call",
        "code_interpreter_call",
        "message",
    ]


async def test_code_interpreter_json_code_and_failed_calls(serve: Serve) -> None:
    as_json = (
        '<|channel|>commentary to=python <|constrain|>json<|message|>{"code":"print(3)"}<|call|>'
    )
    served = await serve(as_json, final("3"), *[as_json] * 2, final("4"), tools="python")
    response = check(await served.stream(input="x", tools=[CODE_CONTAINER]))
    assert response["output"][0]["code"] == "print(3)"
    events = await served.stream(input="x", tools=[CODE_CONTAINER], max_tool_calls=1)
    assert [item["type"] for item in check(events)["output"]] == [
        "code_interpreter_call",
        "message",
    ]
    assert event_types(events).count(INTERPRETING_EVENT) == 1, "the second one never ran"
    cut = await serve({"markup": python("print(1)\n" * 50)}, tools="python")
    events = await cut.stream(input="x", tools=[CODE_CONTAINER], max_output_tokens=20)
    response = check(events)
    assert response["output"][0]["status"] == "incomplete" == response["status"]
    assert INTERPRETING_EVENT not in event_types(events), "it never ran"
    refused = await (await serve(HELLO)).post({"input": "x", "tools": [CODE_CONTAINER]})
    assert refused.status_code == 400 and "--tools python" in refused.text


async def test_web_search_private_address_fails(serve: Serve) -> None:
    """Nothing of this network may be opened, and the item says what was tried."""
    secret = browser_call("open", id="http://127.0.0.1:9/secret")
    served = await serve(secret, final("No."), secret, secret, final("No."), tools="browser")
    response = check(await served.stream(input="x", tools=[{"type": "web_search"}]))
    search, _ = response["output"]
    assert search["type"] == "web_search_call" and search["status"] == "failed"
    assert search["action"] == {"type": "open_page", "url": "http://127.0.0.1:9/secret"}
    assert "not a public address" in engine_markup(served)
    once = await served.stream(input="x", tools=[{"type": "web_search"}], max_tool_calls=1)
    assert [item["status"] for item in check(once)["output"]] == ["failed", "completed"]
    assert event_types(once).count("response.web_search_call.searching") == 1
    offline = {"type": "web_search", "external_web_access": False}
    response = check(await served.stream(input="x", tools=[offline]))
    assert [item["type"] for item in response["output"]] == ["message"], "it was not offered"


async def test_web_search_address_that_is_none_fails(serve: Serve) -> None:
    wrong = browser_call("open", id="http://\u2100@host/")
    served = await serve(wrong, final("No."), tools="browser")
    response = check(await served.stream(input="x", tools=[{"type": "web_search"}]))
    assert response["status"] == "completed" and response["output"][0]["status"] == "failed"
    assert "not an http address" in engine_markup(served)


async def test_web_search_tool_choice(serve: Serve) -> None:
    served = await serve(final("x"), tools="browser,python")
    tools = [{"type": "web_search"}, CODE_CONTAINER]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    check(await served.stream(input="x", tools=tools, tool_choice=allowed))
    assert "namespace browser" in engine_markup(served) and "## python" not in engine_markup(served)
    choice = {"type": "web_search_preview"}
    refused = await served.post({"input": "x", "tools": [CODE_CONTAINER], "tool_choice": choice})
    assert refused.json()["error"]["param"] == "tool_choice"


class SearchSite(http.server.BaseHTTPRequestHandler):
    """A SearXNG, and the pages that it finds."""

    def do_GET(self) -> None:
        root = f"http://{self.headers['host']}"
        kind, body = "text/plain", "Foxes live in the north.\nThey sleep in dens."
        if self.path.startswith("/search?q=fox&format=json"):
            results = [
                {"title": "On foxes", "url": f"{root}/fox", "content": "Where they live."},
                {"title": "On dens", "url": f"{root}/dens", "content": "Where they sleep."},
            ]
            kind, body = "application/json", json.dumps({"results": results})
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Its address, where the operator's settings name it."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), SearchSite) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{serving.server_address[1]}"
        config = tmp_path / "home" / "config" / "config.toml"
        config.parent.mkdir(parents=True)
        settings = f'searxng = "{address}"\nallow_private = ["127.0.0.1/32"]\n'
        config.write_text(f"[browser]\n{settings}")
        yield address
        serving.shutdown()


SEARCH_NAMES = [
    "browser.search",
    "web_search",
    "web_search_preview",
    "web.run",
    "web.search",
    "search",
    "functions.web_search",
    "functions.browser.search",
    "browser__search",
    "mcp.browser.search",
    "web_search.search",
    "web_search<|channel|>commentary",
]
"""How models spell the recipient of a web search."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SEARCH_NAMES)
async def test_web_search_however_its_recipient_is_spelled(
    serve: Serve, site: str, name: str
) -> None:
    served = await serve(raw_call(name, '{"query": "fox"}'), final("Dens."), tools="browser")
    events = await served.stream(input="x", tools=[{"type": "web_search"}])
    search, message = check(events)["output"]
    assert (search["type"], search["status"]) == ("web_search_call", "completed")
    assert search["action"] == {"type": "search", "query": "fox", "queries": ["fox"]}
    assert message["content"][0]["text"] == "Dens."


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [*SEARCH_NAMES, "browser.click", "web.fetch", "browser"])
async def test_web_search_that_cannot_run_is_one_too(serve: Serve, name: str) -> None:
    """Without a search engine the browser has no `search`."""
    served = await serve(raw_call(name, '{"query": "fox"}'), final("No."), tools="browser")
    search, _ = check(await served.stream(input="x", tools=[{"type": "web_search"}]))["output"]
    assert (search["type"], search["status"]) == ("web_search_call", "failed")


async def test_web_search_results_and_citations(serve: Serve, site: str) -> None:
    answer = "In the north 【1†L0-L1】, in dens 【0†L4】."
    served = await serve(
        browser_call("search", query="fox"), browser_call("open", id=0),
        browser_call("find", pattern="dens"),
        final(answer), tools="browser",
    )  # fmt: skip
    request: dict[str, Any] = {"input": "Where do foxes live?", "tools": [{"type": "web_search"}]}
    events = await served.stream(**request, include=["web_search_call.action.sources"])
    *calls, message = check(events)["output"]
    sources = [{"type": "url", "url": f"{site}/{name}"} for name in ("fox", "dens")]
    assert [call["action"] for call in calls] == [
        {"type": "search", "query": "fox", "queries": ["fox"], "sources": sources},
        {"type": "open_page", "url": f"{site}/fox"},
        {"type": "find_in_page", "pattern": "dens", "url": f"{site}/fox"},
    ]
    assert [call["status"] for call in calls] == ["completed"] * 3
    assert event_types(events).count("response.web_search_call.searching") == 3
    cited = message["content"][0]["annotations"]
    assert [(citation["title"], citation["url"]) for citation in cited] == [
        (f"{site}/fox", f"{site}/fox"),
        ("On dens", f"{site}/dens"),
    ]
    body = await served.client().responses.create(model="default", **request)
    search: Any = body.output[0]
    assert search.action.type == "search" and search.action.sources is None
    resent = [{"role": "user", "content": "x"}, *calls, message, {"role": "user", "content": "y"}]
    assert (await served.post({"input": resent, "store": False})).status_code == 200
