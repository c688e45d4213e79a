"""`agent doctor`: checks what a turn needs, and says what to do; only what works is ok."""

import asyncio
import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from agent.config.paths import Paths, user_paths
from agent.config.settings import load_settings, settings_file
from agent.engine.placement import cpu_probe, memory_estimate
from agent.engine.placement.cpu_probe import ProbeResult
from agent.engine.placement.hardware import Hardware, compile_command
from agent.engine.placement.planner import PlacementPlan, format_bytes
from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.models.catalog import Model
from agent.models.listing import ModelRow, list_models
from agent.models.loader import EMBEDDED_TENSOR_TYPES, ModelLoader
from agent.models.resolve import resolve_model
from agent.store.damage import OPENING_BYTES
from agent.util import private_files
from agent.util.process import EXIT_DONE, EXIT_FAILED, EXIT_USAGE
from agent.util.sanitize import echo, echo_row

State = Literal["ok", "WRONG", "unused", "available", "off", "none", "unchecked", "limited"]
"""ok: there and works; unused: there, and would be faster or safer than what is used; available: can
be downloaded; off: works once an option names it; none: not there, and not needed; unchecked: on
another machine; limited: works, but not for everything."""
STATE_WIDTH = 9
LANDLOCK_LIMITS = (
    "without bubblewrap, commands create, rename and delete nothing directly in a folder that has"
    " .git (mkdir, rm, sed -i, python -m venv, npm install and cargo build fail there) unless you"
    " allow them to change git's data"
)
Check = tuple[str, State, str]
"""Name, state, and the finding or what to do."""


def main(name: str | None = None, *, bench: bool = False, verbose: bool = False) -> int:
    """Print all checks and return the exit code. ``verbose``: list what llama.cpp was built for."""
    paths = user_paths()
    model: Model | None = None
    groups = {"surroundings": _surroundings(paths), "vocabulary": _vocabulary(paths)}
    if is_readable := not _settings_problem(paths):
        model, missing = _resolve(name, paths)
        groups["models"] = _models(paths, model, missing, bench, verbose)
        groups["builtin_tools"] = _builtin_tools(paths)
    groups["files"] = _files(paths)
    wrong = unused = 0
    for group, checks in groups.items():
        for label, state, text in _guarded(group, checks):
            wrong += state == "WRONG"
            unused += state in ("unused", "limited")
            start = f"{state:{STATE_WIDTH}}  {label:14} "
            echo_row(start + text, len(start))
    problems = f"{wrong} problem{'' if wrong == 1 else 's'} found; see the lines marked WRONG."
    more = "; the lines marked unused or limited say what could be better" if unused else ""
    echo(problems if wrong else f"No problems found{more}.")
    if is_readable and model is None:
        return EXIT_USAGE  # as of every command
    return EXIT_FAILED if wrong else EXIT_DONE


def _guarded(group: str, checks: Iterator[Check]) -> Iterator[Check]:
    try:
        yield from checks
    except Exception as error:  # a check that breaks is a finding, not a traceback
        yield group, "WRONG", f"{type(error).__name__}: {error}"


def _settings_problem(paths: Paths) -> str:
    try:
        load_settings(paths)
    except UserError as error:
        return str(error)
    return ""


def _state(ok: bool) -> State:
    return "ok" if ok else "WRONG"


def _surroundings(paths: Paths) -> Iterator[Check]:
    version, hardware = platform.python_version(), Hardware()
    yield "python", "ok", f"{version} at {sys.executable}"
    if hardware.wsl == 1:
        name = os.environ.get("WSL_DISTRO_NAME", "NAME")
        text = f"WSL 1 has no sandbox or GPU; in Windows: wsl --set-version {name} 2"
        yield "system", "unused", text
    elif hardware.wsl:
        limit = "a line memory=… under [wsl2] in %UserProfile%\\.wslconfig, then wsl --shutdown"
        yield "system", "ok", f"WSL 2; Windows gives it half of its memory, and more with {limit}"
    if hardware.container:
        folders = f"{paths.cache} (models) and {paths.state} (conversations)"
        yield "system", "ok", f"{hardware.container}: mount volumes at {folders} to keep them"
    if hardware.is_musl:
        yield "system", "ok", "musl: no compiled llama.cpp is offered for it; it is compiled here"


