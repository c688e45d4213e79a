"""The page of what the model can do in this conversation, and what it has done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from textual.content import Content
from textual.widgets import Static

from agent.events import CodeInterpreterCallItem, Item, McpCallItem, WebSearchCallItem
from tui.screens.page import PageScreen
from tui.util.format import display_text

LATEST_CALLS = 10
MAX_CALL_CHARACTERS = 200


def calls_report(items: Iterable[Item]) -> dict[str, list[str]]:
    counts: Counter[str] = Counter()
    latest: list[str] = []
    for item in items:
        match item:
            case McpCallItem():
                name, text = f"{item.server_label}.{item.name}", item.arguments
            case CodeInterpreterCallItem():
                name, text = "python", item.code
            case WebSearchCallItem():
                name, text = "browser", " ".join(map(str, item.action.values()))
            case _:
                continue
        failed = " (failed)" if item.status == "failed" else ""
        counts[name] += 1
        latest.append(f"{name}{failed}  {' '.join(text.split())[:MAX_CALL_CHARACTERS]}")
    if not counts:
        return {"Done so far": ["called no tool"]}
    done = [f"{name}: {count} call{'' if count == 1 else 's'}" for name, count in counts.items()]
    return {"Done so far": done, "Latest calls": latest[-LATEST_CALLS:]}


class SafetyScreen(PageScreen):
    """Shows headings with their lines."""

    DEFAULT_CSS = "SafetyScreen .line { padding-left: 2; }"

    def __init__(self, report: Mapping[str, Sequence[str]], mcp_key: str) -> None:
        parts: list[Static] = []
        for heading, lines in report.items():
            parts.append(Static(Content.styled(heading, "bold $accent")))
            parts += [Static(display_text(line), markup=False, classes="line") for line in lines]
        hint = f"Esc back · {mcp_key} switches tools on and off"
        super().__init__("Capabilities of the model", hint, *parts)
