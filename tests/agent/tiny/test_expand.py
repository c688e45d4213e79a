"""The embedded model's file: written once, found again, repaired, the same everywhere."""

import hashlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.tiny import expand, vocabulary
from tests.support import gguf_reader


@dataclass
class FakeWriter:
    """Writes 300 kB of bytes that depend on the core in place of expanding it."""

    calls: int = 0

    def __call__(self, path: Path, packed: bytes, report: expand.Progress) -> None:
        self.calls += 1
        report(0.5)
        path.write_bytes(hashlib.sha256(packed).digest() * 10_000)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> FakeWriter:
    fake = FakeWriter()
    monkeypatch.setattr(expand, "write_gguf", fake)
    return fake


def test_ensure_second_call_finds_file(tmp_path: Path, writer: FakeWriter) -> None:
    steps: list[float] = []
    folder = tmp_path / "new" / "folder"
    first = expand.ensure(folder, steps.append)
    again = expand.ensure(folder, steps.append)
    assert first == again
    assert writer.calls == 1
    assert steps == [0.0, 0.5, 0.9, 1.0]


def test_ensure_file_name_has_hash_of_core(tmp_path: Path, writer: FakeWriter) -> None:
    core = hashlib.sha256(expand.CORE.read_bytes()).hexdigest()
    assert expand.ensure(tmp_path).name == f"tiny-{core[:12]}.gguf"


@pytest.mark.parametrize(
    "harm", ["truncated", "changed", "emptied", "removed", "record", "nonsense"]
)
def test_ensure_damaged_file_is_written_again(
    tmp_path: Path, writer: FakeWriter, harm: str
) -> None:
    path = expand.ensure(tmp_path)
    original = path.read_bytes()
    record = path.with_suffix(".ends")
    match harm:
        case "truncated":
            os.truncate(path, 1000)
        case "changed":
            path.write_bytes(original[:-1] + b"?")
        case "emptied":
            path.write_bytes(b"")
        case "removed":
            path.unlink()
        case "record":
            record.unlink()
        case _:
            record.write_text("[1, 2")
    assert expand.ensure(tmp_path).read_bytes() == original
    assert writer.calls == 2


def test_ensure_leaves_only_file_and_record(tmp_path: Path, writer: FakeWriter) -> None:
    path = expand.ensure(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {path.name, path.with_suffix(".ends").name}


def test_ensure_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, packed: bytes, report: expand.Progress) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(expand, "write_gguf", write)
    with pytest.raises(OSError, match="cannot write the embedded model"):
        expand.ensure(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ensure_concurrent_callers_get_complete_file(tmp_path: Path, writer: FakeWriter) -> None:
    contents: list[bytes] = []

    def call() -> None:
        contents.append(expand.ensure(tmp_path).read_bytes())

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(contents) == 8
    assert len(set(contents)) == 1


def test_ensure_unwritable_cache_raises(tmp_path: Path, writer: FakeWriter) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="cannot write the embedded model"):
        expand.ensure(tmp_path / "file" / "cache")


def test_shipped_files_are_under_11_megabytes() -> None:
    from agent.tiny import gguf as gguf_file

    shipped = [expand.CORE, vocabulary.PACKED, gguf_file.MERGE_SPLITS]
    assert sum(path.stat().st_size for path in shipped) < 11_000_000


def test_expanded_file_is_gpt_oss_gguf(tiny_gguf: Path) -> None:
    reader = gguf_reader.HeaderReader(tiny_gguf)

    def field(name: str) -> object:
        value = reader.get_field(name)
        assert value is not None, name
        return value.contents()

    assert field("general.architecture") == "gpt-oss"
    assert field("gpt-oss.context_length") == 131_072
    assert field("gpt-oss.rope.scaling.type") == "yarn"
    assert field("tokenizer.ggml.pre") == "gpt-4o"
    assert field("tokenizer.ggml.eos_token_id") == 200_002
    names = {tensor.name: tensor for tensor in reader.tensors}
    assert list(names["token_embd.weight"].shape) == [256, vocabulary.VOCABULARY_SIZE]
    assert list(names["output.weight"].shape) == [256, vocabulary.VOCABULARY_SIZE]
    assert "blk.0.attn_sinks.weight" in names


@pytest.mark.long
def test_expansion_is_deterministic(tiny_gguf: Path, tmp_path: Path) -> None:
    assert expand.ensure(tmp_path).read_bytes() == tiny_gguf.read_bytes()
