"""What `agent run` writes to a terminal and into a pipe."""

import io

from agent import events as ev
from agent.cli.render import PlainRenderer, TerminalRenderer, summarize_call
from agent.util.sanitize import sanitize


def test_terminal_control_sequences_are_removed() -> None:
    assert sanitize("a\x1b[31mb\x07c\rd\x9be\n\tf") == "ab�c�d�e\n\tf"
    out = io.StringIO()
    renderer = TerminalRenderer(out)
    renderer.show(
        ev.ReasoningTextDelta(item_id="rs", output_index=0, sequence_number=0, delta="\x1b]0;x\x07")
    )
    assert "\x1b]0" not in out.getvalue() and "\x07" not in out.getvalue()


def test_terminal_markup_in_text_is_text() -> None:
    out = io.StringIO()
    TerminalRenderer(out).show(ev.AgentNotice(level="info", message="[bold]not bold[/bold]"))
    assert "[bold]not bold[/bold]" in out.getvalue()


MARKDOWN = "# Title\n\n1 Main St\nSpringfield\n\n- one\n  more\n"


def rendered(text: str, width: int, **options: bool) -> str:
    """The lines of an answer on a terminal so wide, without blanks at their ends."""
    out = io.StringIO()
    renderer = TerminalRenderer(out, **options)
    renderer._console.width = width
    item = ev.MessageItem(id="m", phase="final_answer")
    renderer.show(ev.OutputItemAdded(output_index=0, item=item))
    renderer.show(ev.OutputTextDelta(item_id="m", output_index=0, delta=text))
    renderer.show(ev.OutputItemDone(output_index=0, item=item))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_terminal_answer_line_breaks_stay_and_headings_are_left() -> None:
    lines = [line for line in rendered(MARKDOWN, 40).splitlines() if line]
    assert lines == ["Title", "1 Main St", "Springfield", " • one", "   more"]


def test_terminal_answer_long_paragraph_wraps() -> None:
    lines = rendered("word " * 20, 40).splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 40


def test_terminal_plain_answer_is_as_written() -> None:
    assert rendered(MARKDOWN + "word " * 20, 40, plain=True) == (MARKDOWN + "word " * 20).strip()


def test_plain_writes_only_final_answer() -> None:
    out, activity = io.StringIO(), io.StringIO()
    pipe = PlainRenderer(out, activity)
    for phase, text in (("commentary", "Let me see."), ("final_answer", "It is 3.")):
        item = ev.MessageItem(id=phase, phase=phase)  # type: ignore[arg-type]
        pipe.show(ev.OutputItemAdded(output_index=0, item=item))
        pipe.show(ev.OutputTextDelta(item_id=phase, output_index=0, delta=text))
        pipe.show(ev.OutputTextDone(item_id=phase, output_index=0, text=text))
    assert out.getvalue() == "It is 3.\n"


def test_summarize_call_folds_long_result() -> None:
    call = ev.McpCallItem(id="m", server_label="s", name="n", output="\n".join(map(str, range(50))))
    assert summarize_call(call, 12).splitlines()[-1] == "11 … (38 more lines)"
    exit_code = call.model_copy(update={"output": "make: *** No rule\n[exit code 2]"})
    assert summarize_call(exit_code) == "make: *** No rule … (1 more lines) [exit code 2]"
    failed = ev.McpProtocolError(code=1, message="gone")
    assert summarize_call(call.model_copy(update={"error": failed})) == "failed: gone"


def test_terminal_says_no_speed_of_a_few_tokens() -> None:
    out = io.StringIO()
    for tokens in (1, 10):
        TerminalRenderer(out).show(
            ev.AgentStats(
                prefill_tokens=1, cached_tokens=0, output_tokens=tokens, tokens_per_second=1595,
                time_to_first_token_ms=1, tool_ms=0, total_ms=1,
            )
        )  # fmt: skip
    assert out.getvalue().splitlines() == ["1 tokens", "10 tokens · 1595 tokens/s"]
