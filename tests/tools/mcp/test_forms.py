"""Forms of elicitations: what their schemas say, and which values fit."""

from typing import Any

import pytest

from tests.tui.scenes.approvals import BOOKING
from tools.mcp.forms import Form, FormError, FormField, page_host


def field(**about: Any) -> FormField:
    """The field x of a form with this schema of it."""
    return Form.from_schema({"properties": {"x": about}}).fields[0]


def test_form_defaults_and_rules() -> None:
    form = Form.from_schema(BOOKING)
    assert form.defaults == {
        "day": "2026-12-01", "seats": 2, "meal": "v", "extras": ["b"], "window": True,
    }  # fmt: skip
    assert not form.needs_input
    assert {each.title: each.rule for each in form.fields} == {
        "E-mail": "an e-mail address, at most 60 characters",
        "Day": "a date, as 2026-01-31",
        "Seats": "a whole number, 1 to 8",
        "Meal": "",
        "Extras": "at most 2 of them",
        "At a window": "",
    }
    assert [each.describe(each.default) for each in form.fields[3:]] == [
        "Vegetables", "Bread", "yes",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("about", "fitting", "wrong"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "😀😀😀"], ["a", "abcd", 1]),
        ({"type": "string", "format": "email"}, ["a@b", "a.b@c.org"], ["a", "a b@c", "@b", "a@"]),
        ({"type": "string", "format": "uri"}, ["https://a.b/c", "urn:x"], ["a", "a/b", "x y:z"]),
        ({"type": "string", "format": "date"}, ["2026-02-28"], ["2026-02-30", "20260228", "1.2."]),
        (
            {"type": "string", "format": "date-time"},
            ["2026-02-28T10:00:00Z", "2026-02-28T10:00:00.5+02:00"],
            ["2026-02-28", "2026-02-28T10:00:00"],
        ),
        ({"type": "string", "pattern": "^(a+)+$"}, ["aaa"], ["b", "a" * 60 + "!"]),
        ({"type": "string", "pattern": "(?=lookahead)["}, ["anything"], []),
        ({"type": "integer", "minimum": 1, "maximum": 3}, [1, 3, 2.0], [0, 4, 1.5, True, "2"]),
        ({"type": "number", "minimum": 0.5}, [0.5, 10**400], [0.4, float("nan"), None]),
        ({"type": "boolean"}, [True, False], ["true", 1]),
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", 1]),
        ({"oneOf": [{"const": "a", "title": "Ah"}]}, ["a"], ["Ah"]),
        (
            {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 1},
            [["b"]],
            [[], ["a", "b"], ["c"], "a"],
        ),
        ({"type": "array", "items": {"anyOf": [{"const": "a"}]}}, [["a"], []], [["b"]]),
        ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "null"}]}, [5], [4, "5"]),
        ({"type": "object", "required": ["y"]}, [{"y": 1}], [{}, 3]),
        ({"type": ["string", "null"], "maxLength": 3}, ["abc"], ["abcd", 3]),
        ({"type": "integer", "exclusiveMinimum": 0, "multipleOf": 5}, [5], [0, 3]),
        ({"type": "string", "const": "yes"}, ["yes"], ["no"]),
        ({"type": "array", "items": {"enum": ["b"]}, "uniqueItems": True}, [["b"]], [["b", "b"]]),
    ],
    ids=str,
)
def test_field_check_values(about: Any, fitting: list[Any], wrong: list[Any]) -> None:
    for value in fitting:
        field(**about).check(value)
    for value in wrong:
        with pytest.raises(FormError, match=r"^x: .*\.$"):
            field(**about).check(value)


