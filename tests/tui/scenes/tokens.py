"""Scenes of what is done with tokens: what fills the context."""

from __future__ import annotations

from typing import Any

from agent.conversation.attachments import format_attachment
from agent.conversation.compaction import summary_message
from agent.conversation.conversation import CompactedPrefix, Conversation
from agent.conversation.messages import Assistant, ToolCallMessage, ToolResultMessage, User
from agent.conversation.prompt_choices import toggle_dropped, toggle_fold, toggle_pinned
from agent.errors import UserError
from agent.turn.options import TurnOptions
from tests.support.fake_app import AppDriver
from tests.tui.scenes import Scene
from tests.tui.scenes.screens import AllStatesHost, harmony
from tui.screens.context import ContextScreen
from tui.screens.text_editor import EditorArea, TextEditor

NOTES = "Notes on the garden.\n" + "Water the roses in the evening.\n" * 60
PROMPTS = {
    0: "Who was the first to climb Mount Everest?",
    2: "Sum up @notes.md",
    5: "Which files changed last week, and who changed them?",
    9: "Thank you, and what is the weather like over there?",
}


def long_conversation() -> Conversation:
    """Four turns: one summarised, one dropped, one pinned with a folded result, and a short one."""
    form, talk = harmony(), Conversation("conv_1")
    for message in (
        User(PROMPTS[0]), Assistant("Hillary and Tenzing Norgay, in 1953."),
        User(PROMPTS[2] + format_attachment("notes.md", NOTES)),
        Assistant("I read them first.", "commentary"), Assistant("They tell of watering roses."),
        User(PROMPTS[5]), ToolCallMessage("log", '{"path":".","count":50}'),
        ToolResultMessage("log", "a1b2c3 Ada: mend the fence of the fox\n" * 120),
        Assistant("Ada changed most of them."), User(PROMPTS[9]), Assistant("I cannot look outside."),
    ):  # fmt: skip
        talk.add(form, message)
    summary = summary_message("They asked who climbed Mount Everest first.")
    talk.compacted = CompactedPrefix(2, summary, form.developer_message(summary))
    toggle_dropped(form, talk, 2)
    toggle_fold(form, talk, 7)
    toggle_pinned(form, talk, 3)
    return talk


async def context(driver: AppDriver) -> None:
    """What fills the context, after several changes."""
    session = driver.session
    runtime: Any = session.runtime
    runtime.host, runtime.format = AllStatesHost(), harmony()
    runtime.context_length = 4096
    session.options = TurnOptions(instructions="You answer in short sentences.")
    session.conversation = long_conversation()

    async def cached_tokens() -> int | None:
        return 640

    session.cached_tokens = cached_tokens  # type: ignore[method-assign]
    await driver.app.push_screen(ContextScreen(session, PROMPTS, lambda: None))
    await driver.expect_text("640 in memory", "folded, of")
    await driver.pilot.press(*["down"] * 12)


async def context_plain(driver: AppDriver) -> None:
    """The same without colours, and a turn at its head."""
    await context(driver)
    await driver.pilot.press("up", "up", "up")


async def thought(driver: AppDriver) -> None:
    """What the model thought is edited, and what was written cannot be."""

    def accept(text: str) -> None:
        raise UserError("The arguments do not fit files__read: path: 5 is not of type 'string'.")

    text = "They want the notes.\nI look for them with files.read, and then I sum up what is in"
    screen = TextEditor[None]("reasoning", text, "lets it go on", accept)
    await driver.app.push_screen(screen)
    screen.query_one(EditorArea).cursor_blink = False
    await driver.pilot.press("enter")
    await driver.expect_text("Enter lets it go on", "do not fit")


PLAIN: list[Scene] = [context_plain]
"""Scenes with ``NO_COLOR``."""
SCENES: list[Scene] = [context, *PLAIN, thought]
