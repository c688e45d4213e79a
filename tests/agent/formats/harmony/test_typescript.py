"""JSON Schemas as the model sees them: as openai-harmony writes them, but for what that loses."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai_harmony import HarmonyEncoding

from agent.formats.harmony.format import HarmonyFormat
from agent.formats.harmony.typescript import MAX_SCHEMA_DEPTH, declare_function
from agent.formats.protocol import FunctionTool

NODE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
}

NAMED = {
    "Any": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    "Anchored": {"$anchor": "anchor", "type": "boolean"},
    "Old": {"$id": "#old", "type": "string"},
    "a b": {"type": "integer"},
}


@pytest.fixture
def render_property(encoding: HarmonyEncoding, renderer: HarmonyFormat) -> Any:
    def render(schema: dict[str, Any], name: str = "x") -> str:
        """The property's TypeScript, as the model sees it."""
        parameters = {
            "type": "object",
            "properties": {name: schema},
            "required": [name],
            "$defs": {"Node": NODE, "Word": {"type": "string", "description": "a word"}} | NAMED,
        }
        ids = renderer.instructions_message(None, [FunctionTool("f", "", parameters)])
        text = encoding.decode(ids)
        return text.partition("(_: {\n")[2].partition("}) => any;")[0]

    return render


@pytest.mark.parametrize(
    ("schema", "typescript"),
    [
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "X"},
            "x: string | null, // default: null\n",
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
            "x: string | number,\n",
            id="anyOf",
        ),
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            "x: string | number | null,\n",
            id="anyOf with null",
        ),
        pytest.param(
            {"type": ["string", "array"], "items": {"type": "string"}},
            "x: string | string[],\n",
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
        pytest.param({"enum": [1, 2]}, "x: 1 | 2,\n", id="numbers"),
        pytest.param({"const": True}, "x: true,\n", id="const true"),
        pytest.param(
            {"type": "array", "items": {"enum": ["a", "b"]}, "description": "All."},
            '// All.\nx: ("a" | "b")[],\n',
            id="array of enum",
        ),
        pytest.param(
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "x: (string | null)[],\n",
            id="array of Optional",
        ),
        pytest.param({"enum": ['y"z', "b\\"]}, 'x: "y\\"z" | "b\\\\",\n', id="quotes in enum"),
        pytest.param(
            {"type": "string", "description": "a\ntype evil = () => any;"},
            "// a\n// type evil = () => any;\nx: string,\n",
            id="newline in description",
        ),
        pytest.param(
            {"type": "string", "description": "\u202eab\u200b\x1b[31m\U000e0041c"},
            "// ab[31mc\nx: string,\n",
            id="invisible characters",
        ),
        pytest.param(
            {"type": "string", "default": "a\nb"}, 'x: string, // default: "a\\nb"\n', id="default"
        ),
        pytest.param(
            {"type": "string", "examples": ["a\nb", 1]},
            '// Examples:\n// - "a\\nb"\n// - 1\nx: string,\n',
            id="examples",
        ),
        pytest.param({"type": "null"}, "x: null,\n", id="null"),
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "number"}]},
            "x: string | number,\n",
            id="anyOf of two numbers",
        ),
        pytest.param(
            {"oneOf": [{"type": "string", "description": "a\nb"}, {"type": "null"}, {"const": 1}]},
            "x:\n | string // a\n   // b\n | 1\n | null\n,\n",
            id="oneOf with null",
        ),
        pytest.param(
            {"type": "array", "items": {"anyOf": [{"enum": ["a", "b"]}, {"type": "object"}]}},
            'x: (\n     | "a" | "b"\n     | {\n       }\n    )[],\n',
            id="array of enum or object",
        ),
        pytest.param(
            {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "number"}]}},
            "x: (\n     | string\n     | number\n    )[],\n",
            id="array of oneOf",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            "x: {\n    a?: string,\n    b?: string,\n    },\n",
            id="anyOf that only requires",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"kind": {"type": "string"}},
                "oneOf": [
                    {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"required": ["kind"]},
                ],
            },
            "x:\n | {\n   kind?: string,\n   a: string,\n   }\n | {\n   kind: string,\n   }\n,\n",
            id="oneOf in an object",
        ),
        pytest.param(
            {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}, "required": ["b"]}]},
            "x: {\n    a?: any,\n    b: any,\n    },\n",
            id="allOf in order",
        ),
        pytest.param(
            {"type": "object", "patternProperties": {"^x-": {"type": "string"}}},
            "x: {\n    // Keys that match ^x-\n    [key: string]: string,\n    },\n",
            id="patternProperties",
        ),
        pytest.param(
            {
                "type": "object",
                "additionalProperties": {"anyOf": [{"type": "object"}, {"const": 1}]},
            },
            "x: {\n    [key: string]:\n     | {\n       }\n     | 1\n    ,\n    },\n",
            id="map to a union",
        ),
        pytest.param(
            {"description": "a:\n\n  - b\r\n  - c\n", "type": "string"},
            "// a:\n// \n//   - b\n//   - c\nx: string,\n",
            id="lines of a description",
        ),
        pytest.param(
            {"description": "a\nb", "type": "object"},
            "// a\n// b\nx:     // a\n    // b\n{\n    },\n",
            id="lines of an object's description",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string"}, "default": ["a", {"ü": None}]},
            'x: string[], // default: ["a",{"ü":null}]\n',
            id="array as default",
        ),
        pytest.param({"default": {}}, "x: any, // default: {}\n", id="object as default"),
        pytest.param({"default": float("nan")}, "x: any,\n", id="default without JSON"),
        pytest.param(
            {"enum": ["a", "b\n"], "default": "b\n"},
            'x: "a" | "b\\n", // default: "b\\n"\n',
            id="newline in enum",
        ),
        pytest.param(
            {"type": "string", "description": "می\u200cخواهم 👩\u200d👧"},
            "// می\u200cخواهم 👩\u200d👧\nx: string,\n",
            id="joiners",
        ),
        pytest.param({"$ref": "#/$defs/Any/anyOf/1"}, "x: number,\n", id="$ref into a list"),
        pytest.param({"$ref": "#/$defs/Any/anyOf/9"}, "x: any,\n", id="$ref beyond a list"),
        pytest.param({"$ref": "#anchor"}, "x: boolean,\n", id="$anchor"),
        pytest.param({"$ref": "#old"}, "x: string,\n", id="$id of draft 7"),
        pytest.param({"$ref": "#none"}, "x: any,\n", id="no $anchor"),
        pytest.param({"$ref": "#/$defs/a%20b"}, "x: number,\n", id="escaped $ref"),
    ],
)
def test_schema_renders_as_typescript(
    render_property: Any, schema: dict[str, Any], typescript: str
) -> None:
    assert render_property(schema) == typescript


