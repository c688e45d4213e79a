"""Runs the real app, with a real session and store, on a model that is a script by default."""

import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.config.launch import LaunchOptions
from tests.support.fake_app import ScreenDriver
from tui.app import AgentApp
from tui.session import Session

ANSWER = {"markup": "<|channel|>final<|message|>Fine.<|return|>"}
"""What the model answers, whatever it is asked."""


@pytest.fixture(autouse=True)
def no_error_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app goes on after most errors of its own; here they fail the test."""
    monkeypatch.setattr(AgentApp, "max_errors", 0)


@pytest.fixture
def open_app(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, restored_logging: None
) -> Callable[..., Any]:
    """A context manager that runs the app below ``home``; ``launch`` changes its launch options."""
    monkeypatch.setenv("AGENT_HOME", str(home))
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps(ANSWER) + "\n")

    @asynccontextmanager
    async def open_app(
        size: tuple[int, int] = (80, 24), launch: dict[str, Any] | None = None, **session: Any
    ) -> AsyncIterator[ScreenDriver]:
        options = {"engine": f"script:{script}", "tools": "none", **(launch or {})}
        app = AgentApp(Session(LaunchOptions(**options), **session))
        async with app.run_test(size=size, notifications=True) as pilot:
            driver = ScreenDriver(app, pilot)
            await driver.wait_for(lambda: app.session_ready)
            yield driver
        await app.shut_down()

    return open_app


@pytest.fixture
def models_toml(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The path of models.toml; no models of other programs are found."""
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "nothing"))
    path = home / "config/models.toml"
    path.parent.mkdir()
    return path


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
