"""Builds a `Runtime` and its `TurnOptions` from the options of a command and the person's files: the
one place where model, tools, approvals and trace are put together."""

from __future__ import annotations

import logging
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent.config.launch import LaunchOptions
from agent.config.paths import Paths, user_paths
from agent.config.settings import Settings, load_settings
from agent.config.skills import read_skills, skills_digest
from agent.conversation.project_instructions import ProjectInstructions, read_project_instructions
from agent.engine.placement.placement import DEFAULT_SEQUENCES
from agent.engine.protocol import EngineError, Sampling
from agent.errors import UserError, describe_cause, user_errors
from agent.models import catalog, resolve
from agent.models.catalog import Model
from agent.models.loader import ModelLoader
from agent.observability.logging import log_to_file
from agent.runtime.runtime import Runtime
from agent.turn.options import TurnOptions
from agent.util.sanitize import echo
from agent.util.temporary_folders import clear_leftovers_in_background
from agent.util.user_files import expand_path, read_text, refuse_link
from tools.builtin.files.journal import ChangeJournal
from tools.builtin.files.root_folder import RootFolder
from tools.builtin.skills import Skill
from tools.config.servers import ConfigError, ServerConfig
from tools.factory import Toolbox, ToolboxOptions, build_toolbox
from tools.policy.approval_store import ApprovalStore
from tools.sandbox.isolation import own_paths
from tools.types import Mode

if TYPE_CHECKING:
    from agent.store.conversations import Store

log = logging.getLogger(__name__)

TOOL_SEARCH: dict[str, Literal["never", "auto", "always"]] = {
    "auto": "auto", "search": "always", "all": "never",
}  # fmt: skip
MIN_ADDRESS_SPACE = 400 << 20
"""Bytes; the embedded model loads in some more, and native libraries abort in less."""


def _require_address_space() -> None:
    """Raise UserError where libraries that abort without memory would end the process instead."""
    size, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= size < MIN_ADDRESS_SPACE:
        raise UserError(
            f"This program needs {MIN_ADDRESS_SPACE >> 20} MiB of address space in addition to"
            f" the model, and may have {size >> 20} MiB: raise ulimit -v."
        )


def create_runtime(
    launch: LaunchOptions,
    *,
    tools: str = "all",
    keep_alive: float | None = None,
    serves_engine: bool = True,
    parallel: int | None = None,
) -> Runtime:
    """Build the runtime, and check all that can be checked before it loads. Raises UserError.
    ``tools``: the selection without ``--tools``. ``keep_alive``: seconds; None: as configured.
    ``serves_engine``: other programs of this person may use the model. ``parallel``: generations."""
    _require_address_space()
    paths = user_paths()
    log_to_file(paths, launch.log_level)
    clear_leftovers_in_background()
    root = launch.root
    if not root.is_dir():
        raise UserError(f"--root: {root} is not a folder.")
    with user_errors(EngineError, ConfigError):
        model = resolve.resolve_model(launch.model, paths, scripted=launch.engine is not None)
        _warn_wrong_entries(paths)
        settings = load_settings(paths)
        tool_setup = build_toolbox(_toolbox_options(launch, tools, settings, paths))
    script = _script_path(launch.engine)
    keep_alive_choices = (keep_alive, model.keep_alive, settings.keep_alive)
    trace = None
    if launch.trace is not None:
        from agent.observability.trace import Trace

        refuse_link(launch.trace)
        trace = Trace(launch.trace)
    cache_bytes, sequences = settings.prefix_cache_bytes, parallel or DEFAULT_SEQUENCES
    runtime = Runtime(
        ModelLoader(model, paths, script, launch.context, cache_bytes, sequences),
        tool_setup.host,
        tool_setup.policy,
        keep_alive=next((seconds for seconds in keep_alive_choices if seconds is not None), None),
        serves_engine=serves_engine,
        own_engine=launch.own_engine,
        wrap_generation=None if trace is None else trace.wrap_generation,
    )
    if trace is not None:
        runtime.hub.subscribe(trace.follow)
        runtime.on_close.append(trace.close)
    return runtime


def create_toolbox(
    launch: LaunchOptions, other_roots: Sequence[Path], client_servers: Sequence[ServerConfig]
) -> Toolbox:
    """Build the tools of one more folder of this process, ``launch.root``. Raises UserError."""
    paths = user_paths()
    with user_errors(ConfigError):
        options = _toolbox_options(launch, "all", load_settings(paths), paths)
        options = replace(options, other_roots=other_roots, client_servers=client_servers)
        return build_toolbox(options)


def _toolbox_options(
    launch: LaunchOptions, tools: str, settings: Settings, paths: Paths
) -> ToolboxOptions:
    return ToolboxOptions(
        tools=tools if launch.tools is None else launch.tools,
        mcp_config=launch.mcp_config,
        mcp=launch.mcp,
        demo_tools=launch.demo_tools,
        approve=launch.approve or "",
        root=launch.root,
        results_folder=paths.cache / "results",
        work_folder=paths.cache,
        undo_folder=paths.undo,
        undo_bytes=settings.undo_bytes,
        server_homes=paths.cache / "mcp",
        allow_unsandboxed=settings.unsandboxed_python,
        browser=settings.browser,
        skills=trusted_skills(launch, paths),
        network=settings.network,
        user_config=paths.mcp_json,
        approvals_file=paths.approvals,
        audit_file=paths.audit_log,
        credentials_file=paths.credentials,
        own_folders=paths.folders,
        trust_project=launch.trust_project,
        allow_home=launch.allow_home,
    )


