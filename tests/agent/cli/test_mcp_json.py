"""Results of tools as `agent mcp call --json` prints them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.cli.mcp_json import result_object
from tools.mcp.limits import bound_structured
from tools.results import ResultBuilder


@pytest.mark.parametrize(
    ("text", "structured", "printed"),
    [
        ('{"rows": [1, 2]}', {"rows": [1, 2]}, {"rows": [1, 2]}),
        ("5", {"result": 5}, {"result": 5}),
        ("1", {"result": [1, 2]}, None),
        ("two rows", {"rows": [1, 2]}, None),
        ('{"of": "something else"}', {"rows": [1, 2]}, None),
    ],
)
def test_structured_content_is_the_servers_or_left_out(
    tmp_path: Path, text: str, structured: dict[str, Any], printed: dict[str, Any] | None
) -> None:
    content = [{"type": "text", "text": text}]
    result = ResultBuilder(1000, tmp_path).build(content, bound_structured(structured))
    described = result_object(result)
    assert described.get("structuredContent") == printed
    assert described["content"] == content
