"""Conversations of ``/v1/conversations`` in the store: branches, other processes, what is kept."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.conversation.conversation import Conversation, Entry
from agent.events import Response
from agent.store.api_conversations import ApiConversationStore, ItemTurn
from agent.store.conversations import Store
from agent.store.responses import ResponseStore
from agent.store.tree import ConversationChangedError


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiConversationStore]:
    store = Store(tmp_path / "store.sqlite")
    yield ApiConversationStore(store)
    store.close()


def response(name: str) -> Response:
    return Response(id=name, created_at=0, model="m", status="completed")


def conversation_of(api: ApiConversationStore, *prompts: str) -> Conversation:
    """A conversation with a turn of one entry for each prompt."""
    conversation = Conversation("conv_a", vocabulary="v")
    api.create(conversation, {"a": "b"}, "m")
    turns = []
    for number, prompt in enumerate(prompts):
        conversation.entries.append(Entry([number], role="user"))
        turn = ItemTurn(
            f"resp_{number}", conversation.id, prompt,
            response(f"resp_{number}").model_dump(mode="json"), number, number + 1,
            {"history": {}, "inputs": [], "request_bytes": 0},
        )  # fmt: skip
        turns.append(turn)
    api.write(conversation, turns)
    return conversation


def test_branch_keeps_turns_that_its_parent_writes_anew(api: ApiConversationStore) -> None:
    conversation = conversation_of(api, "one", "two", "three")
    branch = api.store.fork(conversation, 2)
    turns = api.turns(conversation.id)
    before = api.store.read(conversation.id)
    rewritten = before.branch(conversation.id, 1)
    rewritten.entries.append(Entry([9], role="user"))
    turns[2].start, turns[2].upto = 1, 2
    api.write(rewritten, [turns[2]], deleted=["resp_1"])
    assert [turn.prompt for turn in api.turns(conversation.id)] == ["one", "three"]
    assert [turn.prompt for turn in api.turns(branch.id)] == ["one", "two"]
    assert [entry.ids for entry in api.store.read(branch.id).entries] == [[0], [1]]
    assert [entry.ids for entry in api.store.read(conversation.id).entries] == [[0], [9]]


def test_turn_of_a_parent_that_is_changed_becomes_the_branchs_own(
    api: ApiConversationStore,
) -> None:
    conversation = conversation_of(api, "one", "two")
    branch = api.store.fork(conversation, 2)
    turns = api.turns(branch.id)
    before = api.store.read(branch.id)
    rewritten = before.branch(branch.id, 0)
    for turn in turns:
        turn.prompt += " changed"
        rewritten.entries.append(Entry([7], role="user"))
    api.write(rewritten, turns)
    assert [turn.prompt for turn in api.turns(branch.id)] == ["one changed", "two changed"]
    assert [turn.prompt for turn in api.turns(conversation.id)] == ["one", "two"]


def test_write_refuses_what_another_process_changed(api: ApiConversationStore) -> None:
    conversation = conversation_of(api, "one")
    other = api.store.read(conversation.id)
    other.entries.append(Entry([5], role="user"))
    api.write(other, [])
    with pytest.raises(ConversationChangedError):
        api.write(conversation, [])


def test_conversation_runs_while_the_process_of_its_turn_does(
    api: ApiConversationStore, tmp_path: Path
) -> None:
    conversation = conversation_of(api, "one")
    code = (
        "import sys; from pathlib import Path; from agent.events import Response;"
        "from agent.store.conversations import Store; store = Store(Path(sys.argv[1]));"
        "store.begin(store.load('conv_a'), 'x', Response(id='resp_x', created_at=0, model='m'));"
        "print(flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "store.sqlite")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with other:
        assert other.stdout and other.stdout.readline()
        assert api.is_running(conversation.id)
        other.kill()
        other.communicate()
    assert not api.is_running(conversation.id)
    assert [turn.prompt for turn in api.turns(conversation.id)] == ["one"]


def test_conversations_of_clients_are_not_pruned(api: ApiConversationStore) -> None:
    conversation_of(api, "one")
    other = Conversation("conv_b", [Entry([1], role="user")], vocabulary="v")
    answer = response("resp_b")
    served = {"history": {}, "inputs": [], "request_bytes": 0}
    api.store.begin(other, "x", answer, served=served)
    api.store.finish(other, answer, served=served)
    ResponseStore(api.store, days=-1.0)
    assert [summary.id for summary in api.store.summaries()] == ["conv_a"]
    found = api.find("conv_a")
    assert found is not None and found.metadata == {"a": "b"}
