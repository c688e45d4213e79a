"""Where a model goes: plans for made-up machines, and estimated sizes against llama.cpp's own."""

import logging
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.engine.placement import gguf_header, memory_estimate, planner
from agent.engine.placement.devices import Device
from agent.engine.placement.memory_estimate import ModelSizes
from agent.engine.placement.placement import KvType, Placement, Speculation
from agent.engine.placement.planner import ModelTooLargeError, PlacementRequest
from agent.engine.protocol import EngineError
from tests.support import random_gguf, sparse_gguf

GB = 10**9


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_gguf.write_model(tmp_path_factory.mktemp("shaped") / "small.gguf")


@pytest.fixture(scope="module")
def small_sizes(small: Path) -> ModelSizes:
    return memory_estimate.read_model_sizes(small)


@pytest.fixture(scope="module")
def large_sizes(tmp_path_factory: pytest.TempPathFactory) -> ModelSizes:
    path = tmp_path_factory.mktemp("shaped") / "large.gguf"
    return memory_estimate.read_model_sizes(sparse_gguf.write_model(path, sparse_gguf.LARGE))


def gpu(gigabytes: float, name: str = "CUDA0", kind: str = "gpu") -> Device:
    free = int(gigabytes * GB)
    return Device(name, "a card", kind, free, free)  # type: ignore[arg-type]


CPU = Device("CPU", "a processor", "cpu", 0, 0)


def plan(
    sizes: ModelSizes, memory: float, *gpus: Device, **request: object
) -> planner.PlacementPlan:
    result = planner.plan_placement(
        "it",
        sizes,
        int(memory * GB),
        [*gpus, CPU],
        PlacementRequest(**request),  # type: ignore[arg-type]
    )
    assert_fits(sizes, result, memory, list(gpus))
    return result


def assert_fits(
    sizes: ModelSizes, result: planner.PlacementPlan, memory: float, gpus: list[Device]
) -> None:
    """Assert what holds for every plan."""
    assert result.memory_use == planner.memory_use(
        sizes, result.placement, planner.usable_gpus(gpus)
    )
    assert result.memory_use.memory <= memory * GB
    for taken, card in zip(result.memory_use.devices, planner.usable_gpus(gpus), strict=False):
        assert taken <= card.free
    assert result.reasons and all(not line.endswith(".") for line in result.reasons)


# --- sizes from the header ---