def _vocabulary(paths: Paths) -> Iterator[Check]:
    from agent.formats.harmony.encoding import load_encoding
    from agent.tiny.vocabulary import ranks

    encoding = load_encoding(ranks, paths.cache / "vocabulary")
    yield "vocabulary", "ok", f"o200k_harmony, {len(encoding.special_tokens_set)} special tokens"


def _builtin_tools(paths: Paths) -> Iterator[Check]:
    from tools.builtin.browser.extraction import missing_package
    from tools.sandbox.isolation import best_isolation

    active = best_isolation()
    yield "python tool", _state(active.ok), f"isolation {active.name}: {active.detail}"
    yield "files tool", "ok", f"root {Path.cwd()}"
    if active.ok:
        yield "shell tool", "off", "turn it on with --tools all,shell"
    else:
        yield "shell tool", "none", "it needs isolation"
    if active.name == "landlock":
        yield "shell tool", "limited", LANDLOCK_LIMITS
    if active.name != "bubblewrap" and (remedy := Hardware().namespace_remedy):
        why = f"this system forbids what it needs, user namespaces: {remedy}"
        yield "bubblewrap", "unused", why
    if problem := missing_package():
        yield "browser tool", "none", problem
        return
    browser = load_settings(paths).browser
    engine = browser and (
        private_files.redact_url(browser.searxng) if browser.searxng else browser.search
    )
    search = f"searches {engine}" if engine else "no search engine is set"
    yield "browser tool", "off", f"turn it on with --tools all,browser; {search}"


def _prefix_cache(paths: Paths) -> Check:
    from agent.engine.llama import disk_cache

    limit = load_settings(paths).prefix_cache_bytes
    if limit == 0:
        return "prefix cache", "off", "prefix_cache in config.toml is 0"
    used = sum(stat.st_size for _, stat in disk_cache.cache_files(paths.prefix_cache))
    limit = disk_cache.byte_limit(disk_cache.DiskCacheOptions(paths.prefix_cache, limit))
    detail = f"{used / 1e9:.1f} of at most {limit / 1e9:.1f} GB; empty it with agent models cache"
    return "prefix cache", "ok", f"{detail} --clear"


def _undo(paths: Paths) -> Check:
    from tools.builtin.files.journal import journal_files

    if not (limit := load_settings(paths).undo_bytes):
        return "undo", "off", "undo_megabytes in config.toml is 0"
    files = journal_files(paths.undo)
    used = sum(path.stat().st_size for path in files) / 1e6
    folders = f"{len(files)} folder{'' if len(files) == 1 else 's'}"
    return "undo", "ok", f"{used:.1f} MB of {folders}, each with at most {limit / 1e6:g} MB"


def _files(paths: Paths) -> Iterator[Check]:
    for name, folder in (("cache", paths.cache), ("state", paths.state)):
        try:
            private_files.make_folder(folder)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(OPENING_BYTES))  # a full disk still makes empty files
            yield name, "ok", str(folder)
        except OSError as error:
            yield name, "WRONG", f"{folder} cannot be written ({error.strerror}); set AGENT_HOME"
    if not (problem := _settings_problem(paths)):
        yield _prefix_cache(paths)
        yield _undo(paths)
    for path, about in (
        (paths.mcp_json, ""),
        (paths.approvals, " (what runs without asking)"),
        (settings_file(paths), ""),
        (paths.config / "models.toml", ""),
        (paths.audit_log, " (every approval decision)"),
        (paths.log_file, ""),
    ):
        if path == settings_file(paths) and problem:
            yield path.name, "WRONG", problem
        else:
            yield path.name, "ok" if path.exists() else "none", f"{path}{about}"


