"""The questions of a tool call: whether it may run, and what its server asks of the person (MCP
elicitation) or the model (MCP sampling). Both are "Client Features" of
https://modelcontextprotocol.io/specification. Every question is an event, and so is its answer."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent import events as ev
from agent.conversation.messages import Assistant, Message, User
from agent.turn.call_writers import CallWriter
from agent.turn.context import TurnContext
from agent.turn.exposure import conversation_exposure
from agent.turn.options import TurnOptions
from tools.builtin_server import ExtraPermission
from tools.config.servers import ServerConfig
from tools.mcp.client_requests import (
    ElicitationRequest,
    ElicitationResult,
    OnElicitation,
    SamplingRequest,
    SamplingResult,
)
from tools.mcp.login import LoginRequest
from tools.policy.approvals import ASK_REASON, NO_EXPOSURE, Verdict, join_verdicts
from tools.policy.taint import Exposure, may_send
from tools.types import Tool

MAX_SAMPLING_TOKENS = 2000
"""Tokens that a server may have the model write in one go, reasoning included."""
MAX_SAMPLINGS_PER_CALL = 10
SAMPLING_TOOL_NAME = "sampling"
"""Policy and person approve a server's use of the model as a tool of this name."""


class ApprovalGate:
    """Asks for one call, of the policy and of the person."""

    def __init__(self, context: TurnContext, writer: CallWriter) -> None:
        self._context, self._item = context, writer.id
        self._samplings = 0

    async def refusal(self, tool: Tool, arguments: str, *, sampling: bool = False) -> str | None:
        """Why the call may not run; None: it may. ``arguments``: JSON, as a person should see it."""
        config, policy = self._context.host.server_config(tool.server), self._context.policy
        if config is None:
            return "its server is gone"
        verdict, names = await self._verdict(tool, config, json.loads(arguments), sampling)
        if verdict.decision != "ask":
            decided = "allowed" if verdict.decision == "allow" else "refused"
            policy.log_decision(tool, arguments, decided, "policy", why=verdict.reason)
            return None if decided == "allowed" else verdict.reason
        await self._request(tool, arguments, verdict, sampling)
        approver = self._context.options.approver
        if approver is None:
            policy.log_decision(tool, arguments, "refused", "nobody", why=verdict.reason)
            name = config.builtin.alias if config.builtin else config.name
            why = "" if verdict.reason == ASK_REASON else f"{verdict.reason}; "
            needed = ",".join(f"{name}.{rule}" for rule in dict.fromkeys(names))
            self._resolved("refused", f"policy: no person to ask; --approve {needed} allows it")
            return f"{why}there is no person to approve it; to allow it: --approve {needed}"
        answer = await self._context.until_stopped(approver(tool, arguments))
        try:
            policy.record_answer(tool, config, answer, arguments, "person", rules=verdict.rules)
        except OSError as error:
            message = f"This approval counts until you quit; it cannot be stored: {error.strerror}."
            self._context.emit(ev.AgentNotice(level="warning", message=message))
        if answer:
            scope = "once" if verdict.rules == () else answer.choice
            self._resolved("approved", "person", scope=scope)
            return None
        self._resolved("refused", "person", reason=answer.reason or None)
        return f"by the user: {answer.reason}" if answer.reason else "by the user"

    async def _verdict(
        self, tool: Tool, config: ServerConfig, values: dict[str, Any], sampling: bool
    ) -> tuple[Verdict, list[str]]:
        policy = self._context.policy
        # Being allowed to run does not include the use of the model. In threads: they read files.
        extras: list[ExtraPermission] = []
        if config.builtin and not sampling:
            extras = await asyncio.to_thread(config.builtin.extra_permissions, tool.name, values)
        exposure = self._exposure(tool, config, extras)
        verdict = await asyncio.to_thread(
            policy.decide, tool, config, values, by_name_only=sampling, exposure=exposure,
            mode=self._context.options.mode,
        )  # fmt: skip
        names = [tool.name] if verdict.decision == "ask" else []
        if extras:
            more = [
                await asyncio.to_thread(policy.decide_extra, tool, config, extra, exposure)
                for extra in extras
            ]
            names += [e.name for e, v in zip(extras, more, strict=True) if v.decision == "ask"]
            verdict = join_verdicts(verdict, more)
        return verdict, names

    async def _request(self, tool: Tool, arguments: str, verdict: Verdict, sampling: bool) -> None:
        preview, values = self._context.host.builtins.preview, json.loads(arguments)
        event = ev.AgentApprovalRequested(
            item_id=self._item, server=tool.server, tool=tool.name, arguments=arguments,
            reason=verdict.reason, preview=None if sampling else await preview(tool, values),
            diff=verdict.diff, rules=None if verdict.rules is None else list(verdict.rules),
        )  # fmt: skip
        self._context.emit(event)

    def _exposure(
        self, tool: Tool, config: ServerConfig, extras: Sequence[ExtraPermission]
    ) -> Exposure:
        """The labels that the conversation has read, as far as they matter for a call of this tool."""
        if not may_send(tool, config) and not any(extra.host for extra in extras):
            return NO_EXPOSURE
        context = self._context
        names = (function.model_name for function in context.options.functions)
        functions = {context.format.canonical_name(name, function=True) for name in names}
        return conversation_exposure(
            context.conversation, context.format, context.host,
            instructions=context.options.instructions or "",
            files=context.options.project.files, client_functions=functions,
        )  # fmt: skip

    def _resolved(
        self, decision: str, by: str, *, scope: str | None = None, reason: str | None = None
    ) -> None:
        fields: dict[str, str | None] = {"item_id": self._item, "decision": decision, "by": by}
        fields |= {"scope": scope, "reason": reason}
        self._context.emit(ev.AgentApprovalResolved.model_validate(fields))

    async def elicit(self, question: ElicitationRequest) -> ElicitationResult:
        """The person's answer to a server's question; declined if there is no person."""
        return await self._ask(question, self._context.options.answerer)

    async def login(self, request: LoginRequest) -> bool:
        """Offer the person the login that a server wants; return whether it was done."""
        offer = self._context.options.login
        assert offer is not None

        async def log_in(_: ElicitationRequest) -> ElicitationResult:
            return ElicitationResult("accept" if await offer(request) else "decline")

        question = ElicitationRequest(request.server, request.message)
        return (await self._ask(question, log_in)).action == "accept"

    async def _ask(
        self, question: ElicitationRequest, answerer: OnElicitation | None
    ) -> ElicitationResult:
        context, answer, by = self._context, ElicitationResult("cancel"), "person"
        event = ev.AgentElicitationRequested(
            item_id=self._item, server=question.server, message=question.message,
            requested_schema=question.schema, url=question.url,
        )  # fmt: skip
        context.emit(event)
        try:
            if answerer is None:
                answer, by = ElicitationResult("decline"), "policy: no person to ask"
            else:
                answer = await context.until_stopped(answerer(question))
        finally:
            end = ev.AgentElicitationResolved(item_id=self._item, action=answer.action, by=by)
            context.emit(end)
        return answer

    async def sample(self, request: SamplingRequest) -> SamplingResult | None:
        """Let the model write for a server, in a conversation of its own; None: that was refused."""
        self._samplings += 1
        tool = Tool(request.server, SAMPLING_TOOL_NAME, "Have this model write something.", {})
        fields = {
            "messages": [f"{role}: {text}" for role, text in request.messages],
            "system": request.system_prompt,
            "max_tokens": request.max_tokens,
        }
        preview = json.dumps(fields, ensure_ascii=False)
        if self._samplings > MAX_SAMPLINGS_PER_CALL or await self.refusal(
            tool, preview, sampling=True
        ):
            return None
        messages: list[Message] = [
            User(text) if role == "user" else Assistant(text) for role, text in request.messages
        ]
        sampling = self._context.options.sampling
        if request.temperature is not None:
            sampling = replace(sampling, temperature=min(max(0.0, request.temperature), 2.0))
        options = TurnOptions(
            instructions=request.system_prompt,
            effort="low",
            sampling=sampling,
            max_output_tokens=min(request.max_tokens, MAX_SAMPLING_TOKENS),
            stop=request.stop,
            tools=(),
        )
        response = await self._context.run_child(messages, options)
        if response.status not in ("completed", "incomplete"):
            return None
        items = (item for item in response.output if isinstance(item, ev.MessageItem))
        text = "".join(part.text for item in items for part in item.content)
        if response.stop_sequence:
            return SamplingResult(text, response.model, "stopSequence")
        cut = response.status == "incomplete"
        return SamplingResult(text, response.model, "maxTokens" if cut else "endTurn")
