"""A small GGUF of the Qwen family, with its format and vocabulary."""

from pathlib import Path

import pytest

from agent.formats import detect
from agent.formats.markup.format import MarkupFormat
from agent.formats.markup.gguf_vocabulary import GgufVocabulary
from tests.support import random_qwen_gguf


@pytest.fixture(scope="session")
def qwen_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.gguf"
    return random_qwen_gguf.write_model(
        path, random_qwen_gguf.SPECIALS, random_qwen_gguf.THINKING_TEMPLATE
    )


@pytest.fixture(scope="session")
def qwen_format(qwen_gguf: Path) -> MarkupFormat:
    markup_format = detect.load_format(qwen_gguf, "auto")
    assert markup_format is not None and markup_format.name == "qwen3"
    return markup_format


@pytest.fixture(scope="session")
def vocabulary(qwen_gguf: Path) -> GgufVocabulary:
    return GgufVocabulary(qwen_gguf)
