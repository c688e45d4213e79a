"""A model that cannot be loaded fails with one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement
from agent.engine.protocol import EngineError
from tests.support import random_gguf
from tests.support.waiting import HANG_SECONDS


async def failure(path: Path, placement: Placement | None = None) -> str:
    """The sentence that loading `path` fails with."""
    with pytest.raises(EngineError) as raised:
        await LlamaEngine(path, placement=placement).load()
    message = str(raised.value)
    assert message.endswith(".") and "\n" not in message
    return message


async def test_load_missing_file_raises(tmp_path: Path) -> None:
    assert await failure(tmp_path / "x.gguf") == f"There is no model file {tmp_path / 'x.gguf'}."


async def test_load_folder_raises(tmp_path: Path) -> None:
    assert "is a folder" in await failure(tmp_path)


@pytest.mark.parametrize("content", [b"", b"GG", b"not a model at all"])
async def test_load_file_of_other_format_raises(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    assert "is not a GGUF file" in await failure(tmp_path / "x.gguf")


@pytest.mark.parametrize("share", [0.9, 0.5, 0.001, 0.00002])
async def test_load_truncated_file_raises(tmp_path: Path, gguf: Path, share: float) -> None:
    data = gguf.read_bytes()
    (tmp_path / "x.gguf").write_bytes(data[: int(len(data) * share)])
    assert "is incomplete" in await failure(tmp_path / "x.gguf")


@pytest.mark.parametrize("length", [3, 116, 117, 1000])
async def test_load_unknown_architecture_raises(tmp_path: Path, length: int) -> None:
    path = random_gguf.write_model(tmp_path / "x.gguf", architecture="a" * length)
    assert f"unknown model architecture: '{'a' * length}'" in await failure(path)


async def test_load_model_without_tensors_raises(tmp_path: Path) -> None:
    path = random_gguf.write_model(tmp_path / "x.gguf", architecture="llama")
    assert "cannot be loaded" in await failure(path)


async def test_load_after_failure_succeeds(tmp_path: Path, gguf: Path) -> None:
    path = tmp_path / "x.gguf"
    engine = LlamaEngine(path)
    with pytest.raises(EngineError):
        await engine.load()
    path.symlink_to(gguf)
    await engine.load()
    await engine.close()


MEMORY = """
import asyncio, resource, sys
from pathlib import Path
from agent.engine.protocol import EngineError
from agent.engine.llama import model
from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement

resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
try:
    asyncio.run(LlamaEngine(Path(sys.argv[1]), placement=Placement(2**24)).load())
except EngineError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_load_too_long_context_raises(tmp_path: Path) -> None:
    path = random_gguf.write_model(tmp_path / "x.gguf", random_gguf.RandomShape(context=2**24))
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY, path], capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert "not enough memory for a context of 16,777,216 tokens" in ran.stdout
    assert (ran.returncode, ran.stderr) == (0, "")
