"""The prompt of the session's next turn: its conversation, instructions and tools, as tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from agent.errors import UserError, user_errors

if TYPE_CHECKING:
    from agent.conversation.conversation import Conversation
    from agent.events import AgentContext, Response
    from agent.formats.protocol import Effort, Format
    from agent.runtime.runtime import Runtime
    from agent.turn.options import TurnOptions
    from tools.types import Tool
    from tui.session_storage import SessionStorage


def turn_effort(response: Response) -> Effort | None:
    """The reasoning effort of a turn; None: its model has none, or it is not known."""
    effort = response.reasoning.effort if response.reasoning else None
    return cast("Effort", effort) if effort in ("low", "medium", "high") else None


class ToolSelection:
    """The person's selection, at first all tools; by names of servers and ``server.tool``."""

    def __init__(self) -> None:
        self.only: frozenset[str] | None = None
        """The selected names; None selects everything."""

    def includes(self, tool: Tool) -> bool:
        names = (tool.server, f"{tool.server}.{tool.name}")
        return self.only is None or not self.only.isdisjoint(names)

    def selected(self, tools: Sequence[Tool]) -> tuple[Tool, ...] | None:
        """The selected tools; None for all, including those of servers that connect later."""
        return None if self.only is None else tuple(filter(self.includes, tools))

    def select(self, argument: str, tools: Iterable[Tool]) -> None:
        """Select ``all``, ``none`` or comma-separated names of ``tools``. Raises UserError."""
        names = frozenset(name for part in argument.split(",") if (name := part.strip()))
        known = {name for tool in tools for name in (tool.server, f"{tool.server}.{tool.name}")}
        if names - known - {"all", "none"}:
            unknown = min(names - known - {"all", "none"})
            raise UserError(f"There is no tool {unknown} here; what there is: /tools")
        self.only = None if "all" in names else names - {"none"}


@dataclass(eq=False)
class NextPrompt:
    """Measures, prefills and changes what the model reads next."""

    runtime: Runtime
    options: TurnOptions
    conversation: Conversation
    storage: SessionStorage
    tool_selection: ToolSelection = field(default_factory=ToolSelection)
    _switched_off: dict[str, set[str]] = field(default_factory=dict)
    """By server: the tools that `toggle_server_tools` has switched off."""

    def turn_options(self) -> TurnOptions:
        return replace(self.options, tools=self.tool_selection.selected(self.runtime.host.tools()))

    @property
    def format(self) -> Format | None:
        """The model's chat format with the effort of the next turn; None until a model is loaded."""
        form = self.runtime.format
        return None if form is None else form.with_effort(self.options.effort)

    def require_format(self) -> Format:
        """The same. Raises UserError until a model is loaded."""
        if (form := self.format) is None:
            raise UserError("The tokens can be counted once the model is loaded.")
        return form

    @property
    def first_entry(self) -> int:
        """Index of the entry with which the next turn starts."""
        return len(self.conversation.entries)

    def _require_no_turn(self) -> None:
        if self.runtime.running_turns:
            raise UserError("A turn is running: change the prompt when it has ended.")

    def branch(
        self, form: Format, before: int | None = None, effort: Effort | None = None
    ) -> Conversation:
        """A copy up to entry ``before``, with the next header; ``effort``: not the next turn's."""
        conversation = self.conversation
        copy = conversation.branch(
            conversation.id, len(conversation.entries) if before is None else before
        )
        copy.omit_answered_calls(form)
        self._set_header(copy, form, effort)
        return copy

    def _set_header(
        self, conversation: Conversation, form: Format, effort: Effort | None = None
    ) -> None:
        options = self.turn_options()
        options = replace(options, effort=effort or options.effort)
        conversation.set_header(form, options.prompt_header(self._prompt_tools(form, options)))

    def _prompt_tools(self, form: Format, options: TurnOptions) -> Sequence[Tool]:
        from agent.turn.tool_search import prompt_tools

        return prompt_tools(options, form, self.runtime.host, self.runtime.context_length)

    def refresh_header(self) -> None:
        """Give the conversation the header of its next turn: tools and instructions as they are now."""
        runtime, conversation = self.runtime, self.conversation
        if (loaded := runtime.loaded) is None or runtime.running_turns:
            return
        if conversation.vocabulary in (None, loaded.vocabulary):
            self._set_header(conversation, loaded.format)

    def prefetch(self, draft: str, before: int | None = None) -> None:
        """Prefill up to entry ``before`` and a prompt's draft, if the model is idle and fits."""
        from agent.conversation.messages import User

        runtime = self.runtime
        if (loaded := runtime.loaded) is None or runtime.running_turns:
            return
        if self.conversation.vocabulary not in (None, loaded.vocabulary):
            return
        conversation = self.branch(loaded.format, before)
        if draft:
            conversation.add(loaded.format, User(draft))
        # Unsent text is not written to disk.
        runtime.prefetch(conversation, private=bool(draft))

    def token_count(self) -> int | None:
        """Number of tokens that it starts with; None until a model is loaded."""
        form = self.format
        return None if form is None else len(self.branch(form).prompt(form))

    async def cached_tokens(self) -> int | None:
        """Tokens of it in memory; None: that is not known, as while a turn runs."""
        runtime, form = self.runtime, self.format
        if runtime.loaded is None or runtime.running_turns or form is None:
            return None
        return await runtime.prefetcher.cached_tokens(self.branch(form).prompt(form))

    def measure(self) -> AgentContext:
        """Return its parts, or those of the next generation. Raises UserError without a model."""
        from agent.turn.context_usage import header_parts, measure_context

        form, runtime = self.require_format(), self.runtime
        options = self.turn_options()
        header = header_parts(form, options, self._prompt_tools(form, options))
        return measure_context(form, self.branch(form), header, runtime.context_length)

    async def choose(self, choice: Callable[[Format, Conversation, int], None], at: int) -> None:
        """Make or undo a choice of `agent.conversation.prompt_choices`; store it. Raises UserError."""
        from agent.conversation.prompt_choices import PromptChoiceError

        form, conversation = self.require_format(), self.conversation
        self._require_no_turn()
        with user_errors(PromptChoiceError):
            choice(form, conversation, at)
        chosen = replace(conversation, entries=[*conversation.entries])
        await self.storage.write(lambda store: store.write_prompt_choices(chosen))

    def toggle_server_tools(self, server: str) -> None:
        """Switch all tools of a server off, or those on again that were. Raises UserError."""
        self._require_no_turn()
        host = self.runtime.host
        names = {tool.name for tool in host.all_tools() if tool.server == server}
        on = {name for name in names if not host.is_tool_disabled(server, name)}
        if on:
            self._switched_off[server] = on
        else:
            on = self._switched_off.pop(server, names)
        enabled = server not in self._switched_off
        for name in on:
            host.set_tool_enabled(server, name, enabled=enabled)
