"""langchain-openai over the Responses API, alone and in LangChain's own loop."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from tests.clients.weather import AGAIN, OSLO, QUESTION, ROME, get_weather


def test_langchain_answers_tools_and_turns(url: str) -> None:
    model = ChatOpenAI(base_url=url, api_key="none", model="default", use_responses_api=True)
    text = model.invoke("hello").text
    assert text.startswith("Hello")
    assert "".join(part.text for part in model.stream("hello")) == text

    agent = create_agent(model, tools=[get_weather])
    messages = [{"role": "user", "content": QUESTION}]
    messages = agent.invoke({"messages": messages})["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert OSLO in messages[-1].text
    messages = agent.invoke({"messages": [*messages, {"role": "user", "content": AGAIN}]})[
        "messages"
    ]
    assert len(messages) == 8 and ROME in messages[-1].text
