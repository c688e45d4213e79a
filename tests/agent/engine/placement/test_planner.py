"""Where a model goes: the choice on made-up machines, its sizes against llama.cpp's own."""

from __future__ import annotations

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
from agent.engine.placement.memory_estimate import Sizes
from agent.engine.placement.placement import KvType, Placement
from agent.engine.placement.planner import TooLarge, Wanted
from agent.engine.protocol import EngineError
from tests.support import random_gguf, shaped_gguf

GB = 10**9


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shaped_gguf.write(tmp_path_factory.mktemp("shaped") / "small.gguf")


@pytest.fixture(scope="module")
def small_sizes(small: Path) -> Sizes:
    return memory_estimate.of(small)


@pytest.fixture(scope="module")
def large_sizes(tmp_path_factory: pytest.TempPathFactory) -> Sizes:
    path = tmp_path_factory.mktemp("shaped") / "large.gguf"
    return memory_estimate.of(shaped_gguf.write(path, shaped_gguf.LARGE))


def gpu(gigabytes: float, name: str = "CUDA0", kind: str = "gpu") -> Device:
    free = int(gigabytes * GB)
    return Device(name, "a card", kind, free, free)  # type: ignore[arg-type]


CPU = Device("CPU", "a processor", "cpu", 0, 0)


def choose(of: Sizes, memory: float, *gpus: Device, **wanted: object) -> planner.Choice:
    found = planner.choose(
        "it",
        of,
        int(memory * GB),
        [*gpus, CPU],
        Wanted(**wanted),  # type: ignore[arg-type]
    )
    assert_fits(of, found, memory, list(gpus))
    return found


def assert_fits(of: Sizes, found: planner.Choice, memory: float, gpus: list[Device]) -> None:
    """What every choice keeps to."""
    assert found.need == planner.need(of, found.placement, planner.usable(gpus))
    assert found.need.memory <= memory * GB
    for taken, card in zip(found.need.devices, planner.usable(gpus), strict=False):
        assert taken <= card.free
    assert found.why and all(not line.endswith(".") for line in found.why)


# --- what the header tells ---


@pytest.mark.parametrize(
    ("context", "kv_type", "flash"),
    [(4096, "f16", None), (131_072, "f16", None), (32_768, "q8_0", True)],
)
def test_sizes_are_what_llama_cpp_would_take(
    small: Path,
    small_sizes: Sizes,
    context: int,
    kv_type: KvType,
    flash: bool | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """llama.cpp reckons its own buffers when it is told to allocate none."""
    import llama_cpp.llama_cpp as lib

    from agent.engine.llama import bindings  # takes llama.cpp's log

    caplog.set_level(logging.DEBUG, bindings.log.name)
    params = lib.llama_model_default_params()
    params.no_alloc, params.load_mode, params.use_extra_bufts = True, 0, False
    model = lib.llama_model_load_from_file(os.fsencode(small), params)
    settings = lib.llama_context_default_params()
    settings.n_ctx, settings.n_seq_max, settings.n_outputs_max = context, 4, 4
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
    placement = Placement(context=context, kv_type=kv_type)
    assert planner._cache(small_sizes, placement) / 2**20 == pytest.approx(cache, rel=0.01)
    assert work <= planner._work(small_sizes, placement) / 2**20 <= work * 1.5


def test_weights_are_the_files(small: Path, small_sizes: Sizes) -> None:
    assert 0 <= small.stat().st_size - small_sizes.weights < 1_000_000
    assert [layer.window for layer in small_sizes.layers[:3]] == [128, 0, 128]
    assert small_sizes.architecture == "gpt-oss" and small_sizes.trained == 131_072


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    random_gguf.write(first)
    alone = memory_estimate.of(first.rename(tmp_path / "one.gguf"))
    (tmp_path / "one.gguf").rename(first)
    with pytest.raises(EngineError, match="00002-of-00002"):
        memory_estimate.of(first)
    random_gguf.write(tmp_path / "m-00002-of-00002.gguf")
    assert memory_estimate.of(first).weights == 2 * alone.weights


def test_an_outline_leaves_the_vocabulary_out(tmp_path: Path) -> None:
    path = random_gguf.write(tmp_path / "x.gguf", random_gguf.Shape(vocabulary=5000))
    outline = gguf_header.outline(path)
    assert "tokenizer.ggml.tokens" not in outline.values
    whole = gguf_header.read(path)
    assert outline.values == {k: v for k, v in whole.items() if k in outline.values}
    (embedding,) = (t for t in outline.tensors if t.name == "token_embd.weight")
    assert (embedding.shape, embedding.size) == ((64, 5000), 5000 * 64 * 2)


@pytest.mark.parametrize("size", [0, 3, 30, 3000, 8000])
def test_a_cut_header_is_an_error(tmp_path: Path, size: int) -> None:
    path = random_gguf.write(tmp_path / "x.gguf")
    os.truncate(path, size)
    with pytest.raises(EngineError):
        gguf_header.outline(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_header_of_any_kind_is_read_or_an_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "x.gguf"
    whole = bytearray(_header(tmp_path))
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(4, len(whole) - 9), st.integers(0, 2**64 - 1)), min_size=1)
    ):
        whole[at : at + 8] = value.to_bytes(8, "little")
    path.write_bytes(whole)
    for work in (gguf_header.outline, gguf_header.read, memory_estimate.of):
        with suppress(EngineError):
            work(path)


