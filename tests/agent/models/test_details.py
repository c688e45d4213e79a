"""What the app says of a model: from its header, its entry and the plan of its placement."""

from pathlib import Path

import gguf
import numpy
import pytest

from agent.config.paths import Paths
from agent.formats import detect
from agent.models.details import describe_model, example_message, quantisation_name, row_model
from agent.models.listing import ModelRow, list_models
from tests.support import random_qwen_gguf


def write_model(path: Path) -> None:
    """Write a small GGUF with one layer and a header that tells its licence."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_license("mit")
    writer.add_block_count(1)
    writer.add_context_length(8192)
    writer.add_embedding_length(64)
    writer.add_head_count(1)
    writer.add_tensor("token_embd.weight", numpy.zeros((32, 64), numpy.float32))
    writer.add_tensor("blk.0.ffn_down.weight", numpy.zeros((64, 64), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def paths_below(folder: Path) -> Paths:
    (folder / "config").mkdir()
    return Paths(folder / "config", folder / "cache", folder / "state")


def test_describe_model_file_gives_header_and_placement(tmp_path: Path) -> None:
    paths, path = paths_below(tmp_path), tmp_path / "small.gguf"
    write_model(path)
    row = ModelRow("small", (), False, True, path.stat().st_size, "file", str(path), "")
    facts = dict(describe_model(row_model(row, paths), paths))
    assert facts["Quantisation"] == "Q4_K_M" and facts["License"] == "mit"
    assert facts["Architecture"] == "llama · 1 layers" and facts["Trained for"] == "8,192 tokens"
    assert "Chat format" not in facts and facts["Context"].startswith("8,192 tokens")
    assert facts["Placement"] and facts["Memory"]


def test_describe_model_not_installed_says_repository_and_license(tmp_path: Path) -> None:
    paths = paths_below(tmp_path)
    row = next(row for row in list_models(paths) if row.name == "gpt-oss-20b")
    assert describe_model(row_model(row, paths), paths) == [
        ("Repository", "ggml-org/gpt-oss-20b-GGUF"),
        ("Download", "12.1 GB"),
        ("Chat format", "harmony"),
        ("License", "apache-2.0"),
    ]


def test_quantisation_name_is_that_of_llama_cpp() -> None:
    names = {0: "F32", 7: "Q8_0", 15: "Q4_K_M", 22: "IQ3_XS", 38: "MXFP4", 9999: ""}
    assert {number: quantisation_name(number) for number in names} == names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "qwen3",
            "<|im_start|>assistant\nI compute it.\n<tool_call>\n"
            '{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>\n',
        ),
        (
            "qwen3-coder",
            "<|im_start|>assistant\nI compute it.\n<tool_call>\n<function=add>\n<parameter=a>\n1\n"
            "</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>\n",
        ),
        ("plain", "<|im_start|>assistant\nI compute it.\n<|im_end|>\n"),
    ],
)
def test_example_message_is_one_that_the_model_writes(name: str, expected: str) -> None:
    form = detect.byte_format(name)
    assert form is not None and example_message(form) == expected


def test_example_message_has_a_thought_where_the_template_knows_them() -> None:
    form = detect.template_format(random_qwen_gguf.THINKING_TEMPLATE)
    assert "<think>\nI add them.\n</think>\n\nI compute it." in example_message(form)
