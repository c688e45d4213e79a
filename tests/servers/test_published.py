"""The list of published servers is well-formed, and docs/mcp-servers.md has each of them."""

from pathlib import Path

from tests.servers.__main__ import PAGE, published, quoted
from tools.config.entry import read_entry
from tools.config.servers import NODE_RUNNERS

SERVERS = published()


def test_published_entries_are_valid_and_name_their_package() -> None:
    for server in SERVERS:
        for sandbox in (False, True, server.sandbox):
            config = read_entry(server.title, server.entry(sandbox), {"workspaceFolder": "/w"})
            assert not config.ignored
            assert config.command in ("npx", "uvx")
            assert config.runs_package == (config.command in NODE_RUNNERS)
        assert any(server.package in word for word in config.args), server.title


def test_published_calls_say_what_results_contain_or_what_they_need() -> None:
    for server in SERVERS:
        assert server.needs or len(server.calls) > 1, server.title
        for tool, arguments, text in server.calls:
            assert isinstance(tool, str) and isinstance(arguments, dict), server.title
            assert text or server.needs, server.title


def test_page_has_each_server_in_its_table_or_below() -> None:
    page = PAGE.read_text()
    missing = [
        server.title
        for server in SERVERS
        if f"| {server.title} | " not in page and f"- {server.title} (" not in page
    ]
    assert not missing, "make servers"


def test_quoted_is_one_line_without_paths_of_this_machine() -> None:
    error = f"ended with exit code 1; last on its stderr: a\nin {Path.home()}/x: `gone`\n"
    assert quoted(error) == "`in ~/x: 'gone'`"
    assert quoted("### Error\nNo such page") == "`### Error No such page`"
