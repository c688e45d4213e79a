from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not end when asked are ended soon."""
    monkeypatch.setattr("tools.mcp.stdio.GRACE", 0.5)
    monkeypatch.setattr("tools.mcp.stdio.LAST_WORDS", 0.2)
