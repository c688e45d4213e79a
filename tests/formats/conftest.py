"""The vocabulary, once; hypothesis (long: ``pytest tests/formats --hypothesis-profile=more``)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from openai_harmony import HarmonyEncoding

from agent.formats.harmony.render import Renderer
from agent.tiny.vocabulary import ranks
from agent.vocabulary import encoding as load

settings.register_profile("bounded", max_examples=150, deadline=None)
settings.register_profile("more", max_examples=5_000, deadline=None)
if settings.get_current_profile_name() != "more":
    settings.load_profile("bounded")


@pytest.fixture(scope="session")
def encoding(tmp_path_factory: pytest.TempPathFactory) -> HarmonyEncoding:
    return load(ranks, tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def renderer(encoding: HarmonyEncoding) -> Renderer:
    return Renderer(encoding)
