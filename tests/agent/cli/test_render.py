"""What a terminal and a pipe are shown."""

from __future__ import annotations

import io

from agent import events as ev
from agent.cli.render import Blocks, Pipe, Terminal, summary
from agent.util.sanitize import harmless


def blocks(text: str, size: int) -> list[str]:
    parts = Blocks()
    out: list[str] = []
    for at in range(0, len(text), size):
        out += parts.feed(text[at : at + size])
    return out + parts.rest()


TEXT = (
    "# Title\n\nA paragraph.\n\n```python\na = 1\n\nb = 2\n```\n\n"
    "- one\n- two\n\n| a |\n|---|\n| 1 |\n"
)


def test_markdown_is_given_out_block_by_block_however_it_is_cut() -> None:
    for size in (1, 3, 7, 1000):
        assert "".join(blocks(TEXT, size)) == TEXT
    assert len(blocks(TEXT, 1)) >= 4
    assert any("a = 1\n\nb = 2" in block for block in blocks(TEXT, 1)), "a fence stays whole"


def test_no_text_can_steer_the_terminal() -> None:
    assert harmless("a\x1b[31mb\x07c\rd\x9be\n\tf") == "ab�c�d�e\n\tf"
    out = io.StringIO()
    face = Terminal(out)
    face.show(
        ev.ReasoningTextDelta(item_id="rs", output_index=0, sequence_number=0, delta="\x1b]0;x\x07")
    )
    assert "\x1b]0" not in out.getvalue() and "\x07" not in out.getvalue()


def test_markup_in_text_is_text() -> None:
    out = io.StringIO()
    Terminal(out).show(ev.AgentNotice(level="info", message="[bold]not bold[/bold]"))
    assert "[bold]not bold[/bold]" in out.getvalue()


def test_a_pipe_gets_the_final_answer_only() -> None:
    out, activity = io.StringIO(), io.StringIO()
    pipe = Pipe(out, activity)
    for phase, text in (("commentary", "Let me see."), ("final_answer", "It is 3.")):
        item = ev.MessageItem(id=phase, phase=phase)  # type: ignore[arg-type]
        pipe.show(ev.OutputItemAdded(output_index=0, item=item))
        pipe.show(ev.OutputTextDelta(item_id=phase, output_index=0, delta=text))
        pipe.show(ev.OutputTextDone(item_id=phase, output_index=0, text=text))
    assert out.getvalue() == "It is 3.\n"


def test_a_long_result_is_folded() -> None:
    call = ev.McpCallItem(id="m", server_label="s", name="n", output="\n".join(map(str, range(50))))
    assert summary(call, 12).splitlines()[-1] == "11 … (38 more lines)"
    failed = ev.McpProtocolError(code=1, message="gone")
    assert summary(call.model_copy(update={"error": failed})) == "failed: gone"
