"""How the evaluation judges a call."""

from __future__ import annotations

import pytest

from agent.tiny.train.cases import Expected
from agent.tiny.train.evaluate import right_arguments


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("2 + 7", True),
        ("round(9.2)", True),
        ("2 * 7", False),
        ("divmod(7, 2)", False),  # a name that the judge does not know
        ("sum(9)", False),
        ("9 / 0", False),
        ("9 +", False),
        ("__import__('os')", False),
    ],
)
def test_code_of_a_sum_is_judged_by_its_value(body: str, right: bool) -> None:
    wanted = Expected("python", {"code": "7 + 2"}, "9")
    assert right_arguments(wanted, body) == (right, right)
