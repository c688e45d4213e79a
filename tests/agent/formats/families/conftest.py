"""Tests in this folder need the chat templates of llama.cpp's source."""

import pytest

from tests.support.template_families import FOLDER, is_here


@pytest.fixture(autouse=True, scope="session")
def templates() -> None:
    if not is_here():
        pytest.skip(f"llama.cpp's chat templates are not in {FOLDER}: make peer")