@pytest.mark.parametrize(
    ("about", "typed", "value"),
    [
        ({"type": "string"}, " 1 ", " 1 "),
        ({"type": ["string", "null"]}, "1", "1"),
        ({"type": "integer"}, "-7", -7),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "Yes", True),
        ({"enum": ["b", "1"], "enumNames": ["Bee", "One"]}, "Bee", "b"),
        ({"enum": ["b", "1"], "enumNames": ["Bee", "One"]}, "1", "1"),
        ({"enum": ["b", "c"]}, "2", "c"),
        ({"type": "array", "items": {"enum": ["b", "c"]}}, "c, 1", ["c", "b"]),
        ({"type": "array", "items": {"enum": ["b", "c"]}}, ",", []),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
    ],
    ids=str,
)
def test_field_parse_typed_text(about: Any, typed: str, value: Any) -> None:
    assert field(**about).parse(typed) == value


@pytest.mark.parametrize("kind", ["integer", "number", "boolean", "object"])
def test_field_parse_wrong_text_raises(kind: str) -> None:
    with pytest.raises(FormError):
        field(type=kind).parse("one" + "9" * 9999)


def test_form_missing_unknown_and_odd_fields() -> None:
    form = Form.from_schema({"properties": {"x": {"type": "string"}, "y": 3}, "required": ["x"]})
    assert [each.kind for each in form.fields] == ["text", "json"]
    with pytest.raises(FormError, match="x: is required"):
        form.check({"y": 1})
    with pytest.raises(FormError, match="z: is not a field; the form has x, y"):
        form.check({"x": "", "z": 1})
    assert Form.from_schema({"properties": []}).fields == Form.from_schema(None).fields == ()


def test_titles_resolved_to_values_where_they_are_unambiguous() -> None:
    titled = {"enum": ["e", "b", "c", "b2"], "enumNames": ["Economy", "Business", "e", "Business"]}
    form = Form.from_schema(
        {"properties": {"x": titled, "y": {"type": "array", "items": titled}, "z": {}}}
    )
    answer = {"x": "Economy", "y": ["e", "Economy", "Business", 3], "z": "Economy", "w": 1}
    resolved = {"x": "e", "y": ["e", "e", "Business", 3], "z": "Economy", "w": 1}
    assert form.resolve_titles(answer) == resolved
    with pytest.raises(FormError, match=r"must be one of e \(Economy\), b \(Business\), c \(e\), "):
        form.check({"x": "Business"})


def test_field_default_that_does_not_fit_left_out() -> None:
    assert field(type="integer", maximum=3, default=4).default is None
    assert field(type="array", items={"enum": ["a"]}, default=["b"]).default is None


def test_page_host_names_where_it_leads() -> None:
    assert page_host("https://accounts.example.org@evil.example/x") == "evil.example"
    assert page_host("https://аpple.com/") == "xn--pple-43d.com"
    assert page_host("https://straße.example/") == "xn--strae-oqa.example", "as browsers read it"
    assert page_host("http://[::1]:8000/") == "::1"
    for wrong in ("file:///etc/passwd", "javascript:alert(1)", "https://", "x", "http://[1"):
        assert page_host(wrong) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example\\@example.org/",
        "https://evil.example\\.example.org/",
        "https://%65vil.example/",
        "https://a b.example/",
        "https://example.org\u2044.evil.example/",
    ],
)
def test_page_host_that_browsers_may_read_otherwise_is_none(url: str) -> None:
    assert page_host(url) is None


def test_form_null_is_sent_only_where_it_is_required() -> None:
    choice, number = {"enum": ["a", None]}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    typed = {"type": ["string", "null"], "enum": ["a", None]}
    for about in (choice, number, typed):
        optional = Form.from_schema({"properties": {"x": about}})
        required = Form.from_schema({"properties": {"x": about}, "required": ["x"]})
        assert optional.fields[0].filled(None) == {}
        assert required.fields[0].filled(None) == {"x": None}
        required.check({"x": None})
        assert required.needs_input == (about is not number)
        assert required.defaults == ({"x": None} if about is number else {})
    assert Form.from_schema({"properties": {"x": typed}}).fields[0].choices[1] == ("null", None)