def _header(folder: Path) -> bytes:
    """Of a small model: what stands before its weights."""
    path = folder / "small.gguf"
    if not path.exists():
        random_gguf.write(path)
    return path.read_bytes()[:6000]


# --- the choice ---


def test_a_large_gpu_takes_everything(small_sizes: Sizes) -> None:
    found = choose(small_sizes, 64, gpu(24))
    assert (found.placement.gpu_layers, found.placement.cpu_experts) == (25, 0)
    assert found.placement.context == 131_072 and found.need.memory < 2 * GB
    assert found.why == ("all 25 layers on CUDA0",)


def test_a_small_gpu_leaves_the_experts_in_memory(small_sizes: Sizes, large_sizes: Sizes) -> None:
    one = choose(small_sizes, 32, gpu(8)).placement
    two = choose(small_sizes, 32, gpu(6)).placement
    assert one.gpu_layers == two.gpu_layers == 25
    assert 0 < one.cpu_experts < two.cpu_experts <= 24
    assert one.context == planner.AMPLE, "context does not push experts off the GPU without end"
    third = choose(large_sizes, 64, gpu(24))
    assert third.placement.gpu_layers == 37 and third.placement.cpu_experts > 20
    assert "experts of the first" in third.why[0]


def test_a_tiny_gpu_takes_the_last_layers(small_sizes: Sizes) -> None:
    found = choose(small_sizes, 32, gpu(1.5))
    assert 0 < found.placement.gpu_layers < 25 and found.placement.cpu_experts == 0


def test_a_gpu_without_room_is_left_alone(small_sizes: Sizes) -> None:
    found = choose(small_sizes, 32, gpu(0.6))
    assert found.placement.gpu_layers == 0 and "no room" in found.why[0]


def test_several_gpus_share_by_what_they_have_free(small_sizes: Sizes) -> None:
    found = choose(small_sizes, 64, gpu(24), gpu(12, "CUDA1"))
    assert sum(found.placement.split) == found.placement.gpu_layers == 25
    assert found.placement.split[0] > found.placement.split[1] > 0
    assert "CUDA0 + CUDA1" in found.why[0]


