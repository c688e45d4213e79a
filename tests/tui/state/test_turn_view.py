"""The events of a turn, folded into its view."""

from __future__ import annotations

from agent import events as ev
from tui.state.turn_view import TurnView


def test_turn_view_events_after_end_are_ignored() -> None:
    view = TurnView("hi", clock=lambda: 0.0)
    view.apply(ev.AgentLoad(done=500, total=1000))
    assert view.activity == "loading the model 50 %"
    response = ev.Response(id="resp_1", created_at=0, model="tiny", status="completed")
    view.apply(ev.ResponseCompleted(response=response))
    view.apply(ev.AgentLoad(done=900, total=1000))
    assert (view.activity, view.running) == ("", False)
