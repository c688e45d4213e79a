"""The MCP servers and their tools: how each is, what it costs, on or off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from tui.markdown.highlight import changes
from tui.screens.list_screen import Room, Row
from tui.util.format import shown

if TYPE_CHECKING:
    from agent.runtime.runtime import Runtime
    from agent.turn.options import Options
    from tools.policy.approvals import Verdict
    from tools.types import ServerState, Tool

LOOK = 0.5
"""Seconds between two looks at the servers."""
STDERR_LINES = 15
SERVER = "\t"
"""After a server's name: its own row's id; a tool's goes on with its name."""
MARKS = {"ready": "●", "starting": "◌", "failed": "✗", "disabled": "○"}
STYLES = {
    "ready": "$success",
    "starting": "$warning",
    "failed": "$error",
    "disabled": "$text-muted",
}
RULES = {"allow": "runs without asking", "ask": "asks first", "deny": "is denied"}


class Servers(Room[None]):
    """Nothing is chosen here: what is switched counts from the next turn on."""

    NAME = "MCP servers and tools"
    KEYS = "Enter on or off · Ctrl-R reconnects · Ctrl-L logs in · Esc goes back"
    EMPTY = "No server is configured: agent mcp add NAME -- COMMAND, or agent mcp import."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "reconnect", show=False, priority=True),
        Binding("ctrl+l", "log_in", show=False, priority=True),
    ]

    def __init__(self, runtime: Runtime, options: Options) -> None:
        super().__init__()
        self._runtime, self._host, self._options = runtime, runtime.host, options
        self._costs: dict[tuple[str, str], int] = {}
        self._total = 0
        self._page: dict[str, str] = {}
        """Of a login that goes on: what to tell of it."""
        self._looked: object = None

    def on_mount(self) -> None:
        self._look()
        super().on_mount()
        self.set_interval(LOOK, self._again)

    def _again(self) -> None:
        before = self._looked
        self._look()
        if self._looked != before:
            self.fill()

    def _look(self) -> None:
        """Servers, tools and costs as they are now; costs are known once the model is there."""
        self._states = {one.name: one for one in self._host.servers()}
        self._tools = list(self._host.all_tools())
        offered = [(t.server, t.name) for t in self._host.tools()]
        form = getattr(self._runtime, "format", None)
        now = (list(self._states.values()), self._tools, offered, form)
        if now != self._looked and form is not None:
            from agent.turn.cost import all_tokens, tool_tokens

            tokens = tool_tokens(form, self._options, self._tools)
            self._costs = {
                (tool.server, tool.name): cost
                for tool, cost in zip(self._tools, tokens, strict=True)
            }
            self._total = all_tokens(form, self._options, list(self._host.tools()))
        self._looked = now

    # --- rows ---

    def rows(self, search: str) -> Sequence[Row]:
        rows = []
        for state in self._states.values():
            tools = [tool for tool in self._tools if tool.server == state.name]
            found = [
                tool for tool in tools if _has(search, state.name, tool.name, tool.description)
            ]
            if found or _has(search, state.name):
                rows.append(Row(f"{state.name}{SERVER}", self._server_label(state, tools)))
            rows += [Row(f"{state.name}{SERVER}{t.name}", self._tool_label(t)) for t in found]
        return rows

    def _server_label(self, state: ServerState, tools: Sequence[Tool]) -> Content:
        on = [tool for tool in tools if not self._host.is_off(tool.server, tool.name)]
        count = f"{len(on)} of {len(tools)} tools" if len(on) < len(tools) else _count(len(tools))
        why = f"{state.status}: {state.error}" if state.error else state.status
        words = ["" if tools else shown(why).split("\n")[0], count if tools else "", self._cost(on)]
        mark = (f"{MARKS[state.status]} ", STYLES[state.status])
        name = Content(shown(state.name)).stylize("bold")
        about = " · ".join(filter(None, words))
        return Content.assemble(mark, name, "  ", (about, "$text-muted"))

    def _tool_label(self, tool: Tool) -> Content:
        off = self._host.is_off(tool.server, tool.name)
        words = [self._cost([tool])]
        if (verdict := self._verdict(tool)) is not None and verdict.diff:
            words.append("changed since you allowed it")
        name = Content(shown(tool.name)).stylize("$text-muted" if off else "")
        about = " · ".join(filter(None, words))
        return Content.assemble(f"  {'☐' if off else '☑'} ", name, "  ", (about, "$text-muted"))

    def _cost(self, tools: Sequence[Tool]) -> str:
        if not self._costs or not tools:
            return ""
        return f"{sum(self._costs[tool.server, tool.name] for tool in tools):,} tok"

    def _verdict(self, tool: Tool) -> Verdict | None:
        config = self._host.config(tool.server)
        return self._runtime.policy.decide(tool, config) if config else None

    # --- details ---

    def details(self, row: str, search: str) -> Content:
        server, _, name = row.partition(SERVER)
        if not name:
            return self._of_server(self._states[server])
        tool = next((t for t in self._tools if (t.server, t.name) == (server, name)), None)
        return self._of_tool(tool) if tool else Content("It is gone.")

    def _of_server(self, state: ServerState) -> Content:
        config = self._host.config(state.name)
        version = f"MCP {state.protocol}" if state.protocol else ""
        head = [state.status, state.transport, version, "required" if state.required else ""]
        parts = [Content(" · ".join(filter(None, head)))]
        if config is not None and config.origin:
            parts.append(Content(shown(config.origin)).stylize("$text-muted"))
        if state.error:
            parts.append(Content(shown(state.error)).stylize("$text-error"))
        if told := self._page.get(state.name):
            parts.append(Content(told))
        if self._total:
            total = f"All tools that are on take {self._total:,} tokens of every prompt."
            parts.append(Content(total))
        if stderr := shown(state.stderr).strip():
            tail = "\n".join(stderr.split("\n")[-STDERR_LINES:])
            parts.append(Content.assemble(("Last on its stderr:\n", "$text-muted"), tail))
        return Content("\n\n").join(parts)

    def _of_tool(self, tool: Tool) -> Content:
        off = self._host.is_off(tool.server, tool.name)
        state = "off: from the next turn on the model does not have it" if off else "on"
        cost = self._costs.get((tool.server, tool.name))
        words = [state, f"{cost:,} tokens of every prompt" if cost else ""]
        verdict = self._verdict(tool)
        words.append(RULES[verdict.decision] if verdict else "")
        parts = [Content(" · ".join(filter(None, words)))]
        if verdict is not None and verdict.diff:
            parts.append(Content(shown(verdict.why)).stylize("$text-warning"))
            parts.append(_change(verdict.diff))
        parts.append(Content(shown(tool.description)))
        schema = json.dumps(tool.parameters, indent=2, ensure_ascii=False)
        parts.append(Content(shown(schema)).stylize("$text-muted"))
        return Content("\n\n").join(parts)

    # --- what can be done ---

    def choose(self, row: str) -> None:
        server, _, name = row.partition(SERVER)
        own = [t.name for t in self._tools if t.server == server and name in ("", t.name)]
        if not own:
            self._host.reconnect(server)
        on = all(self._host.is_off(server, tool) for tool in own)
        for tool in own:
            self._host.switch(server, tool, on=on)
        self._look()
        self.fill()

    def action_reconnect(self) -> None:
        if (row := self.chosen) is not None:
            self._host.reconnect(row.partition(SERVER)[0])
            self._again()

    def action_log_in(self) -> None:
        name = (self.chosen or "").partition(SERVER)[0]
        config = self._host.config(name)
        if config is None or config.url is None or config.problem:
            self.notify("Only a server over HTTP wants a login.", severity="warning")
        else:
            self._say(name, "Asking the server for a login …")
            self.app.run_worker(self._log_in(name))

    async def _log_in(self, name: str) -> None:
        """It goes on when the room is left."""
        from tools.mcp.oauth import LoginFailed

        def show(page: str) -> None:
            self._say(name, f"Log in with your browser: {shown(page)}")

        try:
            await self._host.log_in(name, show)
            self._say(name, "You are logged in.")
        except (LoginFailed, OSError) as error:
            self._say(name, shown(str(error)))

    def _say(self, name: str, text: str) -> None:
        self._page[name] = text
        if self.is_attached:
            self.show_details()
        else:
            self.app.notify(text, markup=False)


def _change(diff: str) -> Content:
    shades = {"added": "$text-success", "removed": "$text-error", "faint": "$text-muted"}
    return Content.assemble(*((text, shades.get(style, "")) for text, style in changes(diff)))


def _has(search: str, *texts: str) -> bool:
    return search.lower() in "\n".join(texts).lower()


def _count(tools: int) -> str:
    return f"{tools} tool{'' if tools == 1 else 's'}"
