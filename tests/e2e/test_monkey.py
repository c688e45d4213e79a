"""Whatever the commands are called with: a sentence, and an exit code that is documented."""

from pathlib import Path

import pytest

from tests.support.command_monkey import CommandMonkey

CALLS = 30
"""`make monkey` makes more."""


@pytest.mark.slow
def test_commands_called_at_random_end_in_order(model_cache: Path, tmp_path: Path) -> None:
    monkey = CommandMonkey(tmp_path, model_cache, seed=1, quick=True)
    faulty = [call for call in map(monkey.call, range(CALLS)) if call.faults]
    assert not faulty, "\n".join(map(str, faulty))
