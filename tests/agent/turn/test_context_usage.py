"""What fills the context, part by part, and what a person changes of it."""

from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from agent.conversation.attachments import format_attachment
from agent.conversation.conversation import CompactedPrefix, Conversation
from agent.conversation.messages import (
    Assistant,
    ReasoningMessage,
    ToolCallMessage,
    ToolResultMessage,
    User,
)
from agent.conversation.prompt_choices import (
    PromptChoiceError,
    toggle_dropped,
    toggle_fold,
    toggle_pinned,
)
from agent.engine.protocol import ContextOverflowError
from agent.formats.harmony.format import HarmonyFormat
from agent.turn.context_usage import (
    bar_widths,
    explain_overflow,
    header_parts,
    measure_context,
    part_note,
)
from agent.turn.loop import Turn
from agent.turn.options import APP, HTTP, RUN, Interface, TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import final, python, thought
from tests.support.turns import read_events, write_script
from tools.types import Tool

TOOLS = [
    Tool("files", "read", "Read a file.", {"type": "object"}, "files__read"),
    Tool("files", "list", "List a folder.", {"type": "object"}, "files__list"),
    Tool("code_interpreter", "python", "", {"type": "object"}, "python"),
    Tool("browser", "search", "Search.", {"type": "object"}, "browser.search"),
]
PROMPT = "Look at @a.txt" + format_attachment("a.txt", "line\n" * 100)


OPTIONS = TurnOptions(instructions="Be brief.")


def conversation(form: HarmonyFormat) -> Conversation:
    """Two turns, the first with a file, a call and a long result; the second is not answered."""
    talk = Conversation("conv_1")
    talk.set_header(form, OPTIONS.prompt_header(TOOLS))
    for message in (
        User(PROMPT),
        ToolCallMessage("files__read", '{"path":"b"}'),
        ToolResultMessage("files__read", "word " * 900),
        Assistant("It is long.", "commentary"),
        Assistant("Done."),
        User("And now?"),
        ReasoningMessage("Hm."),
    ):
        talk.add(form, message)
    return talk


def kinds(context: ev.AgentContext) -> list[tuple[str, str, int | None]]:
    return [(part.kind, part.name, part.turn) for part in context.parts]


def measure(form: HarmonyFormat, talk: Conversation) -> ev.AgentContext:
    return measure_context(form, talk, header_parts(form, OPTIONS, TOOLS), 4096)


def test_parts_add_up_to_the_prompt(form: HarmonyFormat) -> None:
    talk = conversation(form)
    context = measure(form, talk)
    assert context.tokens == len(talk.prompt(form))
    assert kinds(context) == [
        ("system", "", None), ("developer", "", None), ("tools", "files", None),
        ("tools", "code_interpreter", None), ("tools", "browser", None), ("tools", "", None),
        ("file", "a.txt", 1), ("prompt", "", 1), ("call", "files__read", 1),
        ("result", "files__read", 1), ("commentary", "", 1), ("answer", "", 1),
        ("prompt", "", 2), ("reasoning", "", 2), ("opening", "", None),
    ]  # fmt: skip
    file, prompt = (part.tokens for part in context.parts[6:8])
    assert file > 200 and prompt < 20
    talk.compacted = CompactedPrefix(5, "short", form.developer_message("short"))
    compacted = measure(form, talk)
    assert compacted.tokens == len(talk.prompt(form))
    states = {part.turn: part.state for part in compacted.parts}
    assert states == {None: "", 1: "summarised", 2: ""}
    assert compacted.parts[6].kind == "summary"


def test_answered_python_call_is_marked_as_left_out(form: HarmonyFormat) -> None:
    talk = Conversation("conv_1")
    talk.set_header(form, OPTIONS.prompt_header(TOOLS))
    for message in (
        User("6*7?"),
        ToolCallMessage("python", "6*7", json=False),
        ToolResultMessage("python", "42"),
        Assistant("42"),
    ):
        talk.add(form, message)
    context = measure(form, talk)
    assert context.tokens == len(talk.prompt(form)) and "to=python" not in form.encoding.decode(
        talk.ids()
    )
    call, result = (part for part in context.parts if part.kind in ("call", "result"))
    assert (call.state, call.tokens, result.state, result.tokens) == ("omitted", 0, "omitted", 0)
    assert part_note(call) == f"left out, of {call.full_tokens}"
    with pytest.raises(PromptChoiceError, match="finished"):
        toggle_fold(form, talk, 2)
    toggle_pinned(form, talk, 1)
    assert measure(form, talk).tokens == len(talk.prompt(form)) > context.tokens


@pytest.mark.parametrize("size", [1, 7, 80, 200])
def test_bar_fits_whatever_fills_the_context(form: HarmonyFormat, size: int) -> None:
    context = measure(form, conversation(form))
    widths = bar_widths(context, size)
    assert all(widths.values()) and sum(widths.values()) <= max(size, len(widths))
    context.context_length = 0
    assert sum(bar_widths(context, 80).values()) <= 80


