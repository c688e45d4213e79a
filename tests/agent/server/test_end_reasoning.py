"""The budget of the reasoning in a request, and ``POST /v1/responses/{id}/answer``."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.endpoint import Serve, api_error, events_of, first_turn
from tests.support.invariants import check
from tests.support.scripts import HELLO, hold, thought
from tests.support.waiting import wait_until

WORDS = "one two three four five six seven eight"
ANSWER = "It is so.<|return|>"


def outline(response: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item["type"], item["content"][0]["text"]) for item in response["output"]]


@pytest.mark.parametrize(("own", "tokens"), [(None, 2), (5, 2), (2, 5), (5, 5)])
async def test_smaller_budget_of_request_and_operator_holds(
    serve: Serve, own: int | None, tokens: int
) -> None:
    served = await serve(thought(WORDS), ANSWER, max_reasoning_tokens=own)
    budget = min(own or tokens, tokens)
    response = check(await served.stream(input="x", reasoning={"max_tokens": tokens}))
    assert response["reasoning"]["max_tokens"] == budget
    text = " ".join(WORDS.split()[:budget])
    assert outline(response) == [("reasoning", text), ("message", "It is so.")]
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == budget


async def test_budget_of_the_operator_holds_for_every_api(serve: Serve) -> None:
    served = await serve(thought(WORDS), ANSWER, max_reasoning_tokens=2)
    assert outline((await served.post({"input": "x"})).json())[0] == ("reasoning", "one two")
    body = {"messages": [{"role": "user", "content": "x"}], "model": "default"}
    answer = await served.post(body, url=f"{served.url}/chat/completions")
    message = answer.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("one two", "It is so.")


@pytest.mark.parametrize(
    "field", ["thinking_budget_tokens", "reasoning_budget_tokens", "thinking_token_budget"]
)
async def test_chat_has_a_budget_by_the_names_of_other_servers(serve: Serve, field: str) -> None:
    served = await serve(thought(WORDS), ANSWER, HELLO)
    body = {"messages": [{"role": "user", "content": "x"}]}
    url = f"{served.url}/chat/completions"
    message = (await served.post({**body, field: 3}, url=url)).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("one two three", "It is so.")
    assert (await served.post({**body, field: -1}, url=url)).status_code == 200
    assert api_error(await served.post({**body, field: -2}, url=url), 400)["param"] == field


async def test_budget_of_nothing_leaves_no_reasoning(serve: Serve) -> None:
    served = await serve(ANSWER)
    response = check(await served.stream(input="x", reasoning={"max_tokens": 0}))
    assert outline(response) == [("message", "It is so.")]
    assert response["reasoning"]["max_tokens"] == 0


async def test_response_without_a_budget_has_no_such_field(serve: Serve) -> None:
    served = await serve(HELLO, HELLO)
    for reasoning in (None, {"max_tokens": None}):
        response = check(await served.stream(input="x", reasoning=reasoning))
        assert "max_tokens" not in response["reasoning"]


async def test_streamed_response_answers_now(serve: Serve) -> None:
    served = await serve(hold(thought(WORDS), after=6), ANSWER, HELLO)
    stream = asyncio.create_task(served.stream(input="x"))
    turn = await first_turn(served)
    await wait_until(lambda: turn.generations[-1].ids[5:])
    answer = await served.post({}, f"/{turn.response.id}/answer")
    assert answer.status_code == 200 and answer.json()["status"] == "in_progress"
    response = check(await stream)
    assert outline(response) == [("reasoning", "one two three"), ("message", "It is so.")]
    stored = (await served.get(f"/v1/responses/{response['id']}")).json()
    assert stored == response
    following = await served.post({"input": "y", "previous_response_id": response["id"]})
    assert following.json()["status"] == "completed", "it can be continued"


async def test_background_response_answers_now_and_is_replayed(serve: Serve) -> None:
    served = await serve(hold(thought(WORDS), after=6), ANSWER)
    created = (await served.post({"input": "x", "background": True})).json()
    turn = await first_turn(served)
    assert (await served.post({}, f"/{created['id']}/answer")).status_code == 200
    await turn.done()
    events = events_of((await served.get(f"/v1/responses/{created['id']}?stream=true")).text)
    assert outline(check(events))[-1] == ("message", "It is so.")


async def test_answer_is_refused_where_it_changes_nothing(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, after=14, until=go))
    assert (
        api_error(await served.post({}, "/resp_none/answer"), 404)["code"] == "response_not_found"
    )
    created = (await served.post({"input": "x", "background": True})).json()
    turn = await first_turn(served)
    await wait_until(lambda: turn.generations[-1].ids[13:])
    refused = api_error(await served.post({}, f"/{created['id']}/answer"), 400)
    assert refused["param"] == "response_id" and "answering already" in refused["message"]
    go.touch()
    await turn.done()
    await wait_until(lambda: not served.service.running)
    refused = api_error(await served.post({}, f"/{created['id']}/answer"), 400)
    assert refused["param"] == "response_id" and "has ended" in refused["message"]


async def test_answer_of_another_clients_response_is_not_there(serve: Serve) -> None:
    served = await serve(hold(thought(WORDS), after=6), ANSWER, api_key=("a", "b"))
    key = {"headers": {"authorization": "Bearer a"}}
    created = (await served.post({"input": "x", "background": True}, **key)).json()
    turn = await first_turn(served)
    other = {"headers": {"authorization": "Bearer b"}}
    api_error(await served.post({}, f"/{created['id']}/answer", **other), 404)
    assert (await served.post({}, f"/{created['id']}/answer", **key)).status_code == 200
    await turn.done()
