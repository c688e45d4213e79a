"""The encoding is loaded from the model's vocabulary, without network and without a writable cache."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import gguf as gguf_library
import pytest

from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError
from agent.formats.harmony import encoding
from agent.tiny import vocabulary as tiny
from tests.support.full_disk import full_disk


def gpt2_spelling(tokens: Iterable[bytes]) -> list[str]:
    """GPT-2's spelling of byte strings, by its definition."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [byte for byte in range(256) if byte not in plain]
    character = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(unprintable)}
    return ["".join(character[b] for b in token) for token in tokens]


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF with the tokenizer of GPT-OSS and nothing else."""
    path = tmp_path_factory.mktemp("vocabulary") / "gpt-oss.gguf"
    tokens = gpt2_spelling(tiny.tokens())
    tokens += [tiny.special_name(id) for id in range(tiny.ORDINARY_TOKENS, tiny.VOCABULARY_SIZE)]
    return write_gguf(path, tokens)


def write_gguf(path: Path, tokens: list[str]) -> Path:
    writer = gguf_library.GGUFWriter(path, "gpt-oss")
    writer.add_array("of.arrays", [[1, 2], [3]])
    writer.add_bool("flag", True)
    writer.add_float64("float", 0.5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["a b", "c d"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.long
def test_ranks_from_gguf_equal_original(gpt_oss: Path) -> None:
    assert encoding.ranks_from_gguf(gpt_oss) == tiny.ranks()


def test_known_tokens_are_those_of_the_vocabulary(gpt_oss: Path, tmp_path: Path) -> None:
    assert encoding.has_known_tokens(gpt_oss)
    data = bytearray(gpt_oss.read_bytes())
    other = tmp_path / "other.gguf"
    data[data.index(b"tokenizer.ggml.tokens") + 3_000_000] ^= 1
    other.write_bytes(data)
    assert not encoding.has_known_tokens(other)
    assert not encoding.has_known_tokens(write_gguf(tmp_path / "few.gguf", ["a", "b"]))
    other.write_bytes(b"GGUF")
    with pytest.raises(EngineError, match="not all of one"):
        encoding.has_known_tokens(other)


def test_load_encoding_on_full_disk_raises_error(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(EngineError, match="temporary file, which cannot be written"):
        encoding._load(tiny.ranks, tmp_path)


@pytest.mark.long
def test_ranks_other_tokenizer_raises_error(gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not o200k_harmony"):
        encoding.ranks_from_gguf(gguf)
    similar = write_gguf(tmp_path / "x.gguf", [f"t{id}" for id in range(tiny.VOCABULARY_SIZE)])
    with pytest.raises(EngineError, match="is not o200k_harmony"):
        encoding.ranks_from_gguf(similar)


def test_gguf_header_values_are_read(gpt_oss: Path) -> None:
    values = gguf_header.read_metadata(gpt_oss)
    assert values["general.architecture"] == "gpt-oss"
    assert values["flag"] is True and values["float"] == 0.5
    assert values["tokenizer.ggml.merges"] == [b"a b", b"c d"]
    assert "tokenizer.ggml.tokens" not in gguf_header.read_metadata(
        gpt_oss, last="tokenizer.ggml.model"
    )


@pytest.mark.parametrize("length", [0, 3, 20, 100, 1000, 2_000_000])
def test_gguf_header_truncated_raises_error(gpt_oss: Path, tmp_path: Path, length: int) -> None:
    (tmp_path / "x.gguf").write_bytes(gpt_oss.read_bytes()[:length])
    with pytest.raises(EngineError, match="not all of one"):
        gguf_header.read_metadata(tmp_path / "x.gguf")


ENCODE = """
import sys
from pathlib import Path
from agent.formats.harmony import encoding
from agent.engine.protocol import EngineError
from agent.tiny import vocabulary as tiny
from tests.support.full_disk import full_disk

ranks = {"file": tiny.ranks, "bytes": tiny.ranks(), "wrong": b"", "none": None}[sys.argv[1]]
try:
    print(encoding.load_encoding(ranks, Path(sys.argv[2])).encode("hi <|end|>", allowed_special="all"))
    assert encoding.load_encoding(ranks, Path("elsewhere")) is encoding.load_encoding(ranks)
except EngineError as error:
    print(error)
"""


def encode(ranks: str, folder: Path) -> str:
    """The output of a new process without network; its environment stays unchanged."""
    env = {**os.environ, "https_proxy": "http://127.0.0.1:9", "TIKTOKEN_ENCODINGS_BASE": "/none"}
    ran = subprocess.run(
        [sys.executable, "-c", ENCODE, ranks, folder], env=env, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.strip()


HI = "[3686, 220, 200007]"


@pytest.mark.long
def test_load_encoding_caches_file(tmp_path: Path) -> None:
    assert encode("file", tmp_path / "new" / "folder") == HI
    assert [file.name for file in (tmp_path / "new" / "folder").iterdir()] == [encoding.RANKS_FILE]
    assert encode("none", tmp_path / "new" / "folder") == HI


def test_load_encoding_damaged_file_is_rewritten(tmp_path: Path) -> None:
    (tmp_path / encoding.RANKS_FILE).write_bytes(tiny.ranks()[:1000])
    assert encode("bytes", tmp_path) == HI
    assert (tmp_path / encoding.RANKS_FILE).read_bytes() == tiny.ranks()


def test_load_encoding_unwritable_folder_works(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert encode("bytes", tmp_path / "file") == HI


def test_load_encoding_wrong_ranks_raises_error(tmp_path: Path) -> None:
    assert "not o200k_harmony" in encode("wrong", tmp_path)
    assert list(tmp_path.iterdir()) == []
