"""Fixtures for all tests of tools."""

import pytest


@pytest.fixture(autouse=True)
def short_exit_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not end when they are told to are killed soon."""
    monkeypatch.setattr("tools.mcp.stdio.EXIT_GRACE_SECONDS", 0.5)
    monkeypatch.setattr("tools.mcp.stdio.DRAIN_SECONDS", 0.2)
