"""Where a model and its draft model go together, on made-up machines."""

import pytest

from agent.engine.placement import memory_estimate, planner
from agent.engine.placement.devices import Device
from agent.engine.placement.memory_estimate import ModelSizes
from agent.engine.placement.placement import MAX_DRAFT_TOKENS
from agent.engine.placement.planner import ModelTooLargeError, PlacementPlan, PlacementRequest
from tests.support import sparse_gguf

GB = 10**9


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelSizes, ModelSizes]:
    """Of gpt-oss-120b (61 GB) and gpt-oss-20b (11 GB), without most of the vocabulary."""
    folder = tmp_path_factory.mktemp("shaped")
    large = sparse_gguf.write_model(folder / "large.gguf", sparse_gguf.LARGE)
    small = sparse_gguf.write_model(folder / "small.gguf")
    return memory_estimate.read_model_sizes(large), memory_estimate.read_model_sizes(small)


def plan(
    sizes: tuple[ModelSizes, ModelSizes], memory: float, *gpus: float, **request: int
) -> PlacementPlan:
    """The plan for GPUs of so many GB, which fits into what there is."""
    cards = [
        Device(f"CUDA{n}", "a card", "gpu", int(size * GB), int(size * GB))
        for n, size in enumerate(gpus)
    ]
    plan = planner.plan_with_draft(
        ("large", "small"), sizes, int(memory * GB), cards, PlacementRequest(**request)
    )
    assert plan.memory_use.memory <= memory * GB
    for taken, card in zip(plan.memory_use.devices, cards, strict=False):
        assert taken <= card.free
    draft = plan.placement.draft
    assert draft is not None and draft.context == plan.placement.context
    assert plan.placement.outputs >= plan.placement.kv_sequences + MAX_DRAFT_TOKENS
    return plan


def test_draft_model_goes_to_memory_beside_the_model(sizes: tuple[ModelSizes, ModelSizes]) -> None:
    both = plan(sizes, 128)
    alone = planner.plan_placement("large", sizes[0], 128 * GB, [], PlacementRequest())
    assert both.memory_use.memory > alone.memory_use.memory + sizes[1].weights
    assert both.reasons[-1] == "draft model small on the CPU"


def test_draft_model_goes_to_the_gpu_where_the_model_stays_there(
    sizes: tuple[ModelSizes, ModelSizes],
) -> None:
    both = plan(sizes, 64, 100)
    draft = both.placement.draft
    assert draft is not None and (draft.gpu_layers, both.placement.gpu_layers) == (25, 37)
    assert both.memory_use.devices[0] > sizes[0].weights + sizes[1].weights - GB
    assert both.reasons[-1] == "draft model small on CUDA0"


def test_draft_model_goes_to_the_gpu_that_has_most_room(
    sizes: tuple[ModelSizes, ModelSizes],
) -> None:
    both = plan(sizes, 64, 40, 80)
    draft = both.placement.draft
    assert draft is not None and draft.tensor_split == (0, 25)
    assert sum(both.placement.tensor_split) == 37


def test_draft_model_takes_no_gpu_from_the_model(sizes: tuple[ModelSizes, ModelSizes]) -> None:
    both = plan(sizes, 128, 70)
    draft = both.placement.draft
    assert draft is not None and (draft.gpu_layers, both.placement.gpu_layers) == (0, 37)


def test_context_is_shorter_for_the_draft_model(sizes: tuple[ModelSizes, ModelSizes]) -> None:
    alone = planner.plan_placement("large", sizes[0], 75 * GB, [], PlacementRequest())
    both = plan(sizes, 75 + 2)
    assert both.placement.context < alone.placement.context


def test_draft_model_that_does_not_fit_is_named(sizes: tuple[ModelSizes, ModelSizes]) -> None:
    with pytest.raises(ModelTooLargeError, match="large fits, but not with its draft model small"):
        plan(sizes, 68)
    with pytest.raises(ModelTooLargeError, match="large needs"):
        plan(sizes, 20)
    with pytest.raises(ModelTooLargeError, match="not with its draft model"):
        plan(sizes, 76, required_context=65_536)
