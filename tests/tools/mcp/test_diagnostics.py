"""Why a server cannot be used, in words, and what is advised."""

import sys

import pytest

from tests.support.hosts import MakeHost
from tests.support.waiting import HANG_SECONDS
from tools.config.servers import ServerConfig
from tools.mcp.connection import log_text
from tools.mcp.diagnostics import exit_hint, missing_command_hint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "lines"), [("sleep 600", range(35, 40)), ("exit 1", range(24, 40))]
)
async def test_describe_exit_quotes_last_lines_of_stderr(
    make_host: MakeHost, end: str, lines: range
) -> None:
    """The few last ones, or as many as a stack trace of one that ended may have."""
    code = f"for n in $(seq 0 39); do printf '%s\\n\\n%s\\n' $n $n >&2; done; {end}"
    seconds = 5.0 if end.startswith("sleep") else HANG_SECONDS
    host = make_host(
        ServerConfig("noisy", command="sh", args=("-c", code), startup_timeout_sec=seconds)
    )
    await host.start()
    await host.wait_started()
    error = host.server_states()[0].error or ""
    assert error.endswith("; last on its stderr: " + "\n".join(map(str, lines)))


@pytest.mark.parametrize(
    ("stderr", "hint"),
    [
        ("ImportError: cannot import name 'FastMCP' from 'mcp.server'", "uvx --with 'mcp<2'"),
        ("ModuleNotFoundError: No module named 'mcp.server.fastmcp'", "uvx --with 'mcp<2'"),
        ("AttributeError: 'Server' object has no attribute 'list_tools'", "uvx --with 'mcp<2'"),
        ("ModuleNotFoundError: No module named 'mcp'", "the mcp package is missing"),
        ("Error: BRAVE_API_KEY environment variable is required", "${BRAVE_API_KEY}"),
        ("Missing required environment variable: GITHUB_TOKEN\n    at main", "${GITHUB_TOKEN}"),
        ("KeyError: 'NOTION_TOKEN'", "${NOTION_TOKEN}"),
        ("SLACK_BOT_TOKEN is not set", "${SLACK_BOT_TOKEN}"),
        ("Please set PRESENT_KEY: it is required", ""),
        ("segmentation fault", ""),
    ],
)
def test_exit_hint_from_stderr(stderr: str, hint: str) -> None:
    advice = exit_hint(stderr, {"PRESENT_KEY": "x"}, "")
    assert hint in advice and bool(advice) == bool(hint)


def test_missing_command_hint_known_programs() -> None:
    assert "docs.astral.sh/uv" in missing_command_hint("/usr/bin/uvx")
    assert "nodejs.org" in missing_command_hint("npx")
    assert "args" in missing_command_hint("my-server --port 3")
    assert missing_command_hint("my-server") == ""


async def test_server_that_talks_on_stdout_named(make_host: MakeHost) -> None:
    code = "print('Welcome to my server!', flush=True)"
    host = make_host(ServerConfig("chatty", command=sys.executable, args=("-c", code)))
    await host.start()
    await host.wait_started()
    error = host.server_states()[0].error or ""
    assert "writes to stdout, which is for MCP's messages alone: 'Welcome to my server!'" in error


def test_log_text_of_any_data() -> None:
    assert log_text("hi") == log_text({"msg": "hi", "extra": None}) == "hi"
    assert log_text({"message": {"a": 1}}) == '{"message": {"a": 1}}'
    assert log_text([1, "ü"]) == '[1, "ü"]'
