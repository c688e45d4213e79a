"""Events as updates of an editor's session."""

from pathlib import Path
from typing import Any

from agent import events as ev
from agent.acp.updates import TurnUpdates
from agent.turn.response_builder import response_events


def test_turn_without_stored_events_is_replayed_item_by_item(tmp_path: Path) -> None:
    response = ev.Response(
        id="resp_1",
        created_at=0,
        model="tiny",
        status="completed",
        output=[
            ev.ReasoningItem(id="rs_1", content=[ev.ReasoningText(text="Look.")]),
            ev.McpCallItem(
                id="mcp_1", server_label="files", name="read", arguments='{"path": "a.txt"}',
                output="one", status="completed",
            ),
            ev.MessageItem(id="msg_1", content=[ev.OutputText(text="One.")]),
        ],
    )  # fmt: skip
    updates = TurnUpdates(tmp_path, "tiny", replayed=True)
    sent: list[Any] = [
        update for event in response_events(response) for update in updates.of(event)
    ]
    assert [update.session_update for update in sent] == [
        "agent_thought_chunk", "tool_call", "tool_call_update", "tool_call_update",
        "agent_message_chunk",
    ]  # fmt: skip
    assert sent[2].title == "files.read: a.txt"
    assert (sent[3].status, sent[3].raw_output) == ("completed", {"output": "one"})
    assert sent[-1].content.text == "One."
