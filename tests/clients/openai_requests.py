"""What tests of OpenAI's clients send: a function, a multiplication, a function's output."""

from __future__ import annotations

import json
from typing import Any

from openai import pydantic_responses_function_tool
from openai.types.responses import Response
from pydantic import BaseModel

from tests.clients.weather import get_weather

MODEL = "default"
MULTIPLY = "Multiply 123*456 using the mcp.code_interpreter tool."


class GetWeather(BaseModel):
    """Get the weather of a city."""

    city: str


WEATHER = pydantic_responses_function_tool(GetWeather, name="get_weather")


def function_output(response: Response) -> Any:
    """Run the function that a response calls; its output as the next request's input."""
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert call.name == "get_weather"
    output = get_weather(**json.loads(call.arguments))
    return [{"type": "function_call_output", "call_id": call.call_id, "output": output}]
