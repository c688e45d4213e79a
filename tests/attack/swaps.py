"""Uses the files tools while another process exchanges a folder and a link to one outside."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from agent.util.temporary_folders import process_folder
from tests.attack.measure import Attempt
from tests.support.swapping import swap_attack

ROUNDS = 14_300
"""Each uses seven tools: 100,000 calls in all."""


NAMES = ["the race"]


async def attempts(names: Collection[str], rounds: int = ROUNDS) -> AsyncIterator[Attempt]:
    with tempfile.TemporaryDirectory(dir=process_folder()) as name:
        folder, root = Path(name), Path(name, "root")
        for path in (root / "d", folder / "outside"):
            path.mkdir(parents=True)
            (path / "f.txt").write_text("mine" if path == root / "d" else "secret")
        (folder / "outside" / "only outside").touch()
        (root / "link").symlink_to(folder / "outside")
        inside, outside = await asyncio.to_thread(swap_attack, root, folder / "work", rounds)
    detail = f"{inside:,} of {rounds * 7:,} calls worked, {outside} were led outside"
    yield Attempt("files tools", "swap a folder and a link", not outside, detail)
