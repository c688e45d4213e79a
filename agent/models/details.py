"""Describes one model for people: what its header says, and how it would be placed on this machine."""

from collections.abc import Iterator
from pathlib import Path

from agent.config.paths import Paths
from agent.engine.placement.gguf_header import MetadataValue, read_outline
from agent.engine.placement.memory_estimate import split_files
from agent.engine.placement.planner import PlacementPlan, format_bytes
from agent.engine.protocol import EngineError
from agent.formats.detect import AUTO, is_harmony
from agent.formats.protocol import Format, SingleMessageFormat, decode
from agent.models.catalog import Model, load_catalog
from agent.models.listing import ModelRow
from agent.models.loader import ModelLoader
from agent.util.prefix import common_prefix_length


def row_model(row: ModelRow, paths: Paths) -> Model:
    return load_catalog(paths).get(row.name) or Model(row.name, path=Path(row.path or row.name))


def describe_model(model: Model, paths: Paths) -> list[tuple[str, str]]:
    """Labels and texts about a model; slow, as it reads the header. Raises EngineError."""
    if model.endpoint is not None or not model.installed:
        known = None if model.installed else model.download_size
        size = format_bytes(known) if known else ""
        licence, form = model.license, "" if model.format == AUTO else model.format
        facts = [("Repository", model.repo or ""), ("Download", size), ("Chat format", form)]
        return [fact for fact in (*facts, ("License", licence)) if fact[1]]
    loader = ModelLoader(model, paths)
    path = loader.gguf_path(lambda done: None)
    metadata = read_outline(path).metadata
    try:
        planned = list(_placement_facts(loader.plan(), model))
    except EngineError as error:  # it does not fit
        planned = [("Placement", str(error))]
    facts = [*_header_facts(model, path, metadata), *planned]
    licence = str(metadata.get("general.license", "")) or model.license
    return [fact for fact in (*facts, ("License", licence)) if fact[1]]


def describe_messages(model: Model, paths: Paths) -> Iterator[tuple[str, str]]:
    """Labels and texts on an installed model's messages; slow. Raises EngineError."""
    if model.installed:
        form = ModelLoader(model, paths).create_format()
        yield "Calls", "can be parsed" if form.parses_calls else "cannot be parsed: no tools"
        yield "Response template", form.source
        yield "Example", example_message(form)


def example_message(form: Format) -> str:
    thought, words, name = "I add them.", "I compute it.", form.canonical_name("add", function=True)
    call = form.tool_call(name, '{"a": 1, "b": 2}') if form.parses_calls else []
    if isinstance(form, SingleMessageFormat):
        try:
            begun = form.begin_message(thought, words)
        except ValueError:
            begun = form.begin_message(None, words)
        empty = form.assistant_message("", phase="final_answer")
        rest = call[common_prefix_length(call, empty) :] or form.message_end()
        ids = [*form.open_assistant(), *begun, *form.part_separator(), *rest]
    else:
        ids = form.reasoning_message(thought)
        ids += form.assistant_message(words, phase="commentary") + call
    return decode(form, ids)


def _header_facts(
    model: Model, path: Path, metadata: dict[str, MetadataValue]
) -> Iterator[tuple[str, str]]:
    files = split_files(path)
    size = sum(part.stat().st_size for part in files)
    yield "Size", format_bytes(size) + (f" in {len(files)} files" if len(files) > 1 else "")
    file_type = metadata.get("general.file_type")
    yield "Quantisation", quantisation_name(file_type) if isinstance(file_type, int) else ""
    architecture = str(metadata.get("general.architecture", ""))
    keys = ("block_count", "expert_count", "context_length")
    layers, experts, trained = (metadata.get(f"{architecture}.{key}") for key in keys)
    words = [architecture, f"{layers} layers" if layers else ""]
    words.append(f"{experts} experts each" if experts else "")
    yield "Architecture", " · ".join(filter(None, words))
    yield "Trained for", f"{trained:,} tokens" if isinstance(trained, int) else ""
    detected = "harmony" if is_harmony(metadata) else ""
    yield "Chat format", detected if model.format == AUTO else model.format


def quantisation_name(file_type: int) -> str:
    """The name of a number of enum llama_ftype; empty: it has none."""
    from gguf import LlamaFileType  # 0.2 s

    try:
        name: str = LlamaFileType(file_type).name
    except ValueError:
        return ""
    return name.removeprefix("ALL_").removeprefix("MOSTLY_").removesuffix("_MOE")


def _placement_facts(plan: PlacementPlan | None, model: Model) -> Iterator[tuple[str, str]]:
    if plan is None:
        yield "Context", f"{model.context:,} tokens"
        return
    placement, use = plan.placement, plan.memory_use
    yield "Context", f"{placement.context:,} tokens, KV cache {placement.kv_type}"
    where = f"{placement.gpu_layers} layers on the GPU" if placement.gpu_layers else "on the CPU"
    experts = f", experts of {placement.cpu_experts} on the CPU" if placement.cpu_experts else ""
    yield "Placement", where + experts
    on_gpus = "".join(f" + {format_bytes(size)} on GPU {n}" for n, size in enumerate(use.devices))
    if model.draft:
        yield "Draft model", model.draft
    yield "Memory", format_bytes(use.memory) + on_gpus
