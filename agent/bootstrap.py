"""From the options of a command to what runs: model, tools, policy, settings of a turn."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.cli.shared import Shared
from agent.config.settings import Places, places, settings
from agent.engine.protocol import EngineError, Sampling
from agent.errors import UserError
from agent.models import catalog
from agent.models.catalog import Model
from agent.models.loader import Loading
from agent.observability import logging as logs
from agent.runtime.runtime import Runtime
from agent.turn.options import Options
from agent.util.sanitize import say
from tools.config.servers import ConfigError
from tools.factory import assemble

if TYPE_CHECKING:
    from agent.observability.trace import Trace

log = logging.getLogger(__name__)


def runtime(shared: Shared, *, tools: str = "all", keep_alive: float | None = None) -> Runtime:
    """Everything checked that can be checked before it runs. Raises UserError.

    ``tools``: what takes part unless ``--tools`` says otherwise. ``keep_alive``: seconds; None: as
    models.toml or config.toml says.
    """
    where = places()
    logs.to_file(where, shared.log_level)
    root = shared.root.expanduser()
    if not root.is_dir():
        raise UserError(f"--root: {root} is not a folder.")
    try:
        model = catalog.choose(shared.model, where, scripted=shared.engine is not None)
        _warn(where)
        said = settings(where)
        toolbox = assemble(
            tools=tools if shared.tools is None else shared.tools,
            mcp_config=shared.mcp_config,
            mcp=shared.mcp,
            approve=shared.approve or "",
            root=root,
            results=where.cache / "results",
            work=where.cache,
            allow_unsandboxed=said.unsandboxed_python,
            browser=said.browser,
            user=where.servers,
            approvals=where.approvals,
            calls=where.calls,
            tokens=where.tokens,
            trust_project=shared.trust_project,
        )
    except (EngineError, ConfigError) as error:
        raise UserError(str(error)) from error
    script = _script(shared.engine)
    kept = (keep_alive, model.keep_alive, said.keep_alive)
    return Runtime(
        model,
        toolbox.host,
        toolbox.policy,
        where,
        script=script,
        context=shared.context,
        trace=_trace(shared.trace),
        keep_alive=next((seconds for seconds in kept if seconds is not None), None),
    )


def _warn(where: Places) -> None:
    """Of entries of models.toml that are left out, to whoever started the program."""
    for other in catalog.known(where).values():
        if other.problem is not None:
            log.warning("%s", other.problem)
            say(f"agent: {other.problem} The other models work.", file=sys.stderr)


def _trace(path: Path | None) -> Trace | None:
    if path is None:
        return None
    from agent.observability.trace import Trace

    return Trace(path.expanduser())


def options(shared: Shared, model: Model, *, compact: bool = False) -> Options:
    """What one turn is told; ``compact``: unless command line or config.toml say otherwise.

    Raises UserError.
    """
    given = {
        field.name: value
        for field in fields(Sampling)
        if (value := getattr(shared, field.name, None)) is not None
    }
    try:
        sampling = replace(model.sampling, **given)
    except ValueError as error:
        raise UserError(f"{error}.") from error
    return Options(
        instructions=shared.system and text_of(shared.system, "--system"),
        effort=shared.effort,
        sampling=sampling,
        max_output_tokens=shared.max_output_tokens,
        max_tool_calls=shared.max_tool_calls,
        compact=_compact(shared, compact),
    )


def _compact(shared: Shared, default: bool) -> bool:
    if shared.compact is not None:
        return shared.compact
    said = settings(places()).compact
    return default if said is None else said == "auto"


def model_path(name: str) -> Path:
    """Where a model's GGUF lies. Raises UserError."""
    where = places()
    try:
        model = catalog.choose(name, where)
        return Loading(model, where).file(lambda fraction: None)
    except EngineError as error:
        raise UserError(str(error)) from error


def _script(engine: str | None) -> Path | None:
    if engine is None:
        return None
    kind, _, file = engine.partition(":")
    if kind != "script" or not file:
        raise UserError(f"--engine wants script:FILE, not {engine!r}.")
    path = Path(file).expanduser()
    if not path.is_file():
        raise UserError(f"--engine: there is no file {path}.")
    from agent.engine.scripted import read

    try:
        read(path, lambda markup: [])
    except EngineError as error:
        raise UserError(f"--engine: {error}") from error
    return path


def utf8(argument: str) -> str:
    """An argument as text; bytes that are no UTF-8 are shown as replacements."""
    return os.fsencode(argument).decode("utf-8", errors="replace")


def text_of(given: str, option: str) -> str:
    """TEXT, or the text of @FILE. Raises UserError, which names the option."""
    if not given.startswith("@"):
        return utf8(given)
    try:
        return Path(given[1:]).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{option}: cannot read {given[1:]}: {error}") from error
