"""Files of other MCP clients that are not what they should be."""

from pathlib import Path

import pytest

from tools.config.importers import find_client_servers


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (".cursor/mcp.json", '{"mcpServers": ["a"]}', "its servers are not a JSON object"),
        (".claude.json", '{"projects": {"p": {"mcpServers": 3}}}', "are not a JSON object"),
        (".codex/config.toml", "mcp_servers = [1]", "its servers are not a TOML table"),
        (".cursor/mcp.json", '{ /* a\nb */ "a": "//", // c\n"b": }', "at line 3, column 6"),
    ],
)
def test_wrong_file_is_a_problem_in_a_sentence(
    tmp_path: Path, file: str, text: str, problem: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    (source,) = find_client_servers(tmp_path)
    assert source.entries == {} and problem in source.problems[0]
