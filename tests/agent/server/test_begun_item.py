"""An input that ends with an item of the model in progress is continued."""

from typing import Any

import pytest

from tests.support.endpoint import Serve, api_error, engine_markup
from tests.support.invariants import check
from tests.support.scripts import HELLO, final

USER = {"role": "user", "content": "Tell me."}


def reasoning(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content, **more}


def message(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content, **more}


BEGUN = {"status": "in_progress"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("items", "reply", "prompt", "output"),
    [
        ([message("It ", **BEGUN)], "is.<|return|>", "final<|message|>It is.", ["It is."]),
        (
            [reasoning("Hm, ", **BEGUN)],
            "yes.<|end|><|start|>assistant" + final("Yes."),
            "analysis<|message|>Hm, yes.<|end|>",
            ["Hm, yes.", "Yes."],
        ),
        (
            [reasoning("Hm.", status="completed"), message("It ", **BEGUN)],
            "is.<|return|>",
            "analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is.",
            ["It is."],
        ),
        (
            [message("I look ", phase="commentary", **BEGUN)],
            "now.<|end|><|start|>assistant" + final("Yes."),
            "commentary<|message|>I look now.<|end|>",
            ["I look now.", "Yes."],
        ),
        ([message("", **BEGUN)], "Yes.<|return|>", "final<|message|>Yes.", ["Yes."]),
        (
            [message("a<|end|>b", **BEGUN)],
            "c<|return|>",
            "final<|message|>a<|end|>bc",
            ["a<|end|>bc"],
        ),
    ],
)
async def test_last_item_in_progress_is_continued(
    serve: Serve, items: list[Any], reply: str, prompt: str, output: list[str]
) -> None:
    served = await serve(reply, final("Fine."))
    body = {"input": [USER, *items]}
    counted = (await served.post(body, "/input_tokens")).json()["input_tokens"]
    response = check(await served.stream(**body))
    assert [item["content"][0]["text"] for item in response["output"]] == output
    assert prompt in engine_markup(served)
    assert response["usage"]["input_tokens"] == counted
    listed = (await served.get(f"/v1/responses/{response['id']}/input_items")).json()["data"]
    assert len(listed) == 1 + len(items)
    following = await served.stream(input="And?", previous_response_id=response["id"])
    check(following)
    assert f"<|message|>{output[-1]}<|end|>" in engine_markup(served)


async def test_item_in_progress_that_is_not_the_last_is_history(serve: Serve) -> None:
    served = await serve(final("Yes."))
    response = check(await served.stream(input=[USER, message("It is.", **BEGUN), USER]))
    assert response["output"][0]["content"][0]["text"] == "Yes."
    assert "<|message|>It is.<|end|>" in engine_markup(served)


async def test_completed_last_item_is_answered_as_before(serve: Serve) -> None:
    served = await serve(final("Yes."))
    response = check(await served.stream(input=[USER, message("It is.", status="completed")]))
    assert response["output"][0]["content"][0]["text"] == "Yes."


async def test_conversation_has_a_continued_item_once(serve: Serve) -> None:
    served = await serve("is.<|return|>")
    name = (await served.post({}, url=f"{served.root}/v1/conversations")).json()["id"]
    check(await served.stream(conversation=name, input=[USER, message("It ", **BEGUN)]))
    items = (await served.get(f"/v1/conversations/{name}/items?order=asc")).json()["data"]
    texts = [item["content"][0]["text"] for item in items]
    assert texts == ["Tell me.", "It is."]


async def test_stop_in_a_begun_item_leaves_its_conversation_open(serve: Serve) -> None:
    served = await serve("\nx```y<|return|>", HELLO)
    name = (await served.post({}, url=f"{served.root}/v1/conversations")).json()["id"]
    items = [USER, message("```json", **BEGUN)]
    answered = check(await served.stream(conversation=name, input=items, stop="```"))
    assert answered["output"][-1]["content"][0]["text"] == "```json\nx"
    check(await served.stream(conversation=name, input="again"))


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (message("x", status="soon"), "input[1].status"),
        (reasoning("x", **BEGUN) | {"content": [], "encrypted_content": "nobody's"}, "input[1]"),
        (message("word " * 200_000, **BEGUN), "input"),
    ],
)
async def test_item_that_cannot_be_continued_is_refused(
    serve: Serve, item: dict[str, Any], param: str
) -> None:
    served = await serve(final("Yes."))
    answer = await served.post({"input": [USER, item]})
    assert api_error(answer, 400)["param"].startswith(param)