def _resolve(name: str | None, paths: Paths) -> tuple[Model | None, str]:
    try:
        return resolve_model(name, paths), ""
    except (EngineError, UserError) as error:
        return None, str(error)


def _models(
    paths: Paths, model: Model | None, missing: str, bench: bool, verbose: bool
) -> Iterator[Check]:
    """Check llama.cpp, the devices and one model; ``missing``: why there is none. The processor comes
    first: where llama.cpp crashes, no other call is safe."""
    yield from _listed_models(paths)
    loader = None if model is None else ModelLoader(model, paths)
    plan, refusal = _plan(loader) if loader else (None, None)
    types = plan.weight_types if plan else EMBEDDED_TENSOR_TYPES
    cached = None if bench else cpu_probe.cached_result(paths.cache, types)
    result = cached or asyncio.run(cpu_probe.probe(paths.cache, types))
    yield from _processor(result)
    if result.plain is None:
        return
    yield from _devices(verbose)
    if model is None or loader is None:
        yield "chosen model", "WRONG", missing
        return
    if model.endpoint is not None:
        for endpoint in model.endpoint.replicas():
            one = replace(loader, model=replace(model, endpoint=endpoint))
            ok, finding = asyncio.run(_check_remote(one))
            yield "chosen model", _state(ok), finding
        return
    if model.path is not None:
        try:
            memory_estimate.read_model_sizes(model.path)
        except EngineError as error:
            yield "chosen model", "WRONG", str(error)
            return
    yield "chosen model", "ok", f"{model.name}, {model.path or 'built in'}"
    if refusal is not None:
        yield "placement", "WRONG", refusal
        return
    yield "placement", "ok", _describe_placement(loader, plan)
    if bench:
        from agent.models.benchmark import measure

        yield "speed", "ok", asyncio.run(measure(loader, plan))


def _listed_models(paths: Paths) -> Iterator[Check]:
    rows = list_models(paths)
    yield from (("model", *_describe_row(row)) for row in rows if row.source != "hub")
    if names := ", ".join(row.name for row in rows if row.source == "hub"):
        yield "models", "available", f"{names}; agent models pull NAME downloads one"


def _plan(loader: ModelLoader) -> tuple[PlacementPlan | None, str | None]:
    try:
        loader.draft_path()
        return loader.plan(), None
    except EngineError as error:
        return None, str(error)


async def _check_remote(loader: ModelLoader) -> tuple[bool, str]:
    from agent.engine.remote.engine import RemoteEngine

    endpoint = loader.model.endpoint
    assert endpoint is not None
    try:
        engine, _ = loader.create_engine(loader.placement(None), lambda done: None)
        if isinstance(engine, RemoteEngine):
            problem = await engine.replicas.check_health()
            if problem is not None and problem.loading:  # a load would wait for it
                return False, f"{endpoint.engine} at {endpoint} {problem}: try again later"
        await engine.load()
    except EngineError as error:
        return False, str(error)
    await engine.close()
    text = f"{loader.model.name}, on a server: {endpoint.engine} at {endpoint}"
    return True, f"{text}: {engine.context_length:,} tokens of context, its vocabulary is ours"


def _processor(result: ProbeResult) -> Iterator[Check]:
    if result.plain is None:
        remedy = compile_command("-DGGML_NATIVE=ON")
        yield "processor", "WRONG", f"llama.cpp crashes on it ({result.cause_of_death}): {remedy}"
        return
    if result.repacked is None:
        why = result.cause_of_death or "wrong results"
        yield "processor", "ok", f"runs llama.cpp; weights are not repacked ({why} with that)"
        return
    prefill = result.repacked.prefill / result.plain.prefill
    decode = result.repacked.decode / result.plain.decode
    yield (
        "processor",
        "ok",
        f"runs llama.cpp; with repacked weights a small model reads {prefill:.1f} times as fast and"
        f" writes {decode:.1f} times as fast (on one thread)",
    )


