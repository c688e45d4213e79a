"""The draft model that an entry of models.toml names."""

from pathlib import Path

import pytest

from agent.config.paths import Paths
from agent.engine.protocol import EngineError
from agent.models.loader import ModelLoader, check_vocabulary, resolve_draft
from agent.models.resolve import resolve_model
from tests.support.random_gguf import RandomShape, write_model


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "config").mkdir()
    return Paths(tmp_path / "config", tmp_path / "cache", tmp_path / "state")


def add(paths: Paths, name: str, shape: RandomShape | None = None, more: str = "") -> None:
    """Write a model and its entry."""
    path = write_model(paths.config.parent / f"{name}.gguf", shape or RandomShape())
    with (paths.config / "models.toml").open("a") as file:
        file.write(f'[{name}]\npath = "{path}"\n{more}\n')


def test_draft_model_is_placed_with_the_model(paths: Paths) -> None:
    add(paths, "small")
    add(paths, "large", RandomShape(layers=6, seed=1), 'draft = "small"')
    loader = ModelLoader(resolve_model("large", paths), paths)
    assert loader.draft_path() == paths.config.parent / "small.gguf"
    plan = loader.plan()
    assert plan is not None and plan.placement.draft is not None
    assert plan.reasons[-1] == "draft model small on the CPU"
    alone = ModelLoader(resolve_model("small", paths), paths)
    assert alone.draft_path() is None


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        ("other", "It has another vocabulary: name a smaller model of its family."),
        ("nobody", "There is no model nobody; known: "),
        ("gpt-oss-20b", "is not installed; download it with: agent models pull gpt-oss-20b"),
        ("served", "It runs on a server."),
    ],
)
def test_draft_model_that_cannot_be_used_is_one_sentence(
    paths: Paths, draft: str, reason: str
) -> None:
    add(paths, "other", RandomShape(vocabulary=600))
    add(paths, "large", more=f'draft = "{draft}"')
    with (paths.config / "models.toml").open("a") as file:
        file.write('[served]\nengine = "vllm"\nurl = "http://127.0.0.1:1"\n')
    loader = ModelLoader(resolve_model("large", paths), paths)
    with pytest.raises(EngineError) as caught:
        loader.draft_path()
    assert str(caught.value).startswith(f"{draft} cannot be the draft model of large. ")
    assert reason in str(caught.value)


@pytest.mark.long
def test_names_of_tokens_without_text_may_differ(paths: Paths, tiny_gguf: Path) -> None:
    tiny = resolve_model("tiny", paths)
    assert resolve_draft(tiny, paths) is None
    check_vocabulary(tiny, tiny_gguf, tiny_gguf)
    copy = paths.config / "copy.gguf"
    data = tiny_gguf.read_bytes()
    copy.write_bytes(data.replace(b"<|reserved_200019|>", b"<|reserved_------|>", 1))
    check_vocabulary(tiny, tiny_gguf, copy)
    copy.write_bytes(data.replace(b"Aircraft", b"aircraft", 1))
    with pytest.raises(EngineError, match="another vocabulary"):
        check_vocabulary(tiny, tiny_gguf, copy)
