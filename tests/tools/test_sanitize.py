"""Names and results as the model sees them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.results import Results, failure, shorten
from tools.sanitize import clean, model_names


def test_names_that_need_care() -> None:
    keys = [
        ("files", "read"),
        ("my.server", "get-thing"),
        ("дом", "читать"),
        ("s", "a.b"),
        ("s", "a-b"),
        ("a__b", "c"),
        ("a", "b__c"),
        ("s", "x" * 100),
        ("s", "x" * 101),
        ("S", "Same"),
        ("s", "same"),
    ]
    names = model_names(keys)
    assert names["files", "read"] == "files__read"
    assert names["my.server", "get-thing"] == "my_server__get_thing"
    assert re.fullmatch(r"s__a_b_[0-9a-f]{8}", names["s", "a.b"])
    assert len(set(names.values())) == len(keys)
    # Whoever comes up first, the names are the same.
    assert model_names(reversed(keys)) == names


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=80), st.text(max_size=80)), max_size=8))
def test_any_names_become_unique_words(keys: list[tuple[str, str]]) -> None:
    names = model_names(keys)
    assert set(names) == set(keys)
    assert all(re.fullmatch(r"[A-Za-z0-9_]{1,64}", name) for name in names.values())
    assert len({name.lower() for name in names.values()}) == len(names)


def test_descriptions_hide_nothing() -> None:
    assert (
        clean("Read\u200b it\u202e now\x1b[31m\U000e0041\n\tplease ") == "Read it now[31m\n\tplease"
    )
    assert clean("Größe 大小 🙂") == "Größe 大小 🙂"


def test_structured_content_is_shown_where_there_is_no_other() -> None:
    results = Results(100, None)
    assert results.of([], {"a": 1}).text == '{"a": 1}'
    assert results.of([{"type": "text", "text": "one"}], {"a": 1}).text == "one"
    assert results.of([]).text == ""
    assert results.of([], failed=True).text.startswith("Error")


def test_what_is_no_text_is_kept_in_files_and_named(tmp_path: Path) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "hi"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA", "mimeType": "x/y"}},
        {"type": "image", "data": "@", "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "hologram"},
    ]
    result = Results(1000, tmp_path).of(blocks)
    names = [Path(found) for found in re.findall(r"kept in (.*?)\]", result.text)]
    assert [(path.read_bytes(), path.suffix) for path in names] == [
        (b"\0\0\0", ".wav"),
        (b"\0\0\0", ".y"),
        (b"", ".png"),
    ]
    assert re.sub(r", kept in .*?\]", "]", result.text) == (
        "[audio audio/wav, 3 B]\n[resource file:///a]\nhi\n[resource file:///b x/y, 3 B]\n"
        "[image image/png, not valid base64]\n[image image/png, 0 B]\n[hologram]"
    )
    assert all("data" not in block for block in result.content)


def test_what_cannot_be_encoded_is_replaced() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "\udcff.txt"},
        {"type": "resource", "resource": {"uri": "file:///\udcff", "text": "Größe \ud800"}},
    ]
    result = Results(100, None).of(blocks)
    assert result.text == "?.txt\n[resource file:///?]\nGröße ?"
    refused = failure("no such server: \udcff", -1)
    table = Results(100, None).of([], {"\udcff": 1})
    for one in (result, refused, table):
        json.dumps([one.text, one.content], ensure_ascii=False).encode()


def test_what_is_cut_is_counted() -> None:
    assert shorten("x" * 100, 100) == "x" * 100
    text = "".join(chr(97 + i % 26) for i in range(10_000))
    short = shorten(text, 1000)
    assert len(short) <= 1000
    cut = int(re.search(r"\[\.\.\. ([\d,]+) of 10,000", short)[1].replace(",", ""))  # type: ignore[index]
    head, tail = re.split(r"\n\[.*\]\n", short)
    assert text.startswith(head) and text.endswith(tail)
    assert cut == len(text) - len(head) - len(tail)


def test_what_is_cut_says_where_the_whole_is(tmp_path: Path) -> None:
    result = Results(1000, tmp_path).of([{"type": "text", "text": "x" * 5000}])
    assert result.whole is not None and Path(result.whole).read_text() == "x" * 5000
    assert f"of 5,000 characters left out; the whole is in {result.whole} ...]" in result.text
    assert len(result.text) == 1000
    assert "whole" not in shorten("x" * 1000, 100, "/a" * 50)


@pytest.mark.parametrize("bound", [{"MAX_FILES": 3}, {"MAX_BYTES": 1500}, {"MAX_BYTES": 10}])
def test_the_oldest_whole_results_are_deleted(
    tmp_path: Path, bound: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bound.items():
        monkeypatch.setattr(f"tools.results.{name}", value)
    (tmp_path / "other").write_text("not ours")
    results = Results(100, tmp_path)
    kept = []
    for age in range(6, 0, -1):
        result = results.of([{"type": "text", "text": "x" * 500}])
        assert result.whole is not None
        os.utime(result.whole, (age, 10 - age))
        kept.append(result.whole)
    left = {str(path) for path in tmp_path.iterdir()} - {str(tmp_path / "other")}
    assert left == set(
        kept[-1:] if "MAX_BYTES" in bound and bound["MAX_BYTES"] < 500 else kept[-3:]
    )
    assert (tmp_path / "other").exists()


def test_a_full_disk_only_loses_the_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = Results(200, file / "below").of([{"type": "text", "text": "x" * 500}])
    assert result.whole is None and len(result.text) <= 200
