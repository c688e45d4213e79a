"""Images that are meant for a model that cannot see: pasted, attached or piped."""

import subprocess
from pathlib import Path

import pytest
from textual import events

from agent.util.images import is_image, is_pasted_image
from tests.support import forks
from tests.support.fake_app import FakeSession, drive_app
from tests.support.waiting import HANG_SECONDS

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0" * 300_000
"""Longer than a text that can be attached."""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "my photo.png"
    path.write_bytes(PNG)
    return path


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PNG, True),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", True),
        (b"RIFF\0\0\0\0WEBPVP8 ", True),
        (b"\0\0\0\x18ftypheic", True),
        (b"RIFF\0\0\0\0WAVEfmt ", False),
        (b"GIF of a cat", False),
        (b"", False),
    ],
)
def test_is_image_reads_signatures(data: bytes, expected: bool) -> None:
    assert is_image(data) is expected


def test_is_pasted_image_reads_paths(image: Path, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    path = str(image)
    url = f"{image.as_uri()}\n"
    for text in (f"'{path}'", path.replace(" ", "\\ "), url, "data:image/png;base64,a"):
        assert is_pasted_image(text), text
    for text in (
        str(tmp_path / "text.png"),
        f"look at '{path}'",
        "",
        "it's",
        str(tmp_path),
        "x\ny",
    ):
        assert not is_pasted_image(text), text


async def test_app_pasted_image_is_one_sentence(image: Path) -> None:
    async with drive_app() as driver:
        driver.app.post_message(events.Paste(f"'{image}'"))
        await driver.expect_text("That is an image;", "see images.", "photo.png")
        driver.app.clear_notifications()
        driver.app.prompt.clear()
        driver.app.post_message(events.Paste(""))
        await driver.expect_text("There is no text to paste")
        driver.app.clear_notifications()
        driver.app.post_message(events.Paste("data:image/png;base64,iVBORw0KGgo="))
        await driver.expect_text("That is an image")
        assert driver.app.prompt.text == ""


async def test_app_attached_image_is_one_sentence(image: Path) -> None:
    async with drive_app(FakeSession(root=image.parent)) as driver:
        await driver.type_text('what is this? @"my photo.png"', "enter")
        await driver.expect_text("photo.png is an image", "see images.", "│ what is this?")
        assert not driver.session.turns


def test_run_piped_image_is_one_sentence(home: Path) -> None:
    done = subprocess.run(
        [*forks.relay(), "run", "what is this?"],
        input=PNG, capture_output=True, env={"AGENT_HOME": str(home)}, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == b"agent: The input is an image, and this model cannot see images.\n"