@pytest.mark.parametrize(
    ("context", "kv_type", "flash", "speculation"),
    [
        (4096, "f16", None, "off"),
        (131_072, "f16", None, "off"),
        (32_768, "q8_0", True, "off"),
        (4096, "f16", None, "lookup"),
    ],
)
def test_estimate_matches_llama_cpps_buffers(
    small: Path,
    small_sizes: ModelSizes,
    context: int,
    kv_type: KvType,
    flash: bool | None,
    speculation: Speculation,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """llama.cpp computes its buffers' sizes also when it allocates none (no_alloc)."""
    import llama_cpp.llama_cpp as lib

    from agent.engine.llama import bindings  # takes llama.cpp's log

    caplog.set_level(logging.DEBUG, bindings.log.name)
    params = lib.llama_model_default_params()
    params.no_alloc, params.load_mode, params.use_extra_bufts = True, 0, False
    model = lib.llama_model_load_from_file(os.fsencode(small), params)
    settings = lib.llama_context_default_params()
    placement = Placement(context=context, kv_type=kv_type, speculation=speculation)
    settings.n_ctx = context
    settings.n_seq_max, settings.n_outputs_max = placement.kv_sequences, placement.outputs
    settings.n_batch = settings.n_ubatch = 512
    settings.swa_full, settings.kv_unified = False, True
    settings.type_k = settings.type_v = {"f16": 1, "q8_0": 8}[kv_type]
    settings.flash_attn_type = 1 if flash else -1
    made = lib.llama_init_from_model(model, settings)
    lib.llama_free(made)
    lib.llama_model_free(model)

    log = "\n".join(caplog.messages)
    cache = sum(float(size) for size in re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", log))
    (work,) = (float(size) for size in re.findall(r"compute buffer size = +([\d.]+) MiB", log))
    assert planner.kv_cache_bytes(small_sizes, placement) / 2**20 == pytest.approx(cache, rel=0.01)
    assert work <= planner.work_bytes(small_sizes, placement) / 2**20 <= work * 1.5


def test_model_sizes_add_up_to_the_file(small: Path, small_sizes: ModelSizes) -> None:
    assert 0 <= small.stat().st_size - small_sizes.weights < 1_000_000
    assert [layer.sliding_window for layer in small_sizes.layers[:3]] == [128, 0, 128]
    assert small_sizes.architecture == "gpt-oss" and small_sizes.trained_context == 131_072


def test_model_sizes_of_split_model_count_all_files(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    random_gguf.write_model(first)
    alone = memory_estimate.read_model_sizes(first.rename(tmp_path / "one.gguf"))
    (tmp_path / "one.gguf").rename(first)
    with pytest.raises(EngineError, match="00002-of-00002"):
        memory_estimate.read_model_sizes(first)
    random_gguf.write_model(tmp_path / "m-00002-of-00002.gguf")
    assert memory_estimate.read_model_sizes(first).weights == 2 * alone.weights


def test_outline_leaves_long_arrays_out(tmp_path: Path) -> None:
    path = random_gguf.write_model(tmp_path / "x.gguf", random_gguf.RandomShape(vocabulary=5000))
    outline = gguf_header.read_outline(path)
    assert "tokenizer.ggml.tokens" not in outline.metadata
    metadata = gguf_header.read_metadata(path)
    assert outline.metadata == {k: v for k, v in metadata.items() if k in outline.metadata}
    (embedding,) = (t for t in outline.tensors if t.name == "token_embd.weight")
    assert (embedding.shape, embedding.size) == ((64, 5000), 5000 * 64 * 2)


@pytest.mark.parametrize("size", [0, 3, 30, 3000, 8000])
def test_outline_of_truncated_header_raises(tmp_path: Path, size: int) -> None:
    path = random_gguf.write_model(tmp_path / "x.gguf")
    os.truncate(path, size)
    with pytest.raises(EngineError):
        gguf_header.read_outline(path)


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_header_with_random_bytes_is_read_or_raises(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "x.gguf"
    header = bytearray(header_bytes(tmp_path))
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(4, len(header) - 9), st.integers(0, 2**64 - 1)), min_size=1)
    ):
        header[at : at + 8] = value.to_bytes(8, "little")
    path.write_bytes(header)
    for work in (
        gguf_header.read_outline,
        gguf_header.read_metadata,
        memory_estimate.read_model_sizes,
    ):
        with suppress(EngineError):
            work(path)


def header_bytes(folder: Path) -> bytes:
    """Of a small model: what stands before its weights."""
    path = folder / "small.gguf"
    if not path.exists():
        random_gguf.write_model(path)
    return path.read_bytes()[:6000]


# --- plans ---


def test_plan_large_gpu_takes_all_layers(small_sizes: ModelSizes) -> None:
    result = plan(small_sizes, 64, gpu(24))
    assert (result.placement.gpu_layers, result.placement.cpu_experts) == (25, 0)
    assert result.placement.context == 131_072 and result.memory_use.memory < 2 * GB
    assert result.reasons == ("all 25 layers on CUDA0",)


def test_plan_small_gpu_leaves_experts_in_memory(
    small_sizes: ModelSizes, large_sizes: ModelSizes
) -> None:
    larger = plan(small_sizes, 32, gpu(8)).placement
    smaller = plan(small_sizes, 32, gpu(6)).placement
    assert larger.gpu_layers == smaller.gpu_layers == 25
    assert 0 < larger.cpu_experts < smaller.cpu_experts <= 24
    assert larger.context == planner.MAX_OFFLOAD_CONTEXT_TOKENS, "contexts push few experts off"
    large = plan(large_sizes, 64, gpu(24))
    assert large.placement.gpu_layers == 37 and large.placement.cpu_experts > 20
    assert "experts of the first" in large.reasons[0]


def test_plan_tiny_gpu_takes_the_last_layers(small_sizes: ModelSizes) -> None:
    result = plan(small_sizes, 32, gpu(1.5))
    assert 0 < result.placement.gpu_layers < 25 and result.placement.cpu_experts == 0


def test_plan_full_gpu_is_unused(small_sizes: ModelSizes) -> None:
    result = plan(small_sizes, 32, gpu(0.6))
    assert result.placement.gpu_layers == 0 and "no room" in result.reasons[0]


def test_plan_several_gpus_split_by_free_memory(small_sizes: ModelSizes) -> None:
    result = plan(small_sizes, 64, gpu(24), gpu(12, "CUDA1"))
    assert sum(result.placement.tensor_split) == result.placement.gpu_layers == 25
    assert result.placement.tensor_split[0] > result.placement.tensor_split[1] > 0
    assert "CUDA0 + CUDA1" in result.reasons[0]


def test_plan_counts_a_gpu_without_free_memory(small_sizes: ModelSizes) -> None:
    """llama.cpp numbers the split by its own devices."""
    result = plan(small_sizes, 64, gpu(0), gpu(20, "CUDA1"), gpu(20, "CUDA2"))
    first, *others = result.placement.tensor_split
    assert first == 0 and sum(others) == 25 and min(others) > 0
    result = plan(small_sizes, 64, gpu(20), gpu(0, "CUDA1"))
    assert result.placement.tensor_split == (25, 0)


def test_plan_integrated_gpu_shares_the_memory(small_sizes: ModelSizes) -> None:
    result = plan(small_sizes, 32, gpu(20, "Vulkan0", "igpu"))
    assert result.placement.gpu_layers == 25 and result.memory_use.memory > small_sizes.weights
    beside = plan(small_sizes, 32, gpu(20, "Vulkan0", "igpu"), gpu(24))
    assert "CUDA0" in beside.reasons[0] and "Vulkan0" not in beside.reasons[0]
    with pytest.raises(ModelTooLargeError):
        plan(small_sizes, 8, gpu(20, "Metal", "gpu"))


def test_plan_on_cpu_context_follows_memory(small_sizes: ModelSizes) -> None:
    contexts = [plan(small_sizes, gb).placement.context for gb in (12, 13, 14, 20)]
    assert contexts == sorted(contexts) and contexts[0] < contexts[-1] == 131_072
    assert plan(small_sizes, 13).reasons[-1].endswith("by the memory that is free")


def test_plan_context_of_models_toml_is_an_upper_bound(small_sizes: ModelSizes) -> None:
    assert plan(small_sizes, 20, context=32_768).placement.context == 32_768
    assert plan(small_sizes, 12.0, context=32_768).placement.context < 32_768


def test_plan_required_context_quantises_the_kv_cache(small_sizes: ModelSizes) -> None:
    result = plan(small_sizes, 14.2, required_context=131_072)
    assert (result.placement.context, result.placement.kv_type) == (131_072, "q8_0")
    assert result.placement.flash_attention is True and "q8_0" in result.reasons[-1]
    with pytest.raises(ModelTooLargeError, match=r"--context \d+"):
        plan(small_sizes, 14.2, required_context=131_072, kv_type="f16")


def test_plan_too_large_model_says_what_would_fit(
    small_sizes: ModelSizes, large_sizes: ModelSizes
) -> None:
    with pytest.raises(ModelTooLargeError) as raised:
        plan(small_sizes, 13, required_context=131_072)
    match = re.search(r'--context (\d+) with kv_type = "(\w+)" would fit\.$', str(raised.value))
    assert match and match[2] == "q8_0"
    assert plan(small_sizes, 13, required_context=int(match[1]), kv_type="q8_0")
    with pytest.raises(ModelTooLargeError):
        plan(small_sizes, 13, required_context=int(match[1]) + 1024, kv_type="q8_0")

    with pytest.raises(
        ModelTooLargeError, match=r"needs 6\d\.\d GB and 23\.0 GB of memory is free"
    ):
        plan(large_sizes, 23)


def test_plan_overcommit_accepts_too_little_memory(large_sizes: ModelSizes) -> None:
    result = planner.plan_placement(
        "it", large_sizes, 23 * GB, [CPU], PlacementRequest(overcommit=True)
    )
    assert (
        result.placement.gpu_layers == 0 and result.placement.context >= planner.MIN_CONTEXT_TOKENS
    )


def test_plan_follows_models_toml(small_sizes: ModelSizes) -> None:
    result = plan(small_sizes, 32, gpu(24), gpu_layers=10, extra_buffers=True).placement
    assert (result.gpu_layers, result.cpu_experts, result.extra_buffers) == (10, 0, True)
    result = plan(small_sizes, 32, gpu(24), cpu_experts=24, kv_type="q4_0").placement
    assert (result.gpu_layers, result.cpu_experts, result.kv_type) == (25, 24, "q4_0")
    assert plan(small_sizes, 32, gpu(24), gpu_layers=0).placement.gpu_layers == 0
    assert plan(small_sizes, 32, gpu_layers=99).placement.gpu_layers == 0, "there is no GPU"
    with pytest.raises(ModelTooLargeError, match="gpu_layers"):
        plan(small_sizes, 32, gpu(8), gpu_layers=99)


def test_plan_counts_an_expert_cache_on_each_gpu(small_sizes: ModelSizes) -> None:
    cards = gpu(9, "CUDA0"), gpu(9, "CUDA1")
    without, beside = (
        plan(small_sizes, 32, *cards, required_context=16_384, cpu_experts=12, expert_cache=size)
        for size in (0, GB)
    )
    assert beside.placement.expert_cache == GB
    assert sum(beside.memory_use.devices) == sum(without.memory_use.devices) + 2 * GB
    tight = (
        plan(small_sizes, 32, gpu(4), cpu_experts=24),
        plan(small_sizes, 32, gpu(4), cpu_experts=24, expert_cache=GB),
    )
    assert tight[0].placement.context > tight[1].placement.context


def test_plan_fp8_cache_takes_half_of_f16(small_sizes: ModelSizes) -> None:
    f16, f8 = (Placement(131_072, kv_type=kind) for kind in ("f16", "f8"))
    assert planner.kv_cache_bytes(small_sizes, f16) == 2 * planner.kv_cache_bytes(small_sizes, f8)
    assert plan(small_sizes, 32, kv_type="f8").placement.flash_attention


def test_plan_context_is_at_most_the_trained_one(small_sizes: ModelSizes) -> None:
    short = replace(small_sizes, trained_context=4096)
    result = plan(short, 32, required_context=100_000)
    assert result.placement.context == 4096 and "trained" in result.reasons[-1]


@pytest.mark.parametrize(
    ("loads", "budgets", "counts"),
    [
        ([1] * 10, [10, 10], (5, 5)),
        ([1] * 10, [20, 5], (8, 2)),
        ([1] * 10, [10], (10,)),
        ([1] * 10, [9], None),
        ([1] * 10, [-5, 10], (0, 10)),
        ([4, 4, 4], [5, 5], None),
        ([5, 1, 1, 1], [5, 3], (1, 3)),
        ([1], [], None),
    ],
)
def test_split_layers_is_in_order_and_proportional(
    loads: list[int], budgets: list[int], counts: tuple[int, ...] | None
) -> None:
    assert planner.split_layers(loads, budgets) == counts
