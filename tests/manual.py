"""Prints the man page agent(1), made of the help texts; ``make man`` writes docs/agent.1."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from agent.cli.main import app

FILES = {
    "config.toml": "settings; agent config shows and changes them",
    "models.toml": "models, and changes to those of the catalog",
    "mcp.json": "MCP servers and their approval rules",
}
EXIT_CODES = {
    "0": "done",
    "1": "failed: the model cannot be loaded, or the engine died",
    "2": "wrong options or files, no such model, or a prompt longer than the context",
    "3": "a required server or tool is not available",
    "4": "cut off by a limit: output tokens, the context, or --timeout",
    "129, 130, 141": "the terminal is gone; interrupted; the reader of the output is gone",
}


def manual() -> str:
    """The page in roff, with the macros of man(7)."""
    command = get_command(app)
    lines = [
        '.TH AGENT 1 "" "agent" "User commands"',
        ".SH NAME",
        "agent \\- chat with local language models that call tools",
        ".SH SYNOPSIS",
        ".B agent\n[\\fIoptions\\fR]\n.br\n.B agent\n\\fIcommand\\fR [\\fIoptions\\fR]",
        ".SH DESCRIPTION",
        *_help(command),
        ".SH OPTIONS",
        *_options(command),
    ]
    for path, subcommand in _commands(command, "agent"):
        context = subcommand.context_class(subcommand, info_name=path)
        usage = " ".join(subcommand.collect_usage_pieces(context))
        lines += [f'.SH "{_escape(path.upper())}"', f".B {_escape(path)}\n{_escape(usage)}\n.PP"]
        lines += [*_help(subcommand), *_options(subcommand)]
    for title, table in (("FILES", FILES), ("EXIT STATUS OF AGENT RUN", EXIT_CODES)):
        lines.append(f'.SH "{title}"')
        lines += [f".TP\n.B {_escape(name)}\n{_escape(text)}" for name, text in table.items()]
    lines.append("agent doctor names the folders of these files and what works on this machine.")
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every subcommand with its full name, depth first."""
    for name, subcommand in getattr(command, "commands", {}).items():
        yield f"{path} {name}", subcommand
        yield from _commands(subcommand, f"{path} {name}")


def _help(command: Any) -> Iterator[str]:
    for text in (command.help, command.epilog):
        for paragraph in (text or "").split("\n\n"):
            yield _escape(" ".join(paragraph.split())) + "\n.PP"


def _options(command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=command.name)
    for parameter in command.get_params(context):
        if (record := parameter.get_help_record(context)) is not None:
            yield f".TP\n.B {_escape(record[0])}\n{_escape(record[1])}"


def _escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c < "\x80" else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text[:1] in (".", "'") else text


if __name__ == "__main__":
    print(manual(), end="")
