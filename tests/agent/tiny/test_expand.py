"""The embedded model's file: made once, found again, repaired, the same everywhere."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

import gguf
import pytest

from agent.tiny import expand, vocabulary


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Writing replaced by 300 kB of bytes that depend on the core; counts how often it ran."""
    runs: list[int] = []

    def write(path: Path, packed: bytes, tell: expand.Progress) -> None:
        runs.append(1)
        tell(50, 100)
        path.write_bytes(hashlib.sha256(packed).digest() * 10_000)

    monkeypatch.setattr(expand, "_write", write)
    return runs


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return expand.ensure(tmp_path_factory.mktemp("cache"))


def test_a_second_call_finds_the_file(tmp_path: Path, quick: list[int]) -> None:
    steps: list[tuple[int, int]] = []
    first = expand.ensure(
        tmp_path / "new" / "folder", lambda done, total: steps.append((done, total))
    )
    again = expand.ensure(tmp_path / "new" / "folder", lambda done, total: steps.append((0, 0)))
    assert first == again
    assert len(quick) == 1
    assert steps == [(0, 100), (50, 100), (90, 100), (100, 100)]


def test_the_name_tells_the_core(tmp_path: Path, quick: list[int]) -> None:
    core = hashlib.sha256(expand.CORE.read_bytes()).hexdigest()
    assert expand.ensure(tmp_path).name == f"tiny-{core[:12]}.gguf"


@pytest.mark.parametrize(
    "harm", ["truncated", "changed", "emptied", "removed", "record", "nonsense"]
)
def test_a_damaged_file_is_made_again(tmp_path: Path, quick: list[int], harm: str) -> None:
    path = expand.ensure(tmp_path)
    whole = path.read_bytes()
    record = path.with_suffix(".json")
    match harm:
        case "truncated":
            os.truncate(path, 1000)
        case "changed":
            path.write_bytes(whole[:-1] + b"?")
        case "emptied":
            path.write_bytes(b"")
        case "removed":
            path.unlink()
        case "record":
            record.unlink()
        case _:
            record.write_text("[1, 2")
    assert expand.ensure(tmp_path).read_bytes() == whole
    assert len(quick) == 2


def test_nothing_but_the_file_and_its_record_is_left(tmp_path: Path, quick: list[int]) -> None:
    path = expand.ensure(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {path.name, path.with_suffix(".json").name}
    noted = json.loads(path.with_suffix(".json").read_text())
    assert noted["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, packed: bytes, tell: expand.Progress) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(expand, "_write", write)
    with pytest.raises(OSError, match="cannot write the embedded model"):
        expand.ensure(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_callers_at_once_all_get_a_whole_file(tmp_path: Path, quick: list[int]) -> None:
    got: list[bytes] = []
    callers = [
        threading.Thread(target=lambda: got.append(expand.ensure(tmp_path).read_bytes()))
        for _ in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(got) == 8
    assert len(set(got)) == 1


def test_an_unwritable_cache_is_told(tmp_path: Path, quick: list[int]) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="cannot write the embedded model"):
        expand.ensure(tmp_path / "file" / "cache")


def test_what_ships_is_small() -> None:
    from agent.tiny import gguf as gguf_file

    shipped = [expand.CORE, vocabulary.PACKED, gguf_file.SPLITS]
    assert sum(path.stat().st_size for path in shipped) < 8_000_000


def test_the_file_is_a_gpt_oss_model(real: Path) -> None:
    reader = gguf.GGUFReader(real)

    def field(name: str) -> object:
        found = reader.get_field(name)
        assert found is not None, name
        return found.contents()

    assert field("general.architecture") == "gpt-oss"
    assert field("gpt-oss.context_length") == 131_072
    assert field("gpt-oss.rope.scaling.type") == "yarn"
    assert field("tokenizer.ggml.pre") == "gpt-4o"
    assert field("tokenizer.ggml.eos_token_id") == 200_002
    names = {tensor.name: tensor for tensor in reader.tensors}
    assert list(names["token_embd.weight"].shape) == [256, vocabulary.SIZE]
    assert list(names["output.weight"].shape) == [256, vocabulary.SIZE]
    assert "blk.0.attn_sinks.weight" in names


@pytest.mark.slow
def test_expanding_is_deterministic(real: Path, tmp_path: Path) -> None:
    assert expand.ensure(tmp_path).read_bytes() == real.read_bytes()
