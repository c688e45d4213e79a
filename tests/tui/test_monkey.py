"""Whatever is pressed, typed, pasted and clicked, and whatever fails: the app takes the next key."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.app_monkey import FREEZE_SECONDS, AppMonkey, handlers_timed

ACTIONS = int(os.environ.get("MONKEY_ACTIONS", "60"))
"""`make monkey` does more, with other seeds."""
SEEDS = [int(seed) for seed in os.environ.get("MONKEY_SEEDS", "1").split()]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", SEEDS)
async def test_app_takes_keys_after_anything(
    open_app: Any, models_toml: Path, silent_server: str, home: Path, tmp_path: Path, seed: int
) -> None:
    models_toml.write_text(
        f'[far]\npath = "/nowhere/far.gguf"\n[silent]\nengine = "vllm"\nurl = "{silent_server}"\n'
    )
    root = tmp_path / "work"
    (root / "folder").mkdir(parents=True)
    (root / "loop").symlink_to("loop")
    (root / "notes.txt").write_text("notes\n" * 50)
    async with open_app(launch={"root": root}) as driver:
        with handlers_timed() as slow:
            await AppMonkey(driver, root, home, seed).play(ACTIONS)
        for seconds, step in slow:  # `make monkey` shows them
            print(f"{seconds:.2f} s: {step}")
        assert all(seconds < FREEZE_SECONDS for seconds, _ in slow), "keys wait"
        await driver.pilot.press("ctrl+q")
        await driver.wait_for(lambda: not driver.app.is_running)
    assert driver.app.return_code == 0
