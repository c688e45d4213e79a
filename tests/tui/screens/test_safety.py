"""The page of what the model can do, in the real app."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
CALL = (
    "<|channel|>analysis to=python code<|message|>6*7<|call|>",
    "<|channel|>final<|message|>It is 42.<|return|>",
)


async def test_safety_page_access_and_calls_listed(open_app: Any, tmp_path: Path) -> None:
    script = tmp_path / "calls.jsonl"
    script.write_text("".join(json.dumps({"markup": markup}) + "\n" for markup in CALL))
    launch = {"tools": "python,files", "engine": f"script:{script}", "root": tmp_path}
    async with open_app(launch=launch, size=(100, 40)) as driver:
        await driver.pilot.press(*"/safety", "enter")
        await driver.expect_text(
            "What the model can do", "called no tool", "files.write", "Asks first"
        )
        await driver.pilot.press("escape", *"go", "enter")
        await driver.expect_text("It is 42.")
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press(*"/safety", "enter")
        await driver.expect_text("1 call", "6*7", "Python code in a sandbox")
