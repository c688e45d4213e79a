"""What a turn is told."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal

from agent import events as ev
from agent.engine.protocol import Sampling
from agent.formats.protocol import FunctionTool, Head
from agent.turn.call_writers import Approved, Hosted
from agent.turn.constraints import AnswerForm
from agent.turn.output import new_id
from agent.turn.tool_calls import PYTHON
from tools.mcp.client_requests import OnElicitation
from tools.types import Approver, Tool


@dataclass(frozen=True, slots=True)
class Options:
    """None leaves the model's default."""

    instructions: str | None = None
    effort: Literal["low", "medium", "high"] = "medium"
    sampling: Sampling = field(default_factory=Sampling)
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    functions: tuple[FunctionTool, ...] = ()
    """Tools that the client runs; a call of one ends the turn."""
    tools: tuple[Tool, ...] | None = None
    """Of the host's tools, those that this turn may use; None: all."""
    calls: Literal["may", "must", "none"] = "may"
    """must: the turn begins with a call of a tool; the model may think before it."""
    parallel: bool = True
    """A generation may make several calls, where its model's family does; else it ends at one."""
    exact: bool = False
    """No tool is called but those that are declared."""
    answer: AnswerForm | None = None
    """What the answer has to be."""
    listed: tuple[str, ...] = ()
    """Servers whose tools are listed as items first (a request's mcp tools)."""
    logprobs: int | None = None
    """Messages carry their tokens' log probabilities, with so many alternatives."""
    hosted: Hosted = field(default_factory=Hosted)
    """How calls of ours are shown, where the client has other words for them."""
    messages: bool = False
    """The response tells all that the model saw and wrote, as messages."""
    approved: tuple[Approved, ...] = ()
    """Calls that waited for the client's word, and run first."""
    compact: bool = False
    """Where the context is nearly full, the oldest turns are summarised (`compact.py`)."""
    approver: Approver | None = None
    """Asked where the policy says ask; without one (nobody is there) such a call is refused."""
    answerer: OnElicitation | None = None
    """Asked what a tool's server wants to know meanwhile; without one that is declined."""

    def head(self, tools: Collection[Tool]) -> Head:
        """What the model is told first; ``tools``: those of the host that it may use."""
        # Python is not declared as a function: the model was trained on a text of its own for it.
        declared = [
            FunctionTool(tool.model_name, tool.description, tool.parameters)
            for tool in tools
            if tool.model_name != PYTHON
        ]
        return Head(
            date=time.strftime("%Y-%m-%d"),
            effort=self.effort,
            instructions=self.instructions,
            functions=(
                *(replace(f, name=f.model_name, namespace=None) for f in self.functions),
                *(tool for tool in declared if "." not in tool.name),
            ),
            own=tuple(tool for tool in declared if "." in tool.name),
            python=len(declared) < len(tools),
        )

    def guided(self, tools: Collection[Tool]) -> bool:
        """Whether something that the model writes has to fit a form; ``tools``: the host's."""
        return bool(self.answer or self.functions or (tools if self.tools is None else self.tools))

    def response(self, model: str) -> ev.Response:
        """Before anything has come of the turn."""
        return ev.Response(
            id=new_id("resp"),
            created_at=int(time.time()),
            model=model,
            instructions=self.instructions,
            reasoning=ev.Reasoning(effort=self.effort),
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            max_output_tokens=self.max_output_tokens,
            max_tool_calls=self.max_tool_calls,
        )
