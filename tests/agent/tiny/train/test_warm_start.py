"""A model filled from the shipped core exports that core, so training can resume from it."""

from __future__ import annotations

import numpy as np
import pytest

from agent.tiny import expand

pytest.importorskip("torch", reason="training has requirements of its own")


@pytest.mark.slow
def test_fill_then_export_gives_core_back() -> None:
    from agent.tiny.train import export, warm_start
    from agent.tiny.train.model import Shape, Tiny

    _, shipped = expand.read_core(expand.CORE.read_bytes())
    rows = warm_start.core_rows(expand.CORE)
    model = Tiny(Shape(), rows, warm_start.markup(rows))
    warm_start.fill(model, expand.CORE)
    warm_start.blend(model, expand.CORE, 0.5)  # with itself, which changes nothing
    again = export.tensors(model)
    assert again.keys() == shipped.keys()
    for name, data in shipped.items():
        if data.dtype == np.uint8:  # rounding what is rounded already changes next to nothing
            assert (again[name] == data).mean() > 0.999, name
        else:
            np.testing.assert_allclose(again[name], data, rtol=1e-6, err_msg=name)
