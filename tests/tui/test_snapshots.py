"""Screenshots of each scene, compared with the stored ones."""

from pathlib import Path

import pytest
from pytest_textual_snapshot import SVGImageExtension
from syrupy import SnapshotAssertion

from tests.support.fake_app import FakeSession, drive_app, screen_text
from tests.tui.scenes import Scene, approvals, screens, tokens, turns, views

SIZES = [(80, 24), (120, 40), (200, 50)]
SCENES = [*views.SCENES, *turns.SCENES, *approvals.SCENES, *screens.SCENES, *tokens.SCENES]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_scene_matches_snapshot(
    snapshot: SnapshotAssertion, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scene in (*views.PLAIN, *screens.PLAIN, *tokens.PLAIN):
        monkeypatch.setenv("NO_COLOR", "1")
    pictures = snapshot.use_extension(SVGImageExtension)
    root = tmp_path / "fox"
    root.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    async with drive_app(FakeSession(root=root), size=SIZES[0]) as driver:
        driver.app.prompt.cursor_blink = False
        await scene(driver)
        driver.app.live.tick()  # which comes twice a second
        driver.app.clear_notifications()  # they expire by time
        changed = []
        for size in SIZES:
            await driver.resize(*size)
            name = "{}x{}".format(*size)
            if driver.app.export_screenshot() != pictures(name=name):
                changed.append(name)
        advice = "look at them: pytest --snapshot-update, then git diff"
        assert not changed, f"{scene.__name__} looks different at {', '.join(changed)}; {advice}"


async def test_small_screen_shows_all_of_approval_card() -> None:
    async with drive_app(size=(60, 15)) as driver:
        await approvals.waiting(driver)
        text = screen_text(driver.app)
        assert "Allow files.write?" in text and "sum.txt" in text
        assert "Allow once" in text and "Deny and say why" in text and "tiny" in text
