"""The events of a turn, folded into its view."""

from agent import events as ev
from agent.store.event_codec import encode_line, pack, read_record
from agent.store.records import StoredTurn
from tui.state.item_view import duration
from tui.state.turn_view import TurnView


def test_turn_view_events_after_end_are_ignored() -> None:
    view = TurnView("hi", clock=lambda: 0.0)
    view.apply(ev.AgentLoad(done=500, total=1000))
    assert view.activity == "loading the model 50 %"
    response = ev.Response(id="resp_1", created_at=0, model="tiny", status="completed")
    view.apply(ev.ResponseCompleted(response=response))
    view.apply(ev.AgentLoad(done=900, total=1000))
    assert (view.activity, view.running) == ("", False)


def test_token_times_of_one_moment_are_one() -> None:
    view = TurnView("hi", clock=iter([0.0, *(n / 1000 for n in range(100))]).__next__)
    view.apply(ev.AgentPrefill(done=1, total=1, cached=0))
    for _ in range(100):
        view.apply(ev.AgentTokens(ids=[1, 2]))
    assert len(view.token_times) == 11 and view.token_times.total() == 200


def test_stored_turn_has_its_times_and_speed() -> None:
    reasoning = ev.ReasoningItem(id="rs_1", status="completed")
    call = ev.McpCallItem(
        id="mcp_1", server_label="git", name="log", arguments="{}", status="completed"
    )
    lines = [
        encode_line(1.0, ev.OutputItemAdded(sequence_number=1, output_index=0, item=reasoning)),
        encode_line(3.5, ev.OutputItemDone(sequence_number=2, output_index=0, item=reasoning)),
        encode_line(3.5, ev.AgentReasoning(item_id=reasoning.id, tokens=31)),
        encode_line(4.0, ev.OutputItemAdded(sequence_number=3, output_index=1, item=call)),
        encode_line(
            5.0,
            ev.McpCallArgumentsDone(
                sequence_number=4, item_id="mcp_1", output_index=1, arguments="{}"
            ),
        ),
        encode_line(5.1, ev.AgentFileChanges(item_id="mcp_1", created=["a.txt"], total=1)),
        encode_line(5.25, ev.OutputItemDone(sequence_number=5, output_index=1, item=call)),
        encode_line(
            6.0,
            ev.AgentStats(
                prefill_tokens=1,
                cached_tokens=0,
                output_tokens=40,
                tokens_per_second=20.0,
                time_to_first_token_ms=1.0,
                tool_ms=1.0,
                total_ms=6000.0,
            ),
        ),
    ]
    response = ev.Response(
        id="resp_1", created_at=0, model="tiny", status="completed", output=[reasoning, call]
    )
    view = TurnView.from_stored(StoredTurn("go", response, 0, read_record(pack(lines))))
    assert [duration(item) for item in view.items] == ["2.5 s", "0.2 s"]
    assert [item.tokens for item in view.items] == [31, None]
    assert (view.tokens, view.speed) == (40, 20.0)
    assert [item.changes for item in view.items] == ["", "changed: a.txt (new)"]


def test_stored_calls_side_by_side_have_their_own_times() -> None:
    calls = [
        ev.McpCallItem(
            id=f"mcp_{n}", server_label="git", name="log", arguments="{}", status="completed"
        )
        for n in range(2)
    ]
    added = [
        encode_line(n, ev.OutputItemAdded(sequence_number=n, output_index=n, item=call))
        for n, call in enumerate(calls)
    ]
    done = [
        encode_line(5.0 - n, ev.OutputItemDone(sequence_number=9, output_index=n, item=call))
        for n, call in reversed(list(enumerate(calls)))
    ]
    record = read_record(pack([*added, *done]))
    assert [(times.began, times.ended) for times in record.times] == [(0.0, 5.0), (1.0, 4.0)]


def test_live_and_stored_turn_have_the_same_items() -> None:
    answer = ev.MessageItem(
        id="msg_1", phase="final_answer", content=[ev.OutputText(text="a\tb")], status="completed"
    )
    call = ev.McpCallItem(
        id="mcp_1", server_label="git", name="log", arguments='{"code": "1"}', output="2",
        status="completed",
    )  # fmt: skip
    response = ev.Response(
        id="resp_1", created_at=0, model="tiny", status="completed", output=[call, answer]
    )
    live = TurnView("go", clock=lambda: 0.0)
    opened = call.model_copy(update={"arguments": "", "output": None, "status": "in_progress"})
    live.apply(ev.OutputItemAdded(output_index=0, item=opened))
    for delta in ('{"co', 'de": "', "", "1", '"}'):
        live.apply(ev.McpCallArgumentsDelta(item_id="mcp_1", output_index=0, delta=delta))
    (item,) = live.items
    assert (str(item.text), item.text.read_from(1), item.state) == ("1", "", "writing")
    live.apply(ev.McpCallArgumentsDone(item_id="mcp_1", output_index=0, arguments='{"code": "1"}'))
    live.apply(ev.AgentToolOutputDelta(item_id="mcp_1", stream="stdout", delta="2"))
    assert (str(item.output), item.state, live.status) == ("2", "running", "in_progress")
    live.apply(ev.OutputItemDone(output_index=0, item=call))
    opened_answer = answer.model_copy(update={"content": [], "status": "in_progress"})
    live.apply(ev.OutputItemAdded(output_index=1, item=opened_answer))
    for delta in ("a\t", "b"):
        live.apply(
            ev.OutputTextDelta(item_id="msg_1", output_index=1, content_index=0, delta=delta)
        )
    assert (live.answer, live.answer_to_copy) == ("a   b", "a\tb")
    live.apply(ev.OutputItemDone(output_index=1, item=answer))
    live.apply(ev.ResponseCompleted(response=response))

    stored = TurnView.from_stored(StoredTurn("go", response, 0), clock=lambda: 0.0)
    for view in (live, stored):
        assert (view.status, view.response_id, view.answer) == ("completed", "resp_1", "a   b")
        seen = [(each.kind, each.title, each.final_text, each.result) for each in view.items]
        assert seen == [("call", "git · log", '{"code": "1"}', "2"), ("answer", "", "a   b", None)]
