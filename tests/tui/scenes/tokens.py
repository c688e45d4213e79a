"""Scenes of tokens: what fills the context, what is edited of them, and the time that they took."""

from math import log
from typing import Any

from textual.widgets import Input

from agent.conversation.attachments import format_attachment
from agent.conversation.compaction import summary_message
from agent.conversation.conversation import CompactedPrefix, Conversation
from agent.conversation.messages import Assistant, ToolCallMessage, ToolResultMessage, User
from agent.conversation.prompt_choices import toggle_dropped, toggle_fold, toggle_pinned
from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.turn.options import TurnOptions
from agent.turn.token_choices import TokenChoice, TokenChoices
from tests.support.fake_app import AppDriver, emit_call, emit_message, emit_reasoning
from tests.tui.scenes import Scene
from tests.tui.scenes.screens import AllStatesHost, harmony, raw
from tests.tui.scenes.turns import end_turn
from tui.screens.context import ContextScreen, read_row_state
from tui.screens.dialogs import EditorArea, TextEditor
from tui.state.timeline import Timeline, TimeSpan
from tui.state.token_colours import probability_style
from tui.widgets.token_browser import TokenBrowser
from tui.widgets.token_view import TokenPosition

NOTES = "Notes on the garden.\n" + "Water the roses in the evening.\n" * 60
ALTERNATIVES = [290, 357, 382, 11, 13, 1398, 45, 200012, 26178, 220]
"""Ids of tokens."""
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
    prompt = driver.session.next_prompt
    runtime: Any = prompt.runtime
    runtime.host, runtime.format = AllStatesHost(), harmony()
    runtime.context_length = 4096
    prompt.options = TurnOptions(instructions="You answer in short sentences.")
    prompt.conversation = long_conversation()

    async def cached_tokens() -> int | None:
        return 640

    prompt.cached_tokens = cached_tokens  # type: ignore[method-assign]
    await driver.app.push_screen(
        ContextScreen(prompt, prompt.measure(), read_row_state(prompt), PROMPTS, lambda: None)
    )
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
    screen = TextEditor[None]("reasoning", text, "continues it", accept)
    await driver.app.push_screen(screen)
    screen.query_one(EditorArea).cursor_blink = False
    await driver.pilot.press("enter")
    await driver.expect_text("Enter continues it", "do not fit")


async def times(driver: AppDriver) -> None:
    """Where a turn's time went."""
    turn = await driver.ask("What is 123*456?")
    emit_reasoning(turn, "Multiply: ask python.").close(True)
    call = emit_call(turn, "code_interpreter", "python", "print(123 * 456)")
    call.completed("56088")
    emit_message(turn, "It is **56088**.").close(True)
    await end_turn(driver, turn)
    spans = [
        TimeSpan("load", 0, 3.1), TimeSpan("queue", 3.1, 3.2),
        TimeSpan("prefill", 3.2, 4.4, "1,216 + 0 cached"), TimeSpan("reasoning", 4.4, 6.9),
        TimeSpan("arguments", 6.9, 7.4, "python"), TimeSpan("approval", 7.4, 9.9, "python"),
        TimeSpan("tool", 9.9, 10.6, "python"), TimeSpan("prefill", 10.6, 10.7, "31 + 1,302 cached"),
        TimeSpan("answer", 10.7, 14.2),
    ]  # fmt: skip
    batches = [4.4 + n / 25 for n in range(75)] + [10.7 + n / 25 for n in range(85)]
    tokens = [(at, 2 + n % 60 / 20) for n, at in enumerate(batches)]
    view = driver.app.transcript.own_turns[-1]
    await driver.app.transcript.toggle_times(view, Timeline(spans, 14.2, tokens))
    await driver.expect_text("Where the 14 s went", "tok/s")


async def times_plain(driver: AppDriver) -> None:
    """The same without colours."""
    await times(driver)