@pytest.mark.parametrize(
    ("name", "written"),
    [("my-key", '"my-key"'), ("a b", '"a b"'), ('q"', '"q\\""'), ("a\n} evil {", '"a\\n} evil {"')],
)
def test_property_name_no_identifier_is_quoted(
    render_property: Any, name: str, written: str
) -> None:
    assert render_property({"type": "string"}, name) == f"{written}: string,\n"


def test_map_schema_tells_type_of_values(render_property: Any) -> None:
    text = render_property({"type": "object", "additionalProperties": {"type": "integer"}})
    assert text == "x: {\n    [key: string]: number,\n    },\n"


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
    assert len(declare_function("f", "", schema)) < 500_000


def test_deep_nesting_is_cut(renderer: HarmonyFormat) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"x": schema}}
    assert declare_function("f", "", schema).count("x?:") <= MAX_SCHEMA_DEPTH + 1
    for _ in range(400):
        schema = {"allOf": [schema], "anyOf": [schema]}
    assert renderer.instructions_message(None, [FunctionTool("f", "", schema)])


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


@pytest.mark.long
@example(schema={"type": "object", "default": float("inf")})
@example(schema={"type": "object", "default": 10**400})
@given(schema=json_values)
def test_any_schema_renders(renderer: HarmonyFormat, schema: Any) -> None:
    assert renderer.instructions_message(None, [FunctionTool("f", "", schema)])