def test_each_choice_changes_the_prompt_and_is_undone_by_itself(form: HarmonyFormat) -> None:
    talk = conversation(form)
    before, result = talk.ids(), talk.entries[2]

    toggle_fold(form, talk, 2)
    folded = talk.ids()
    assert len(folded) < len(before) - 300 and measure(form, talk).tokens == len(folded) + 2
    assert "conv_1" in form.encoding.decode(folded), "it says where the whole is"
    assert result.shortened_ids is None, "another conversation may have that entry"

    toggle_dropped(form, talk, 1)
    assert "Look at" not in form.encoding.decode(talk.ids())
    assert measure(form, talk).tokens == len(talk.ids()) + 2
    toggle_dropped(form, talk, 1)
    assert talk.ids() == folded, "the fold is still there"
    toggle_fold(form, talk, 2)
    toggle_pinned(form, talk, 2)
    assert talk.ids() == before
    assert [entry.pinned for entry in talk.entries] == [False] * 5 + [True] * 2


@pytest.mark.parametrize(
    ("choice", "at", "message"),
    [
        (toggle_fold, 0, "Only the results"),
        (toggle_fold, 1, "Only the results"),
        (toggle_dropped, 0, "no turn 0"),
        (toggle_pinned, 3, "no turn 3"),
    ],
)
def test_impossible_choice_is_refused(
    form: HarmonyFormat, choice: Any, at: int, message: str
) -> None:
    talk = conversation(form)
    with pytest.raises(PromptChoiceError, match=message):
        choice(form, talk, at)
    talk.add(form, ToolResultMessage("files__read", "short"))
    with pytest.raises(PromptChoiceError, match="too few"):
        toggle_fold(form, talk, len(talk.entries) - 1)


@pytest.mark.parametrize("interface", [RUN, APP, HTTP])
async def test_turn_tells_what_fills_the_context(
    make_runtime: MakeRuntime, tmp_path: Path, interface: Interface
) -> None:
    replies = (thought("Compute.") + python("print(6*7)"), thought("Easy.") + final("It is 42."))
    script = write_script(tmp_path / "s.jsonl", *({"markup": reply} for reply in replies))
    runtime = await make_runtime(script, tools="python")
    talk = Conversation("c")
    turn = Turn(runtime, talk, [User("6*7?")], TurnOptions(), interface=interface).start()
    events = await read_events(turn)
    check(events)
    told = [event for event in events if event["type"] == "agent.context"]
    if interface is HTTP:
        assert not told
        return
    (context,) = told
    assert events.index(context) == len(events) - 3, "before the statistics"
    assert context["tokens"] == sum(part["tokens"] for part in context["parts"])
    assert context["cached"] == context["tokens"] - len(runtime.format.open_assistant())
    written = [(part["kind"], part["name"]) for part in context["parts"] if part["turn"]]
    assert written == [
        ("prompt", ""), ("reasoning", ""), ("call", "python"), ("result", "python"),
        ("reasoning", ""), ("answer", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("interface", "how"),
    [(RUN, "choose fewer with --tools"), (APP, "turn some off with F7"), (HTTP, "offer fewer")],
)
def test_prompt_that_is_too_long_for_its_tools_names_the_largest_servers(
    form: HarmonyFormat, interface: Interface, how: str
) -> None:
    counts = {"a": 2, "b": 40, "c": 30, "d": 20, "e": 1}
    tools = [
        Tool(server, f"t{n}", "Do it. " * 5, {"type": "object"}, f"{server}__t{n}")
        for server, count in counts.items()
        for n in range(count)
    ]
    prompt = len(form.prompt_header(OPTIONS.prompt_header(tools))) + 10
    sizes = {p.name: p.tokens for p in header_parts(form, OPTIONS, tools) if p.kind == "tools"}
    named = ", ".join(f"{name} {sizes[name]:,}" for name in "bcd")

    def explain(context: int, prompt: int = prompt) -> str:
        error = ContextOverflowError(prompt, context)
        return explain_overflow(error, form, OPTIONS, tools, interface)

    assert explain(1024) == (
        f"The prompt has {prompt:,} tokens and the context holds 1,024: {sum(sizes.values()):,} of"
        f" them define tools ({named}); {how} or ask for a longer context."
    )
    long_text = explain(20_000, 50_000)
    assert long_text == str(ContextOverflowError(50_000, 20_000)), "the text is what is too long"
    assert "define tools" in explain(20_000, 20_500), "it fits without them"


async def test_turn_with_too_many_tools_says_so(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    script = write_script(tmp_path / "s.jsonl", {"markup": final("ok")})
    runtime = await make_runtime(script, tools="files,python,shell", root=tmp_path, context=512)
    turn = Turn(runtime, Conversation("c"), [User("hi")], TurnOptions()).start()
    failed = (await read_events(turn))[-1]["response"]
    assert "of them define tools (" in failed["error"]["message"]
    assert "files " in failed["error"]["message"]