def test_an_integrated_gpu_uses_the_same_memory(small_sizes: Sizes) -> None:
    found = choose(small_sizes, 32, gpu(20, "Vulkan0", "igpu"))
    assert found.placement.gpu_layers == 25 and found.need.memory > small_sizes.weights
    beside = choose(small_sizes, 32, gpu(20, "Vulkan0", "igpu"), gpu(24))
    assert "CUDA0" in beside.why[0] and "Vulkan0" not in beside.why[0]
    with pytest.raises(TooLarge):
        choose(small_sizes, 8, gpu(20, "Metal", "gpu"))


def test_without_a_gpu_the_context_follows_the_memory(small_sizes: Sizes) -> None:
    contexts = [choose(small_sizes, gb).placement.context for gb in (12, 13, 14, 20)]
    assert contexts == sorted(contexts) and contexts[0] < contexts[-1] == 131_072
    assert choose(small_sizes, 13).why[-1].endswith("by the memory that is free")


def test_models_toml_s_context_is_an_upper_bound(small_sizes: Sizes) -> None:
    assert choose(small_sizes, 20, context=32_768).placement.context == 32_768
    assert choose(small_sizes, 12.0, context=32_768).placement.context < 32_768


def test_an_asked_context_is_kept_at_the_price_of_the_kv_type(small_sizes: Sizes) -> None:
    found = choose(small_sizes, 14.2, asked=131_072)
    assert (found.placement.context, found.placement.kv_type) == (131_072, "q8_0")
    assert found.placement.flash_attention is True and "q8_0" in found.why[-1]
    with pytest.raises(TooLarge, match=r"--context \d+"):
        choose(small_sizes, 14.2, asked=131_072, kv_type="f16")


def test_what_does_not_fit_says_what_would(small_sizes: Sizes, large_sizes: Sizes) -> None:
    with pytest.raises(TooLarge) as raised:
        choose(small_sizes, 13, asked=131_072)
    match = re.search(r'--context (\d+) with kv_type = "(\w+)" would fit\.$', str(raised.value))
    assert match and match[2] == "q8_0"
    assert choose(small_sizes, 13, asked=int(match[1]), kv_type="q8_0")
    with pytest.raises(TooLarge):
        choose(small_sizes, 13, asked=int(match[1]) + 1024, kv_type="q8_0")

    with pytest.raises(TooLarge, match=r"needs 6\d\.\d GB and 23\.0 GB of memory are free"):
        choose(large_sizes, 23)


def test_overcommitting_is_for_people_to_decide(large_sizes: Sizes) -> None:
    found = planner.choose("it", large_sizes, 23 * GB, [CPU], Wanted(overcommit=True))
    assert found.placement.gpu_layers == 0 and found.placement.context >= planner.LEAST


def test_what_models_toml_says_is_done(small_sizes: Sizes) -> None:
    found = choose(small_sizes, 32, gpu(24), gpu_layers=10, extra_buffers=True).placement
    assert (found.gpu_layers, found.cpu_experts, found.extra_buffers) == (10, 0, True)
    found = choose(small_sizes, 32, gpu(24), cpu_experts=24, kv_type="q4_0").placement
    assert (found.gpu_layers, found.cpu_experts, found.kv_type) == (25, 24, "q4_0")
    assert choose(small_sizes, 32, gpu(24), gpu_layers=0).placement.gpu_layers == 0
    assert choose(small_sizes, 32, gpu_layers=99).placement.gpu_layers == 0, "there is no GPU"
    with pytest.raises(TooLarge, match="gpu_layers"):
        choose(small_sizes, 32, gpu(8), gpu_layers=99)


def test_a_context_beyond_the_models_own_is_cut(small_sizes: Sizes) -> None:
    short = replace(small_sizes, trained=4096)
    found = choose(short, 32, asked=100_000)
    assert found.placement.context == 4096 and "trained" in found.why[-1]


@pytest.mark.parametrize(
    ("loads", "rooms", "counts"),
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
def test_layers_are_divided_in_order(
    loads: list[int], rooms: list[int], counts: tuple[int, ...] | None
) -> None:
    assert planner.divide(loads, rooms) == counts
