"""A model filled from the shipped core exports that core, so training can resume from it."""

from __future__ import annotations

import numpy as np
import pytest

from agent.tiny import expand

pytest.importorskip("torch", reason="training has requirements of its own")


@pytest.mark.slow
def test_fill_then_export_gives_core_back() -> None:
    from agent.tiny.train import export, warm_start

    _, shipped = expand.read_core(expand.CORE.read_bytes())
    model = warm_start.load(expand.CORE)
    warm_start.blend(model, expand.CORE, 0.5)  # with itself, which changes nothing
    again = export.tensors(model)
    assert again.keys() == shipped.keys()
    for name, data in shipped.items():
        if data.dtype == np.uint8:  # rounding what is rounded already changes next to nothing
            assert (again[name] == data).mean() > 0.999, name
        else:
            np.testing.assert_allclose(again[name], data, rtol=1e-6, err_msg=name)


@pytest.mark.slow
def test_likelihood_tells_thoughts_calls_and_answers_apart() -> None:
    from agent.tiny.train import likelihood, warm_start

    sums = likelihood.measure(warm_start.load(expand.CORE), "eval", 4)
    assert sum(kind["all"].count for kind in sums.values()) > 30
    called = [kind for kind in sums.values() if "call" in kind]
    assert called
    for parts in called:
        whole = parts["all"]
        rest = [part for name, part in parts.items() if name != "all"]
        assert whole.nats == pytest.approx(sum(part.nats for part in rest))
        assert whole.right <= min(part.right for part in rest) <= whole.count
