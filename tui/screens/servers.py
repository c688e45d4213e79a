"""The screen of MCP servers and tools: their state, what they cost in tokens, on or off."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from textual.content import Content
from textual.widgets.option_list import Option

from agent.runtime.runtime import Runtime
from agent.turn.options import TurnOptions
from agent.turn.tool_search import SEARCH_NAME, prompt_tools
from tools.policy.approvals import Verdict
from tools.types import ServerState, Tool
from tui.keymap import bind_fixed
from tui.markdown.highlight import format_diff
from tui.screens.list_screen import ListScreen
from tui.util.format import display_text

POLL_SECONDS = 0.5
STDERR_LINES = 15
ID_SEPARATOR = "\t"
"""Stands in a row's id between the names of server and tool; the tool is empty in a server's row."""
STATUS_MARKS = {"ready": "●", "starting": "◌", "failed": "✗", "disabled": "○"}
STATUS_COLOURS = {
    "ready": "$success",
    "starting": "$warning",
    "failed": "$error",
    "disabled": "$text-muted",
}
DECISION_TEXTS = {"allow": "runs without asking", "ask": "asks first", "deny": "is denied"}


class ServersScreen(ListScreen[None]):
    """Lists servers and tools; a tool that is switched on or off is so from the next turn on."""

    HEADING = "MCP servers and tools"
    KEY_HINT = "Enter on or off · Ctrl-R reconnect · Ctrl-L log in · Esc back"
    EMPTY_TEXT = "No server is configured: agent mcp add NAME -- COMMAND, or agent mcp import."
    BINDINGS = bind_fixed({"ctrl+r": "reconnect", "ctrl+l": "log_in"}, priority=True)

    def __init__(self, runtime: Runtime, options: TurnOptions) -> None:
        super().__init__()
        self._runtime, self._host, self._options = runtime, runtime.host, options
        self._tool_tokens: dict[tuple[str, str], int] = {}
        self._total_tokens, self._is_searched = 0, False
        self._instructions: dict[str, str] = {}
        self._login_texts: dict[str, str] = {}
        self._states: dict[str, ServerState] = {}
        self._tools: list[Tool] = []
        self._snapshot: object = None  # all that the rows depend on, as it was last read

    def on_mount(self) -> None:
        self._read_state()
        self.set_interval(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        before = self._snapshot
        self._read_state()
        if self._snapshot != before:
            self.refresh_rows()

    def _read_state(self) -> None:
        """Read servers, tools and their costs, which are known once a model is loaded."""
        self._states = {state.name: state for state in self._host.server_states()}
        self._tools = list(self._host.all_tools())
        self._instructions = {tool.server: tool.server_instructions for tool in self._tools}
        offered = [(t.server, t.name) for t in self._host.tools()]
        form = self._runtime.format
        now = (list(self._states.values()), self._tools, offered, form)
        if now != self._snapshot and form is not None:
            tokens = self._options.tool_tokens(form, self._tools)
            self._tool_tokens = {
                (tool.server, tool.name): cost
                for tool, cost in zip(self._tools, tokens, strict=True)
            }
            declared = prompt_tools(self._options, form, self._host, self._runtime.context_length)
            self._is_searched = any(tool.server == SEARCH_NAME for tool in declared)
            self._total_tokens = self._options.total_tool_tokens(form, declared)
        self._snapshot = now

    def make_rows(self, search: str) -> Sequence[Option]:
        rows = []
        for state in self._states.values():
            tools = [tool for tool in self._tools if tool.server == state.name]
            matching = [t for t in tools if _matches(search, state.name, t.name, t.description)]
            row_id = f"{state.name}{ID_SEPARATOR}"
            if matching or _matches(search, state.name):
                rows.append(Option(self._server_label(state, tools), row_id))
            rows += [Option(self._tool_label(t), f"{row_id}{t.name}") for t in matching]
        return rows

    def _server_label(self, state: ServerState, tools: Sequence[Tool]) -> Content:
        on = [tool for tool in tools if not self._host.is_tool_disabled(tool.server, tool.name)]
        total = f"{len(tools)} tool{'' if len(tools) == 1 else 's'}"
        count = f"{len(on)} of {len(tools)} tools" if len(on) < len(tools) else total
        status = f"{state.status}: {state.error}" if state.error else state.status
        words = [
            "" if tools else display_text(status).split("\n")[0],
            count if tools else "",
            f"{len(state.skipped)} left out" if state.skipped else "",
            self._cost_text(on),
        ]
        mark = (f"{STATUS_MARKS[state.status]} ", STATUS_COLOURS[state.status])
        name = Content(display_text(state.name)).stylize("bold")
        description = " · ".join(filter(None, words))
        return Content.assemble(mark, name, "  ", (description, "$text-muted"))

    def _tool_label(self, tool: Tool) -> Content:
        off = self._host.is_tool_disabled(tool.server, tool.name)
        words = [self._cost_text([tool])]
        if (verdict := self._verdict(tool)) is not None and verdict.diff:
            words.append("changed since you allowed it")
        name = Content(display_text(tool.name)).stylize("$text-muted" if off else "")
        details = (" · ".join(filter(None, words)), "$text-muted")
        return Content.assemble(f"  {'☐' if off else '☑'} ", name, "  ", details)

    def _cost_text(self, tools: Sequence[Tool]) -> str:
        """Return how many prompt tokens the tools take; empty where it is not known."""
        if not self._tool_tokens or not tools:
            return ""
        return f"{sum(self._tool_tokens[tool.server, tool.name] for tool in tools):,} tok"

    def _verdict(self, tool: Tool) -> Verdict | None:
        config = self._host.server_config(tool.server)
        return self._runtime.policy.decide(tool, config) if config else None

    def row_details(self, row_id: str, search: str) -> Content:
        server, _, name = row_id.partition(ID_SEPARATOR)
        if not name:
            return self._server_details(self._states[server])
        tool = next((t for t in self._tools if (t.server, t.name) == (server, name)), None)
        return self._tool_details(tool) if tool else Content("The server no longer has it.")

    def _server_details(self, state: ServerState) -> Content:
        config = self._host.server_config(state.name)
        version = f"MCP {state.protocol}" if state.protocol else ""
        head = [state.status, state.transport, version, "required" if state.required else ""]
        ignored = ", ".join(config.ignored) if config else ""
        total = f"All tools that are on take {self._total_tokens:,} tokens of every prompt."
        if self._is_searched:
            total = f"The model searches for tools, which takes {self._total_tokens:,} tokens."
        lines = [
            (" · ".join(filter(None, head)), ""),
            (state.protocol_reason and f"This version: {state.protocol_reason}", "$text-muted"),
            (config.command_line if config else "", "$text-muted"),
            (state.error, "$text-error"),
            ("\n".join(state.skipped_lines), "$text-warning"),
            (ignored and f"Not understood in its settings: {ignored}", "$text-warning"),
            (self._login_texts.get(state.name), ""),
            (self._host.withheld, "$text-warning"),
            (total if self._total_tokens else "", ""),
        ]
        parts = [Content.styled(display_text(text), style) for text, style in lines if text]
        if instructions := self._instructions.get(state.name):
            form = self._runtime.format
            cost = f", {len(form.encode_text(instructions)):,} tokens" if form else ""
            label = (f"Its instructions{cost}:\n", "$text-muted")
            parts.append(Content.assemble(label, display_text(instructions)))
        if stderr := display_text(state.stderr).strip():
            tail = "\n".join(stderr.split("\n")[-STDERR_LINES:])
            parts.append(Content.assemble(("Last on its stderr:\n", "$text-muted"), tail))
        return Content("\n\n").join(parts)

    def _tool_details(self, tool: Tool) -> Content:
        off = self._host.is_tool_disabled(tool.server, tool.name)
        state = "off from the next turn on" if off else "on"
        cost = self._tool_tokens.get((tool.server, tool.name))
        where = "once it is found" if self._is_searched else "of every prompt"
        words = [state, f"{cost:,} tokens {where}" if cost else ""]
        verdict = self._verdict(tool)
        if verdict is not None:
            reason = "" if verdict.diff else display_text(verdict.reason)
            decision = DECISION_TEXTS[verdict.decision]
            words.append(f"{decision} ({reason})" if reason else decision)
        parts = [Content(" · ".join(filter(None, words)))]
        config = self._host.server_config(tool.server)
        if config and (rules := self._runtime.policy.tool_rules(tool, config)):
            lines = "\n".join(display_text(rule) for rule in rules)
            label = ("Allowed by rules (/approvals revokes them):\n", "$text-muted")
            parts.append(Content.assemble(label, lines))
        if verdict is not None and verdict.diff:
            parts.append(Content(display_text(verdict.reason)).stylize("$text-warning"))
            parts.append(_diff_content(verdict.diff))
        parts.append(Content(display_text(tool.description)))
        parameters = list(_parameter_lines(tool.parameters)) or [Content("It takes no arguments.")]
        parts.append(Content("\n").join(parameters))
        return Content("\n\n").join(parts)

    def choose_row(self, row_id: str) -> None:
        """Switch a tool, or all tools of a server; reconnect a server without tools."""
        server, _, name = row_id.partition(ID_SEPARATOR)
        own = [t.name for t in self._tools if t.server == server and name in ("", t.name)]
        if not own:
            self._host.reconnect(server)
        on = all(self._host.is_tool_disabled(server, tool) for tool in own)
        for tool in own:
            self._host.set_tool_enabled(server, tool, enabled=on)
        self._read_state()
        self.refresh_rows()

    def action_reconnect(self) -> None:
        if (row_id := self.highlighted_id) is not None:
            self._host.reconnect(row_id.partition(ID_SEPARATOR)[0])
            self._poll()

    def action_log_in(self) -> None:
        name = (self.highlighted_id or "").partition(ID_SEPARATOR)[0]
        config = self._host.server_config(name)
        if config is None or config.url is None or config.problem:
            self.notify("Only HTTP servers need a login.", severity="warning")
        else:
            self._show_login_text(name, "Asking the server for a login …")
            self.app.run_worker(self._log_in(name))

    async def _log_in(self, name: str) -> None:
        """Log in to a server; continues when the screen is closed."""
        from tools.mcp.login import LoginDialog, LoginError

        def show(page: str, code: str) -> None:
            self._show_login_text(name, f"Log in with your browser: {display_text(page)}")

        try:
            await self._host.log_in(name, LoginDialog(show))
            self._show_login_text(name, "Logged in.")
        except (LoginError, OSError) as error:
            self._show_login_text(name, display_text(str(error)))

    def _show_login_text(self, name: str, text: str) -> None:
        self._login_texts[name] = text
        if self.is_attached:
            self.show_details()
        else:
            self.app.notify(text, markup=False)


def _parameter_lines(schema: dict[str, Any], path: str = "") -> Iterator[Content]:
    """Yield name and type, then the purpose, of each parameter. ``path``: as ``options.sort[].``."""
    properties, required = schema.get("properties"), schema.get("required")
    required = required if isinstance(required, list) else []
    parts = properties.items() if isinstance(properties, dict) else ()
    for number, (name, part) in enumerate(parts):
        part = part if isinstance(part, dict) else {}
        if path or number:
            yield Content("")
        words = [_type_text(part), "required" if name in required else ""]
        words.append(f"default {json.dumps(part['default'])}" if "default" in part else "")
        details = display_text(" · ".join(filter(None, words)))
        full_name = display_text(f"{path}{name}")
        yield Content.assemble((full_name, "$accent"), "  ", (details, "$text-muted"))
        if description := part.get("description"):
            yield Content(display_text(str(description)))
        items = part.get("items")
        yield from _parameter_lines(part, f"{path}{name}.")
        if isinstance(items, dict):
            yield from _parameter_lines(items, f"{path}{name}[].")


def _type_text(schema: dict[str, Any]) -> str:
    """Describe a schema's type in a few words: ``string``, ``array of integer``, ``"a" or "b"``."""
    if isinstance(values := schema.get("enum"), list):
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)
    if isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
        return " or ".join(_type_text(choice) for choice in choices if isinstance(choice, dict))
    kind = schema.get("type", "any")
    if kind == "array" and isinstance(items := schema.get("items"), dict):
        return f"array of {_type_text(items)}"
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _diff_content(diff: str) -> Content:
    colours = {"added": "$text-success", "removed": "$text-error", "faint": "$text-muted"}
    return Content.assemble(*((text, colours.get(style, "")) for text, style in format_diff(diff)))


def _matches(search: str, *texts: str) -> bool:
    return search.lower() in "\n".join(texts).lower()
