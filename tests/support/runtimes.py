"""Turns in this process: a runtime on a scripted engine or on the embedded model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.config.settings import Places
from agent.models import catalog
from agent.models.catalog import Model
from agent.runtime.runtime import Runtime
from tools.factory import assemble

MakeRuntime = Callable[..., Awaitable[Runtime]]


@pytest.fixture
async def make_runtime(tmp_path: Path, model_cache: Path) -> AsyncIterator[MakeRuntime]:
    """``await make_runtime(script=path)``, ready; closed after the test. More is for ``assemble``."""
    async with AsyncExitStack() as stack:

        async def make(
            script: Path | None = None,
            tools: str = "none",
            context: int | None = None,
            model: Model | None = None,
            **settings: Any,
        ) -> Runtime:
            where = Places(tmp_path / "config", model_cache, tmp_path / "state")
            box = assemble(tools=tools, **settings)
            model = model or catalog.choose("tiny", where)
            runtime = Runtime(model, box.host, box.policy, where, script=script, context=context)
            stack.push_async_callback(runtime.close)
            await runtime.start()
            await runtime.ready()
            return runtime

        yield make
