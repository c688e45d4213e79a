"""JSON Schemas as the model sees them: one case for each thing that openai-harmony alone loses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai_harmony import HarmonyEncoding

from agent.formats.harmony.renderer import HarmonyRenderer
from agent.formats.harmony.schema_normaliser import MAX_SCHEMA_DEPTH, normalise_schema
from agent.formats.protocol import FunctionTool

NODE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
}


@pytest.fixture
def render_property(encoding: HarmonyEncoding, renderer: HarmonyRenderer) -> Any:
    def render(schema: dict[str, Any], name: str = "x") -> str:
        """The property's TypeScript, as the model sees it."""
        parameters = {
            "type": "object",
            "properties": {name: schema},
            "required": [name],
            "$defs": {"Node": NODE, "Word": {"type": "string", "description": "a word"}},
        }
        ids = renderer.developer_message(None, [FunctionTool("f", "", parameters)])
        text = encoding.decode(ids)
        return text.partition("(_: {\n")[2].partition("}) => any;")[0]

    return render


@pytest.mark.parametrize(
    ("schema", "typescript"),
    [
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "X"},
            "x: string | null,\n",
            id="Optional[str]",
        ),
        pytest.param({"type": ["integer", "null"]}, "x: number | null,\n", id="type with null"),
        pytest.param(
            {"type": ["array", "null"], "items": {"type": "string"}},
            "x: string[] | null,\n",
            id="array or null",
        ),
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "x:\n | string\n | number\n,\n",
            id="anyOf",
        ),
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            "x:\n | string\n | number | null\n,\n",
            id="anyOf with null",
        ),
        pytest.param(
            {"type": ["string", "array"], "items": {"type": "string"}},
            "x:\n | string\n | string[]\n,\n",
            id="type with array",
        ),
        pytest.param({"$ref": "#/$defs/Word"}, "// a word\nx: string,\n", id="$ref"),
        pytest.param(
            {"allOf": [{"$ref": "#/$defs/Word"}], "description": "the word"},
            "// the word\nx: string,\n",
            id="allOf",
        ),
        pytest.param({"$ref": "#/$defs/gone"}, "x: any,\n", id="$ref to nothing"),
        pytest.param({"const": "one"}, 'x: "one",\n', id="const"),
        pytest.param({"enum": ["a", "b"]}, 'x: "a" | "b",\n', id="enum without type"),
        pytest.param(
            {"enum": ["a", None], "type": ["string", "null"]},
            'x: "a" | null,\n',
            id="enum with null",
        ),
        pytest.param({"enum": [1, 2]}, "// One of 1, 2.\nx: number,\n", id="numbers"),
        pytest.param({"const": True}, "// One of true.\nx: boolean,\n", id="const true"),
        pytest.param(
            {"type": "array", "items": {"enum": ["a", "b"]}, "description": "All."},
            '// All. Each item: "a" | "b".\nx: string[],\n',
            id="array of enum",
        ),
        pytest.param(
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "// Each item: string | null.\nx: string[],\n",
            id="array of Optional",
        ),
        pytest.param(
            {"enum": ['y"z', "b\\"]},
            '// One of "y\\"z", "b\\\\".\nx: string,\n',
            id="quotes in enum",
        ),
        pytest.param(
            {"type": "string", "description": "a\ntype evil = () => any;"},
            "// a type evil = () => any;\nx: string,\n",
            id="newline in description",
        ),
        pytest.param(
            {"type": "string", "description": "\u202eab\u200b\x1b[31m\U000e0041c"},
            "// ab[31mc\nx: string,\n",
            id="invisible characters",
        ),
        pytest.param(
            {"type": "string", "default": "a\nb"}, 'x: string, // default: "a b"\n', id="default"
        ),
        pytest.param(
            {"type": "string", "examples": ["a\nb", 1]},
            '// Examples:\n// - "a b"\nx: string,\n',
            id="examples",
        ),
        pytest.param({"type": "null"}, "x: any | null,\n", id="null"),
    ],
)
def test_schema_renders_as_typescript(
    render_property: Any, schema: dict[str, Any], typescript: str
) -> None:
    assert render_property(schema) == typescript


@pytest.mark.parametrize(
    ("name", "written"),
    [("my-key", '"my-key"'), ("a b", '"a b"'), ('q"', '"q\\""'), ("a\n} evil {", '"a } evil {"')],
)
def test_property_name_no_identifier_is_quoted(
    render_property: Any, name: str, written: str
) -> None:
    assert render_property({"type": "string"}, name) == f"{written}: string,\n"


def test_map_schema_describes_values(render_property: Any) -> None:
    text = render_property({"type": "object", "additionalProperties": {"type": "integer"}})
    assert "Maps strings to integer." in text


def test_recursive_reference_ends(render_property: Any) -> None:
    assert "next?: any | null,\n" in render_property({"$ref": "#/$defs/Node"})


def test_exponential_references_are_cut() -> None:
    definitions = {
        f"d{i}": {
            "type": "object",
            "properties": {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "abcd"},
        }
        for i in range(30)
    }
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    assert len(str(normalise_schema(schema))) < 500_000


def test_deep_nesting_is_cut(renderer: HarmonyRenderer) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"x": schema}}
    assert str(normalise_schema(schema)).count("properties") <= MAX_SCHEMA_DEPTH + 1
    for _ in range(400):
        schema = {"allOf": [schema], "anyOf": [schema]}
    assert renderer.developer_message(None, [FunctionTool("f", "", schema)])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"]
                + [
                    "required",
                    "description",
                    "default",
                    "additionalProperties",
                    "examples",
                    "title",
                ]
            )
            | st.text(max_size=3),
            inner | st.sampled_from(["object", "array", "string", "null", "#", "#/properties/a"]),
            max_size=5,
        )
    ),
    max_leaves=25,
)


@example(schema={"type": "object", "default": float("inf")})
@example(schema={"type": "object", "default": 10**400})
@given(schema=json_values)
def test_any_schema_renders(renderer: HarmonyRenderer, schema: Any) -> None:
    assert renderer.developer_message(None, [FunctionTool("f", "", schema)])
