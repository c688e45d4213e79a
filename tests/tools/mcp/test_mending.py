"""One odd tool costs one tool, and one odd block of a result costs no other."""

import json
from typing import Any

import pytest

from agent.util.json_schema import find_violation
from tests.support.hosts import MakeHost
from tests.support.odd_mcp import START, definition, reply, stdio_server, text_result
from tools.mcp.host import Host
from tools.mcp.mending import mend_block
from tools.mcp.schemas import SchemaError, mend_schema

TEXT = {"type": "string"}
ANY = {"type": "object"}
X = {"type": "object", "properties": {"x": TEXT}}
NUMBER = {"type": "number", "minimum": 1}
PNG = "iVBORw0KGgo="
LINK = {"type": "resource_link", "uri": "a:b", "name": "n"}
TABLE = {"uri": "a:c", "mimeType": "text/csv", "blob": "YSxiCjEsMgo="}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


MENDED: list[tuple[Any, Any]] = [
    (X, X),
    (None, ANY),
    (True, ANY),
    ({}, ANY),
    ({"$schema": "http://json-schema.org/draft-07/schema#"}, ANY),
    ({"properties": {"x": TEXT}}, X),
    ({"type": ["object", "null"], "properties": {"x": TEXT}}, X),
    ({"type": "OBJECT", "properties": {"x": {"type": "STRING"}}}, X),
    ({**X, "required": None}, X),
    ({"type": "object", "properties": None}, ANY),
    ({"anyOf": [X, ANY]}, {"type": "object", "anyOf": [X, ANY]}),
    ({"$ref": "#/$defs/N", "$defs": {"N": X}}, {**X, "$defs": {"N": X}}),
    (
        {"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"properties": {"x": TEXT}}}},
        {**X, "definitions": {"a/b": {"properties": {"x": TEXT}}}},
    ),
    (of(e={**TEXT, "nullable": True}), of(e={"type": ["string", "null"]})),
    (of(e={**TEXT, "nullable": False}), of(e=TEXT)),
    (
        of(e={"enum": ["a"], "type": "string", "nullable": True}),
        of(e={"enum": ["a", None], "type": ["string", "null"]}),
    ),
    (
        of(e={"$ref": "#/$defs/N", "nullable": True}),
        of(e={"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}),
    ),
    (of(n={**NUMBER, "exclusiveMinimum": True}), of(n={"type": "number", "exclusiveMinimum": 1})),
    (of(n={**NUMBER, "exclusiveMinimum": False}), of(n=NUMBER)),
    (
        of(a={"type": "array", "items": [TEXT], "additionalItems": False}),
        of(a={"type": "array", "prefixItems": [TEXT], "items": False}),
    ),
    (
        {**X, "dependencies": {"x": ["y"], "z": ANY}},
        {**X, "dependentRequired": {"x": ["y"]}, "dependentSchemas": {"z": ANY}},
    ),
    (of(x={**TEXT, "required": True}), {**X, "required": ["x"]}),
    # Names of properties, and values, are no keywords.
    (
        of(nullable=TEXT, items={"enum": [{"nullable": True, "items": [1]}]}),
        of(nullable=TEXT, items={"enum": [{"nullable": True, "items": [1]}]}),
    ),
]


@pytest.mark.parametrize(("schema", "mended"), MENDED, ids=str)
def test_schema_with_clear_intent_is_mended(schema: Any, mended: dict[str, Any]) -> None:
    result = mend_schema(json.loads(json.dumps(schema)))
    result.pop("$schema", None)
    assert result == mended


@pytest.mark.parametrize(
    "schema",
    [False, "object", [X], 5, {"type": "string"}, {"type": ["array", "null"]}, {"type": 5},
     {"$ref": "https://example.invalid/x"}, {"$ref": "#/$defs/N"}, {"$ref": "#"}, {"$ref": 5},
     {"$ref": "#/$defs/N", "$defs": {"N": {"$ref": "#/$defs/N"}}},
     {"type": "object", "properties": [TEXT]}, {"type": "object", "required": "x"}],
    ids=str,
)  # fmt: skip
def test_schema_without_clear_intent_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError):
        mend_schema(schema)


@pytest.mark.parametrize(
    ("about", "fits", "fits_not"),
    [
        ({**NUMBER, "exclusiveMinimum": True}, [1.5, 2], [1, 0.5]),
        ({**NUMBER, "exclusiveMinimum": False}, [1, 2], [0.5]),
        ({**TEXT, "nullable": True}, ["x", None], [5]),
        ({"type": "array", "items": [TEXT], "additionalItems": False}, [["x"]], [[5], ["x", 1]]),
    ],
)
def test_arguments_checked_by_the_dialect_that_the_schema_is_of(
    about: dict[str, Any], fits: list[Any], fits_not: list[Any]
) -> None:
    schema = mend_schema({"$schema": "http://json-schema.org/draft-04/schema#", **of(v=about)})
    assert [find_violation(schema, {"v": value}) for value in fits] == [None] * len(fits)
    assert all(find_violation(schema, {"v": value}) for value in fits_not)


BLOCKS: list[tuple[Any, dict[str, Any]]] = [
    ("bare", {"type": "text", "text": "bare"}),
    ({"text": "no type"}, {"type": "text", "text": "no type"}),
    ({"type": "text", "text": None}, {"type": "text", "text": ""}),
    ({"type": "text", "text": {"a": 1}}, {"type": "text", "text": '{"a": 1}'}),
    ({"type": "text", "text": "x", "annotations": 5}, {"type": "text", "text": "x"}),
    ({"type": "image", "data": PNG}, {"type": "image", "data": PNG, "mimeType": "image/png"}),
    (
        {"type": "resource_link", "uri": "a://b"},
        {"type": "resource_link", "uri": "a://b", "name": "a://b"},
    ),
    (
        {"type": "hologram", "x": 1},
        {"type": "text", "text": '[hologram {"type": "hologram", "x": 1}]'},
    ),
    (5, {"type": "text", "text": "5"}),
    ({"type": ["x"]}, {"type": "text", "text": '[unknown block {"type": ["x"]}]'}),
]


@pytest.mark.parametrize(("block", "mended"), BLOCKS, ids=str)
def test_block_that_is_nearly_mcp_is_mended(block: Any, mended: dict[str, Any]) -> None:
    assert mend_block(block) == mended


def test_block_of_unknown_type_becomes_a_short_text() -> None:
    block = mend_block({"type": "video", "data": "x" * 100_000})
    assert block["type"] == "text" and len(block["text"]) < 600


async def start(make_host: MakeHost, *arguments: Any, **settings: Any) -> Host:
    host = make_host(stdio_server(*arguments, **settings))
    await host.start()
    await host.wait_started()
    return host


async def called(host: Host, name: str = "t") -> tuple[str, str]:
    tool = host.find_tool(f"odd.{name}")
    assert tool is not None
    result = await host.call(tool, {})
    return result.failure, result.text


@pytest.mark.slow
async def test_odd_tools_left_out_by_name_without_the_others(make_host: MakeHost) -> None:
    tools = [
        definition("good"),
        definition("good"),
        {"name": "missing"},
        definition("output", outputSchema={"type": "array", "items": TEXT}),
        definition("output_text", outputSchema="text"),
        definition("hints", annotations={"readOnlyHint": "maybe"}, icons=5, description=7),
        definition("text_schema", inputSchema="object"),
        definition("remote", inputSchema={"$ref": "https://example.invalid/x"}),
        definition("list", inputSchema={"type": "array"}),
        definition("a\nb"),
        definition("long", execution={"taskSupport": "required"}),
        definition("ui", _meta={"ui": {"visibility": ["app"]}}),
        definition("both", _meta={"ui": {"visibility": ["app", "model"]}}),
        {"name": 5, "inputSchema": ANY},
        definition(""),
        "junk",
    ]
    host = await start(make_host, {"good": reply(result=text_result("ok"))}, tools)
    (state,) = host.server_states()
    assert state.status == "ready" and state.error is None
    assert state.tools == ["good", "missing", "output", "output_text", "hints", "both"]
    assert {name: why.split(" ")[-1] for name, why in state.skipped.items()} == {
        "good": "name", "text_schema": "text", "remote": "it", "list": "'array'",
        "'a\\nb'": "text", "long": "has", "ui": "interface",
        "tool 14": "name", "tool 15": "name", "tool 16": "name",
    }  # fmt: skip
    assert await called(host, "good") == ("none", "ok")


@pytest.mark.slow
async def test_list_without_any_tool_is_named(make_host: MakeHost) -> None:
    host = await start(make_host, None, [{"name": 5, "inputSchema": ANY}])
    (state,) = host.server_states()
    assert state.error == (
        "sent a list of tools that is not valid MCP: tools.0.name: input should be a valid string"
    )


@pytest.mark.slow
@pytest.mark.parametrize("field", ["protocolVersion", "capabilities", "serverInfo"])
async def test_wrong_start_is_named_as_such(make_host: MakeHost, field: str) -> None:
    started = {key: value for key, value in START.items() if key != field}
    host = await start(make_host, start=started)
    (state,) = host.server_states()
    assert state.error == f"answered its start with what is not valid MCP: {field} is missing"


OUTPUT = of(n={"type": "integer"}, s=TEXT)
STRUCTURED: list[tuple[Any, dict[str, Any], str]] = [
    (OUTPUT, {"n": "5"}, "n: '5' is not of type 'integer'"),
    (OUTPUT, {"n": 5, "s": None}, "s: None is not of type 'string'"),
    ({**OUTPUT, "required": ["z"]}, {"n": 5}, "'z' is a required property"),
    (OUTPUT, {"n": 5}, ""),
    (of(n={"type": "strnig"}), {"n": 5}, ""),
    ("text", {"n": 5}, ""),
    (of(s={**TEXT, "nullable": True}), {"s": None}, ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "structured", "why"), STRUCTURED, ids=str)
async def test_text_beside_structured_content_that_does_not_fit(
    make_host: MakeHost, schema: Any, structured: dict[str, Any], why: str
) -> None:
    line = reply(result=text_result("the answer is 5", structuredContent=structured))
    host = await start(make_host, {"t": line}, [definition("t", outputSchema=schema)])
    note = f"\n[The structured content does not fit the tool's output schema: {why}.]"
    assert await called(host) == ("none", "the answer is 5" + (note if why else ""))


@pytest.mark.slow
async def test_results_that_are_nearly_mcp_keep_their_text(make_host: MakeHost) -> None:
    after = {"type": "text", "text": "after"}
    results: dict[str, Any] = {
        "unknown": {"content": [{"type": "hologram"}, after]},
        "nothing": {},
        "string": {"content": "just a string"},
        "object": {"content": after},
        "failed": {"content": [after], "isError": "true"},
        "meta": {"content": [after], "_meta": 5},
        "link": {"content": [{**LINK, "size": 12, "description": "the file"}]},
        "table": {"content": [{"type": "resource", "resource": TABLE}]},
        "differs": text_result("see structured content", structuredContent={"rows": [1, 2, "3\n"]}),
        "repeats": text_result('{"n": 5, "s": "a\\nb"}', structuredContent={"n": 5, "s": "a\nb"}),
        "unstructured": text_result("the answer is 5"),
    }
    calls = {name: reply(result=result) for name, result in results.items()}
    tools = [definition(name) for name in results]
    tools[-1]["outputSchema"] = OUTPUT
    host = await start(make_host, calls, tools)
    assert {name: await called(host, name) for name in results} == {
        "unknown": ("none", '[hologram {"type": "hologram"}]\nafter'),
        "nothing": ("none", ""),
        "string": ("none", "just a string"),
        "object": ("none", "after"),
        "failed": ("execution", "after"),
        "meta": ("none", "after"),
        "link": ("none", "[resource link n a:b, 12 B, the file]"),
        "table": ("none", "[resource a:c]\na,b\n1,2\n"),
        "differs": ("none", 'see structured content\n{"rows": [1, 2, "3\\n"]}'),
        "repeats": ("none", '{"n": 5, "s": "a\\nb"}'),
        "unstructured": ("none", "the answer is 5"),
    }


@pytest.mark.slow
async def test_odd_resources_and_prompts_cost_themselves_only(make_host: MakeHost) -> None:
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
    messages = [{"role": "user", "content": {"type": "hologram"}}, {"role": "odd"}]
    host = await start(
        make_host,
        {
            "t": reply(result={}),
            "resources/list": reply(
                result={"resources": [{"uri": 5}, {"uri": "a:b", "name": "n"}]}
            ),
            "resources/read": reply(result={"contents": [{"uri": "a:b", "text": {"a": 1}}]}),
            "prompts/list": reply(result={"prompts": [{"name": 5}, {"name": "p"}]}),
            "prompts/get": reply(result={"messages": messages}),
        },
        start={**START, "capabilities": capabilities},
    )
    assert [found.uri for found in await host.resources("odd")] == ["a:b"]
    assert [found.name for found in await host.prompts("odd")] == ["p"]
    assert await host.get_prompt("odd", "p", {}) == [("user", '[hologram {"type": "hologram"}]')]
    read = host.find_tool("odd.read_resource")
    assert read is not None
    text = '[resource a:b]\n{"a": 1}'
    assert (await host.call(read, {"uri": "a:b"})).text == text
    assert await host.read_resource("odd", "a:b") == text