async def token(driver: AppDriver) -> None:
    """The cursor on a token of the answer, and beside it what could have been there."""

    async def choices(position: TokenPosition) -> TokenChoices:
        chosen = TokenChoice(position.token, log(0.31), 0.364, 2, "free")
        chances = (0.42, 0.09, 0.06, 0.04, 0.02, 0.01, 0.003, 0.0004, 0.0002, 0.0001)
        alternatives = [
            TokenChoice(
                token, log(own), None if n > 8 else own * 1.2 if n < 5 else 0.0,
                n + 2 if n else 1, "forbidden" if n == 3 else "free",
            )
            for n, (token, own) in enumerate(zip(ALTERNATIVES, chances, strict=True))
        ]  # fmt: skip
        return TokenChoices(chosen, tuple(alternatives))

    driver.app.tokens.choices = choices  # type: ignore[method-assign]
    await raw(driver)
    await driver.pilot.press("tab", "ctrl+end", *["left"] * 6)
    await driver.expect_text("instead", "42.0 %")


async def token_alternatives(driver: AppDriver) -> None:
    """Another token is about to be taken."""
    await token(driver)
    await driver.pilot.press("enter", "down", "down")


async def token_plain(driver: AppDriver) -> None:
    """The same without colours."""
    await token_alternatives(driver)


async def token_searched(driver: AppDriver) -> None:
    """The tokens are searched; the model cannot say how likely one is."""
    looked_at: list[int] = []

    async def choices(position: TokenPosition) -> TokenChoices:
        looked_at.append(position.number)
        raise EngineError("vllm does not say how likely the tokens of a prompt are.")

    driver.app.tokens.choices = choices  # type: ignore[method-assign]
    await raw(driver)
    await driver.pilot.press("tab", "ctrl+f", *"十八")  # in the last row
    await driver.expect_text("1/1")
    stream = driver.app.query_one(TokenBrowser)
    # While it is typed, the cursor rests on other tokens, too.
    await driver.wait_for(lambda: looked_at[-1:] == [stream.cursor])
    await driver.expect_text("vllm does not say")
    driver.app.screen.query_one(Input).cursor_blink = False


async def probabilities(driver: AppDriver) -> None:
    """An answer and reasoning are coloured by probability."""
    turn = await driver.ask("What is a fox?")
    emit_reasoning(turn, "A fox is an animal.").close(True)
    emit_message(turn, "A **fox** is a clever, surprising, seldom seen animal.").close(True)
    await end_turn(driver, turn)
    view = driver.app.transcript.own_turns[-1]
    texts = ["A", " **", "fox", "**", " is", " a", " clever", ",", " surprising", ",", " seldom",
             " seen", " animal", "."]  # fmt: skip
    chances = [0.99, 0.7, 0.97, 0.99, 0.95, 0.8, 0.3, 0.6, 0.04, 0.95, 0.004, 0.2, 0.45, 1.0]
    runs = [(text, probability_style(p)) for text, p in zip(texts, chances, strict=True)]
    reasoning = [("A fox", "chance2"), (" is an", ""), (" animal.", "chance3")]
    items = {view.items[0].id: reasoning, view.items[1].id: runs}
    driver.app.action_fold()
    await driver.app.tokens._show_colours(view, items, "14.3 % surprising", [])
    await driver.expect_text("14.3 % surprising")


async def probabilities_blue_orange(driver: AppDriver) -> None:
    """The same in colours for colour-blind eyes."""
    driver.app.appearance.choose_probability_scale("blue-orange")
    await probabilities(driver)


async def probabilities_plain(driver: AppDriver) -> None:
    """The same without colours."""
    await probabilities(driver)


async def thought_plain(driver: AppDriver) -> None:
    """The same with NO_COLOR."""
    await thought(driver)


PLAIN: list[Scene] = [
    context_plain, times_plain, thought_plain, token_plain, probabilities_plain,
]  # fmt: skip
"""Scenes with ``NO_COLOR``."""
SCENES: list[Scene] = [
    context, *PLAIN, thought, times, token, token_alternatives, token_searched, probabilities,
    probabilities_blue_orange,
]  # fmt: skip
