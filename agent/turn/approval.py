"""What a tool call asks of whoever drives the turn: may it run, and what its server wants to know."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from agent import events as ev
from agent.conversation.conversation import Assistant, Conversation, Message, User
from tools.mcp.client_requests import Elicitation, Elicited, Sampled, Sampling
from tools.types import Tool

if TYPE_CHECKING:
    from agent.turn.call_writers import Writer
    from agent.turn.loop import Turn

MAX_SAMPLED = 2000
"""Tokens that a server may have the model write at a time, reasoning included."""
MAX_SAMPLINGS = 10
"""In one call."""
SAMPLING = "sampling"
"""Under this name, beside its tools, a server's wish to use the model is approved."""


class Asking:
    """Of one call. Every question is an event, and so is its answer."""

    def __init__(self, turn: Turn, writer: Writer) -> None:
        self._turn, self._item = turn, writer.id
        self._samplings = 0

    async def refused(self, tool: Tool, arguments: str, *, sampling: bool = False) -> str | None:
        """Why the call may not run; None: it may. ``arguments``: JSON, as a person should see it."""
        turn, policy = self._turn, self._turn.runtime.policy
        preview = turn.host.preview
        config = turn.host.config(tool.server)
        if config is None:
            return "its server is gone"
        # Being allowed to run does not include the use of the model.
        verdict = policy.decide(tool, config, named=sampling)
        if verdict.decision == "allow":
            policy.note(tool, arguments, "allowed", "policy", why=verdict.why)
            return None
        if verdict.decision == "deny":
            policy.note(tool, arguments, "refused", "policy", why=verdict.why)
            return verdict.why
        turn.emit(
            ev.AgentApprovalRequested(
                item_id=self._item,
                server=tool.server,
                tool=tool.name,
                arguments=arguments,
                reason=verdict.why,
                preview=None if sampling else await preview(tool, json.loads(arguments)),
                diff=verdict.diff,
            )
        )
        approver = turn.options.approver
        if approver is None:
            policy.note(tool, arguments, "refused", "nobody", why=verdict.why)
            self._resolved("refused", "policy: nobody to ask; --approve allows it")
            name = config.hand.short if config.hand else config.name
            return f"nobody is there to approve it (--approve {name}.{tool.name} allows it)"
        answer = await turn.until_stopped(approver(tool, arguments))
        try:
            policy.answered(tool, config, answer, arguments, "person")
        except OSError as error:
            message = f"This approval counts until you leave; it cannot be kept: {error.strerror}."
            turn.emit(ev.AgentNotice(level="warning", message=message))
        if answer:
            self._resolved("approved", "person", scope=answer.choice)
            return None
        self._resolved("refused", "person", reason=answer.reason or None)
        return f"by the user: {answer.reason}" if answer.reason else "by the user"

    def _resolved(
        self, decision: str, by: str, *, scope: str | None = None, reason: str | None = None
    ) -> None:
        self._turn.emit(
            ev.AgentApprovalResolved.model_validate(
                {
                    "item_id": self._item,
                    "decision": decision,
                    "by": by,
                    "scope": scope,
                    "reason": reason,
                }
            )
        )

    async def elicit(self, question: Elicitation) -> Elicited:
        """The person's answer; declined where nobody is there."""
        turn = self._turn
        turn.emit(
            ev.AgentElicitationRequested(
                item_id=self._item,
                server=question.server,
                message=question.message,
                requested_schema=question.schema,
                url=question.url,
            )
        )
        answerer, by = turn.options.answerer, "person"
        answer = Elicited("cancel")
        try:
            if answerer is None:
                answer, by = Elicited("decline"), "policy: nobody to ask"
            else:
                answer = await turn.until_stopped(answerer(question))
        finally:
            turn.emit(ev.AgentElicitationResolved(item_id=self._item, action=answer.action, by=by))
        return answer

    async def sample(self, wanted: Sampling) -> Sampled | None:
        """What the model writes for a server, in a conversation of its own; None: refused."""
        from agent.turn.loop import Turn
        from agent.turn.options import Options
        from agent.turn.output import new_id

        self._samplings += 1
        tool = Tool(wanted.server, SAMPLING, "Have this model write something.", {})
        shown = {
            "messages": [f"{role}: {text}" for role, text in wanted.messages],
            "system": wanted.system,
            "max_tokens": wanted.max_tokens,
        }
        asked = json.dumps(shown, ensure_ascii=False)
        if self._samplings > MAX_SAMPLINGS or await self.refused(tool, asked, sampling=True):
            return None
        outer = self._turn
        history: list[Message] = [
            User(text) if role == "user" else Assistant(text) for role, text in wanted.messages
        ]
        sampling = outer.options.sampling
        if wanted.temperature is not None:
            sampling = replace(sampling, temperature=min(max(0.0, wanted.temperature), 2.0))
        options = Options(
            instructions=wanted.system,
            effort="low",
            sampling=sampling,
            max_output_tokens=min(wanted.max_tokens, MAX_SAMPLED),
            tools=(),
        )
        turn = Turn(
            outer.runtime, Conversation(new_id("conv")), history, options, source="sampling"
        )
        turn.start()
        try:
            response = await outer.until_stopped(turn.done())
        finally:
            turn.stop()
            outer.measures.went_aside(turn.measures.usage)
        if response.status not in ("completed", "incomplete"):
            return None
        said = (item for item in response.output if isinstance(item, ev.MessageItem))
        text = "".join(part.text for item in said for part in item.content)
        return Sampled(text, outer.runtime.model.name, cut=response.status == "incomplete")