def _describe_row(row: ModelRow) -> tuple[State, str]:
    size = None if row.size is None else format_bytes(row.size)
    match row.source:
        case "wrong":
            return "WRONG", row.description
        case "server":
            return "unchecked", f"{row.name}: on the server {row.path}"
        case "missing":
            return "none", f"{row.name}: not at {row.path}; correct its path in models.toml"
        case "embedded":
            return "ok", f"{row.name}: built in"
        case _ if size is not None and row.runnable:
            return "ok", f"{row.name}: {row.source}, {size}"
        case source:
            return "none", f"{row.name}: {source}{f', {size}' if size else ''}, {row.description}"


def _devices(verbose: bool) -> Iterator[Check]:
    import psutil

    from agent.engine.llama.bindings import features, lib
    from agent.engine.llama.processor import performance_cores, power_saving, usable_cores
    from agent.engine.placement.devices import free_memory, list_devices

    version = importlib.metadata.version("llama-cpp-python")
    system = lib.llama_print_system_info().decode(errors="replace")
    gpu = "GPU offload" if lib.llama_supports_gpu_offload() else "CPU only"
    yield "llama.cpp", "ok", f"llama-cpp-python {version}; {', '.join([gpu, *features()])}"
    if verbose:
        yield "built for", "ok", system.strip(" |\n")
    devices = list_devices()
    for device in devices:
        sizes = f", {format_bytes(device.free)} of {format_bytes(device.total)} free"
        free = sizes if device.total and device.kind != "cpu" else ""
        yield "device", "ok", f"{device.name} ({device.kind}): {device.description.strip()}{free}"
    if not any(device.kind in ("gpu", "igpu") for device in devices):
        yield from _unused_hardware(system, has_backend=lib.llama_supports_gpu_offload())
    cores, fast, saving = usable_cores(), performance_cores(), power_saving()
    kinds = f", of them {fast} performance cores" if fast is not None else ""
    yield "cores", "ok", f"{cores}{kinds}; agent doctor --bench measures how many are used"
    if saving is not None:
        yield "power", "ok", f"the processor is slowed to save power: {saving}"
    total = psutil.virtual_memory().total
    yield "memory", "ok", f"{format_bytes(free_memory())} of {format_bytes(total)} free"


def _unused_hardware(built_for: str, *, has_backend: bool) -> Iterator[Check]:
    """Report hardware that another build of llama.cpp could use; this one uses the CPU alone."""
    hardware = Hardware()
    for vendor in hardware.gpus:
        remedy = hardware.gpu_remedy(vendor, has_backend=has_backend)
        yield "GPU", "unused", f"{hardware.gpu_name(vendor)}: {remedy}"
    if features := hardware.unused_features(built_for):
        names, remedy = " and ".join(features), compile_command("-DGGML_NATIVE=ON")
        yield "processor", "unused", f"{names}, which llama.cpp was built without: {remedy}"


def _describe_placement(loader: ModelLoader, plan: PlacementPlan | None) -> str:
    from agent.engine.llama.model import uses_repacked_weights

    placement = loader.placement(plan)
    parts = [f"{placement.context:,} tokens of context", f"KV cache {placement.kv_type}"]
    parts.append("repacked weights" if uses_repacked_weights(placement) else "weights as they are")
    if placement.speculation != "off":
        parts.append(f"speculation {placement.speculation}")
    if plan is None:
        draft = f"; draft model {loader.model.draft}" if loader.model.draft else ""
        return f"{', '.join(parts)}; on the CPU: it fits anywhere{draft}"
    parts.append(f"{format_bytes(plan.memory_use.memory)} of memory")
    parts += [f"{format_bytes(size)} on GPU {i}" for i, size in enumerate(plan.memory_use.devices)]
    return f"{', '.join(parts)}; {'; '.join(plan.reasons)}"
