"""How the app looks in each state: pictures, compared with those that were looked at and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_textual_snapshot import SVGImageExtension
from syrupy import SnapshotAssertion

from tests.support.fake_app import Played, person, screen_text
from tests.tui.scenes import Scene, approvals, screens, turns, views

SIZES = [(80, 24), (120, 40), (200, 50)]
SCENES = [*views.SCENES, *turns.SCENES, *approvals.SCENES, *screens.SCENES]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_it_looks_as_before(
    snapshot: SnapshotAssertion, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scene in views.PLAIN:
        monkeypatch.setenv("NO_COLOR", "1")
    pictures = snapshot.use_extension(SVGImageExtension)
    async with person(Played(root=tmp_path), size=SIZES[0]) as someone:
        someone.app.prompt.cursor_blink = False
        await scene(someone)
        someone.app.clear_notifications()  # they go when their time has come
        changed = []
        for size in SIZES:
            await someone.resizes(*size)
            name = "{}x{}".format(*size)
            if someone.app.export_screenshot() != pictures(name=name):
                changed.append(name)
        told = "look at them: pytest --snapshot-update, then git diff"
        assert not changed, f"{scene.__name__} looks different at {', '.join(changed)}; {told}"


async def test_on_a_small_screen_nothing_that_is_needed_is_missing() -> None:
    async with person(size=(60, 15)) as someone:
        await approvals.waiting(someone)
        text = screen_text(someone.app)
        assert "Run files · write?" in text and "sum.txt" in text
        assert "y once" in text and "r no" in text and "MCP" in text
