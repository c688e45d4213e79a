"""What of ``make gpu`` runs without a GPU: the setup, the comparisons on a CPU, and the page."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.engine.placement.hardware import Hardware
from agent.engine.placement.placement import Placement, ThreadCounts
from tests.gpu import BENCH_GROUPS, STAGES, environment, memory, page, tokens
from tests.gpu.environment import Environment, SetupError, compose_toolkit, local_backend
from tests.gpu.page import Results
from tests.support.program import ROOT


@pytest.mark.parametrize(
    ("vendor", "programs", "backend"),
    [
        ("0x10de", {"nvcc"}, "cuda"),
        ("0x10de", set(), "vulkan"),
        ("0x1002", {"hipcc"}, "rocm"),
        ("0x8086", {"glslc"}, "vulkan"),
        ("", {"nvcc"}, "cpu"),
    ],
)
def test_backend_is_that_of_the_card_and_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, programs: set[str], backend: str
) -> None:
    if vendor:
        device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor)
        (device / "class").write_text("0x030000")
    monkeypatch.setattr("shutil.which", lambda name: name if name in programs else None)
    assert local_backend(Hardware(tmp_path, "Linux", "x86_64")) == backend
    assert local_backend(Hardware(tmp_path, "Darwin", "arm64")) == "vulkan"


def test_all_sides_get_the_options_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_BENCH_THREADS", raising=False)
    variables = Environment("cuda", "90-real").variables
    assert variables["CMAKE_ARGS"] == "-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=90-real"
    assert int(variables["AGENT_BENCH_GPU_LAYERS"]) > 100 and variables["AGENT_BENCH_THREADS"]
    assert Environment("cpu").variables["AGENT_BENCH_GPU_LAYERS"] == "0"
    needs = environment.requirements()
    assert "llama-cpp" not in " ".join(needs) and any(x.startswith("pytest>") for x in needs)


def test_toolkit_is_composed_of_the_folders_that_have_its_parts(tmp_path: Path) -> None:
    nvcc, cublas, target = (tmp_path / name for name in ("cuda", "nvidia/cu13", "toolkit"))
    for file in (
        *(nvcc / name for name in ("bin/nvcc", "include/cuda_runtime.h", "lib/libcudart.so.13")),
        *(cublas / name for name in ("include/cublas_v2.h", "lib/libcublas.so.13")),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    with pytest.raises(SetupError, match="no nvcc"):
        compose_toolkit(target, [cublas])
    with pytest.raises(SetupError, match="no cuBLAS"):
        compose_toolkit(tmp_path / "half", [nvcc])
    compose_toolkit(target, [nvcc, cublas])
    names = (
        "include/cublas_v2.h",
        "lib64/libcublas.so",
        "lib/libcudart.so",
        "lib/stubs/libcuda.so",
    )
    assert all((target / name).exists() for name in (*names, "bin/nvcc", "include/cuda_runtime.h"))
    (nvcc / "lib/libcublas.so").touch()
    compose_toolkit(tmp_path / "none", [nvcc])
    assert not (tmp_path / "none").exists(), "nvcc's own folder has everything"


@pytest.mark.long
def test_planned_memory_is_near_the_buffers(tiny_gguf: Path) -> None:
    for case in (
        memory.MemoryCase(str(tiny_gguf), 16_384),
        memory.MemoryCase(str(tiny_gguf), 32_768, "q8_0"),
    ):
        command = [sys.executable, "-m", "tests.gpu.memory", json.dumps(vars(case))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        *_, device = [memory.MeasuredDevice(**fields) for fields in json.loads(done.stdout)]
        assert device.name == "memory" and device.buffers > 100e6
        assert 0.8 < device.planned / device.buffers < 1.25


def test_tokens_are_compared_place_by_place(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "thread_counts", lambda path: ThreadCounts(1, 1))
    monkeypatch.setattr(tokens, "COUNT", 12)
    placement = Placement(2048)
    same = tokens.compare(tiny_gguf, placement, placement)
    assert (same.equal, same.ties, same.different, same.error) == (12, 0, 0, 0.0)
    other = tokens.compare(
        tiny_gguf, replace(placement, kv_type="q4_0", flash_attention=True), placement
    )
    assert other.equal + other.ties + other.different == 12 and other.error > 0


def test_page_has_the_card_and_each_stage(tmp_path: Path) -> None:
    file = tmp_path / "gpu.md"
    file.write_text(page.PAGE.read_text())
    results = Results("cuda", "llama-cpp-python 1.2 (-DGGML_CUDA=on)", "Some card, 580.1")
    results.tables = {stage: [f"| row of {stage} |"] for stage in STAGES}
    results.notes = ["followup was stopped after 3 s."]
    page.write(results, file)
    page.write(results, file)  # again: the section is replaced
    text = file.read_text()
    assert text.count("## Some card, 580.1\n\ncuda, llama-cpp-python 1.2") == 1
    assert "- followup was stopped after 3 s." in text and text.endswith("(performance.md)\n")
    assert all(text.count(f"row of {stage}") == 1 for stage in STAGES)
    assert text.index("### Speed") < text.index(f"row of {BENCH_GROUPS[0]}")
