"""Where a turn's time went: its events and times, as spans."""

import pytest

from agent import events as ev
from agent.store.event_codec import TimedEvent
from tui.state.timeline import Timeline, TimeSpan, read_timeline, sparkline

PYTHON = ev.McpCallItem(
    id="mcp_1", server_label="code_interpreter", name="python", arguments="", status="in_progress"
)


def added(index: int, item: ev.Item) -> ev.OutputItemAdded:
    return ev.OutputItemAdded(output_index=index, item=item)


def done(index: int, item: ev.Item) -> ev.OutputItemDone:
    return ev.OutputItemDone(output_index=index, item=item)


def prefill(read: int, total: int, cached: int) -> ev.AgentPrefill:
    return ev.AgentPrefill(done=read, total=total, cached=cached)


REASONING, ANSWER = ev.ReasoningItem(id="rs_1"), ev.MessageItem(id="msg_1")
APPROVAL = {"server": "code_interpreter", "tool": "python", "arguments": "{}", "reason": ""}
AT_MCP = {"item_id": "mcp_1", "output_index": 1}
EVENTS: list[TimedEvent] = [
    (0.1, ev.AgentLoad(done=0, total=1000)),
    (2.0, ev.AgentLoad(done=1000, total=1000)),
    (2.5, prefill(100, 500, 100)),
    (2.7, prefill(300, 500, 100)),
    (3.0, prefill(500, 500, 100)),
    (3.1, added(0, REASONING)),
    (4.0, ev.ReasoningTextDelta(item_id="rs_1", output_index=0, delta="Hm, hm, hm")),
    (4.0, done(0, REASONING)),
    (4.0, added(1, PYTHON)),
    (4.5, ev.McpCallArgumentsDelta(**AT_MCP, delta="1234567890")),
    (4.5, ev.McpCallArgumentsDone(**AT_MCP, arguments="{}")),
    (4.5, ev.AgentApprovalRequested(item_id="mcp_1", **APPROVAL)),
    (6.0, ev.AgentApprovalResolved(item_id="mcp_1", decision="approved", by="the person")),
    (8.0, done(1, PYTHON)),
    (8.2, prefill(700, 700, 700)),
    (8.3, added(2, ANSWER)),
    (9.0, ev.OutputTextDelta(item_id="msg_1", output_index=2, delta="a" * 20, logprobs=[])),
    (9.0, done(2, ANSWER)),
    (9.0, ev.AgentStats(
        prefill_tokens=400, cached_tokens=800, output_tokens=20, tokens_per_second=10,
        time_to_first_token_ms=1, tool_ms=2000, total_ms=9000,
    )),
]  # fmt: skip


def test_events_become_spans_without_gaps_between_them() -> None:
    timeline = read_timeline(EVENTS)
    assert [(span.label, span.began, span.ended) for span in timeline.spans] == [
        ("load", 0.0, 2.0),
        ("queue", 2.0, 2.5),
        ("prefill 400 + 100 cached", 2.5, 3.0),
        ("reasoning", 3.0, 4.0),
        ("arguments python", 4.0, 4.5),
        ("approval python", 4.5, 6.0),
        ("tool python", 6.0, 8.0),
        ("queue", 8.0, 8.2),
        ("prefill 0 + 700 cached", 8.2, 8.2),
        ("answer", 8.2, 9.0),
    ]
    assert timeline.seconds == 9.0


def test_text_that_was_begun_for_the_model_goes_on_after_the_prefill() -> None:
    begun: list[TimedEvent] = [
        (0.0, added(0, REASONING)),
        (0.0, ev.ReasoningTextDelta(item_id="rs_1", output_index=0, delta="Hm")),
        (0.2, prefill(0, 100, 0)),
        (1.0, prefill(100, 100, 0)),
        (3.0, done(0, REASONING)),
    ]
    spans = read_timeline(begun).spans
    assert [(span.kind, span.began, span.ended) for span in spans] == [
        ("queue", 0.0, 0.2),
        ("prefill", 0.2, 1.0),
        ("reasoning", 1.0, 3.0),
    ]


def test_tokens_are_estimated_from_texts_unless_they_were_counted() -> None:
    estimated = read_timeline(EVENTS)
    assert estimated.tokens == [(4.0, 5.0), (4.5, 5.0), (9.0, 10.0)]
    counted = read_timeline(EVENTS, [(3.5, 4), (4.0, 4)])
    assert counted.tokens == [(3.5, 4), (4.0, 4)]


@pytest.mark.parametrize("columns", [1, 7, 60, 400])
def test_speeds_spread_batches_over_the_time_that_they_took(columns: int) -> None:
    tokens = [(1 + n * 0.04, 4.0) for n in range(50)]
    speeds = Timeline([], 4.0, tokens).speeds(columns)
    assert len(speeds) == columns
    if columns >= 60:
        assert max(speeds) == pytest.approx(100, rel=0.3), "4 tokens in 0.04 s"
        assert speeds[-1] == speeds[0] == 0, "nothing before and after"


def test_unfinished_and_empty_turns_have_a_timeline() -> None:
    assert read_timeline([]) == Timeline([], 0.0, [])
    assert Timeline([], 0.0, [(0.0, 1.0)]).speeds(10)[0] > 0
    cut_off = read_timeline(EVENTS[:6])
    assert cut_off.spans[-1] == TimeSpan("reasoning", 3.0, 3.1)
    (span,) = read_timeline([(1.0, ev.AgentLoad(done=1, total=1000))]).spans
    assert (span.kind, span.began, span.ended) == ("load", 0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "line"), [([], ""), ([0, 0], "  "), ([1, 8, 0, 4], "▂█ ▅"), ([5], "█")]
)
def test_sparkline_is_scaled_to_its_highest_value(values: list[float], line: str) -> None:
    assert sparkline(values) == line
