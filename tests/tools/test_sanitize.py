"""Names and results as the model sees them."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.results import ResultBuilder, protocol_failure, shorten
from tools.sanitize import clean_text, model_names


def test_model_names_odd_names() -> None:
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


@settings(max_examples=50)
@given(st.lists(st.tuples(st.text(max_size=80), st.text(max_size=80)), max_size=8))
def test_model_names_any_input_unique_identifiers(keys: list[tuple[str, str]]) -> None:
    names = model_names(keys)
    assert set(names) == set(keys)
    assert all(re.fullmatch(r"[A-Za-z0-9_]{1,64}", name) for name in names.values())
    assert len({name.lower() for name in names.values()}) == len(names)


def test_clean_text_strips_hidden_characters() -> None:
    assert (
        clean_text("Read\u200b it\u202e now\x1b[31m\U000e0041\n\tplease ")
        == "Read it now[31m\n\tplease"
    )
    ordinary = "Größe 大小 🙂 می\u200cخواهم 👩\u200d👩\u200d👧"
    assert clean_text(ordinary) == ordinary


def test_result_structured_content_only_where_blocks_do_not_repeat_it() -> None:
    results = ResultBuilder(100, None)
    assert results.build([], {"a": 1}).text == '{"a": 1}'
    blocks = [{"type": "text", "text": "one"}]
    assert results.build(blocks, {"a": 1}).text == 'one\n{"a": 1}'
    assert results.build(blocks, {"a": 1}, own=True).text == "one"
    assert results.build(blocks, {"a": {"b": "one"}, "c": True}).text == "one"
    assert results.build([]).text == ""
    assert results.build([], failed=True).failure == "execution"


def test_result_binary_blocks_saved_and_named(tmp_path: Path) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "hi"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA", "mimeType": "x/y"}},
        {"type": "image", "data": "@", "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "hologram"},
    ]
    result = ResultBuilder(1000, tmp_path).build(blocks)
    names = [Path(path) for path in re.findall(r"kept in (.*?)\]", result.text)]
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


def test_result_surrogates_replaced() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "\udcff.txt"},
        {"type": "resource", "resource": {"uri": "file:///\udcff", "text": "Größe \ud800"}},
    ]
    result = ResultBuilder(100, None).build(blocks)
    assert result.text == "\ufffd.txt\n[resource file:///\ufffd]\nGröße \ufffd"
    refused = protocol_failure("no such server: \udcff", -1)
    table = ResultBuilder(100, None).build([], {"\udcff": 1})
    for outcome in (result, refused, table):
        json.dumps([outcome.text, outcome.content], ensure_ascii=False).encode()


def test_shorten_counts_missing_characters() -> None:
    assert shorten("x" * 100, 100) == "x" * 100
    text = "".join(chr(97 + i % 26) for i in range(10_000))
    short = shorten(text, 1000)
    assert len(short) <= 1000
    cut = int(re.search(r"\[\.\.\. ([\d,]+) of 10,000", short)[1].replace(",", ""))  # type: ignore[index]
    head, tail = re.split(r"\n\[.*\]\n", short)
    assert text.startswith(head) and text.endswith(tail)
    assert cut == len(text) - len(head) - len(tail)


def test_result_long_text_names_file(tmp_path: Path) -> None:
    result = ResultBuilder(1000, tmp_path).build([{"type": "text", "text": "x" * 5000}])
    assert (
        result.full_text_path is not None and Path(result.full_text_path).read_text() == "x" * 5000
    )
    assert (
        f"of 5,000 characters left out; the whole is in {result.full_text_path} ...]" in result.text
    )
    assert len(result.text) == 1000
    assert "whole" not in shorten("x" * 1000, 100, "/a" * 50)


@pytest.mark.parametrize("bound", [{"max_files": 3}, {"max_bytes": 1500}, {"max_bytes": 10}])
def test_result_oldest_files_deleted(tmp_path: Path, bound: dict[str, int]) -> None:
    (tmp_path / "other").write_text("not ours")
    results = ResultBuilder(100, tmp_path, **bound)
    paths = []
    for age in range(6, 0, -1):
        result = results.build([{"type": "text", "text": "x" * 500}])
        assert result.full_text_path is not None
        os.utime(result.full_text_path, (age, 10 - age))
        paths.append(result.full_text_path)
    left = {str(path) for path in tmp_path.iterdir()} - {str(tmp_path / "other")}
    assert left == set(
        paths[-1:] if "max_bytes" in bound and bound["max_bytes"] < 500 else paths[-3:]
    )
    assert (tmp_path / "other").exists()


def test_result_full_disk_still_shortened(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = ResultBuilder(200, file / "below").build([{"type": "text", "text": "x" * 500}])
    assert result.full_text_path is None and len(result.text) <= 200
