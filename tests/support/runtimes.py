"""A fixture for runtimes in this process, on a scripted engine or on the embedded model."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.config.paths import Paths
from agent.models import resolve
from agent.models.catalog import Model
from agent.models.loader import ModelLoader
from agent.runtime.runtime import Runtime
from tools.factory import ToolboxOptions, build_toolbox

MakeRuntime = Callable[..., Awaitable[Runtime]]


@pytest.fixture
async def make_runtime(tmp_path: Path, model_cache: Path) -> AsyncIterator[MakeRuntime]:
    """``await make_runtime(script=path)``, ready; closed after the test.

    Other arguments are passed to ``build_toolbox``.
    """
    async with AsyncExitStack() as stack:

        async def make(
            script: Path | None = None,
            tools: str = "none",
            context: int | None = None,
            model: Model | None = None,
            **settings: Any,
        ) -> Runtime:
            paths = Paths(tmp_path / "config", model_cache, tmp_path / "state")
            toolbox = build_toolbox(ToolboxOptions(tools=tools, **settings))
            model = model or resolve.resolve_model("tiny", paths)
            loader = ModelLoader(model, paths, script, context)
            runtime = Runtime(loader, toolbox.host, toolbox.policy)
            runtime.server_wait_seconds = 300.0
            stack.push_async_callback(runtime.close)
            await runtime.start()
            await runtime.ready()
            return runtime

        yield make