def open_journal(root: Path, paths: Paths) -> ChangeJournal:
    """Open the journal of a root as the tools there do. Raises UserError."""
    folder = RootFolder(root, own_folders=[*paths.folders, *own_paths()])
    return ChangeJournal(folder, paths.undo, load_settings(paths).undo_bytes)


def trusted_skills(launch: LaunchOptions, paths: Paths) -> list[Skill]:
    """The person's own skills, and the project's if the person trusts them."""
    if launch.tools == "none":
        return []
    skills, problems = read_skills(paths, launch.root)
    for sentence in problems:
        log.warning("%s", sentence)
    store, digest = ApprovalStore(paths.approvals, launch.root.resolve()), skills_digest(skills)
    is_trusted = launch.trust_project is True or (digest and store.trusts("skills", digest))
    return [skill for skill in skills if skill.own or is_trusted]


def _warn_wrong_entries(paths: Paths) -> None:
    for model in catalog.load_catalog(paths).values():
        if model.problem is not None:
            log.warning("%s", model.problem)
            echo(f"agent: {model.problem} The other models work.", file=sys.stderr)


def open_store(runtime: Runtime) -> Store | None:
    """The store of conversations; None where it cannot be used, which is said on stderr."""
    from agent.store.conversations import Store, StoreError  # imports sqlite3

    try:
        return Store(runtime.paths.store)
    except StoreError as error:
        echo(f"agent: {error} Conversations are not stored.", file=sys.stderr)
        return None


def turn_options(launch: LaunchOptions, model: Model, *, compact: bool = False) -> TurnOptions:
    """The options of a turn: the command line's, else config.toml's, else models.toml's; ``compact`` if
    neither of the first two says. Raises UserError."""
    settings = load_settings(user_paths())
    overrides = {
        field.name: value
        for source in (settings, launch)
        for field in fields(Sampling)
        if (value := getattr(source, field.name, None)) is not None
    }
    try:
        sampling = replace(model.sampling, **overrides)
    except ValueError as error:
        raise UserError(f"{error}.") from error
    budget = launch.max_reasoning_tokens
    if settings.compact is not None:
        compact = settings.compact == "auto"
    return TurnOptions(
        instructions=launch.system and read_text_option(launch.system, "--system"),
        effort=launch.effort or settings.effort or "medium",
        mode=launch.mode or "ask",
        sampling=sampling,
        max_output_tokens=launch.max_output_tokens,
        max_reasoning_tokens=settings.max_reasoning_tokens if budget is None else budget,
        max_tool_calls=launch.max_tool_calls,
        tool_search=TOOL_SEARCH[settings.tools or "auto"],
        compact=compact if launch.compact is None else launch.compact,
        # A script's replies are as someone wrote them.
        loop_limits=model.loop_limits if launch.loop_guard and launch.engine is None else None,
        hedge_below=model.hedge_below if launch.engine is None else 0.0,
    )


def person_mode(launch: LaunchOptions) -> Mode:
    """The mode of a person's turns, also by config.toml, which says nothing about those of clients.
    Raises UserError."""
    return launch.mode or load_settings(user_paths()).mode or "ask"


def project_instructions(launch: LaunchOptions) -> ProjectInstructions:
    """The AGENTS.md files for ``--root``, unless they are turned off. Raises UserError."""
    paths, wanted = user_paths(), launch.project_instructions
    if wanted is None:
        wanted = load_settings(paths).project_instructions
    return read_project_instructions(paths, launch.root) if wanted else ProjectInstructions()


def _script_path(engine: str | None) -> Path | None:
    """The file of ``--engine script:FILE``, once it was read without an error. Raises UserError."""
    if engine is None:
        return None
    kind, _, file = engine.partition(":")
    if kind != "script" or not file:
        raise UserError(f"--engine must be script:FILE, not {engine!r}.")
    path = expand_path(file)
    if not path.is_file():
        problem = "is not a file" if path.exists() else "does not exist"
        raise UserError(f"--engine: {path} {problem}.")
    from agent.engine.scripted import read_script

    try:
        read_script(path, lambda markup: [])
    except EngineError as error:
        raise UserError(f"--engine: {error}") from error
    return path


def decode_argument(argument: str) -> str:
    """Decode an argument as UTF-8; invalid bytes become U+FFFD."""
    return os.fsencode(argument).decode("utf-8", errors="replace")


def read_text_option(value: str, option: str) -> str:
    """The value of a TEXT|@FILE option. Raises UserError, which names the option."""
    if not value.startswith("@"):
        return decode_argument(value)
    file = expand_path(value[1:])
    try:
        return read_text(file)
    except FileNotFoundError:
        raise UserError(f"{option}: {file} does not exist.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{option}: cannot read {file}: {describe_cause(error)}.") from error
