"""Scenes of what is done with tokens: what fills the context."""

from __future__ import annotations

from typing import Any

from agent.conversation.attachments import format_attachment
from agent.conversation.compaction import summary_message
from agent.conversation.conversation import CompactedPrefix, Conversation
from agent.conversation.messages import Assistant, ToolCallMessage, ToolResultMessage, User
from agent.conversation.prompt_choices import toggle_dropped, toggle_fold, toggle_pinned
from agent.turn.options import TurnOptions
from tests.support.fake_app import AppDriver
from tests.tui.scenes import Scene
from tests.tui.scenes.screens import AllStatesHost, harmony
from tui.screens.context import ContextScreen

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


PLAIN: list[Scene] = [context_plain]
"""Scenes with ``NO_COLOR``."""
SCENES: list[Scene] = [context, *PLAIN]
