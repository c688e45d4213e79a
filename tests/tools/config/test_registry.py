"""The MCP registry: what is found there, and what would be run for it."""

from typing import Any

import pytest

from tests.support.mcp_registry import serve_registry
from tools.config.registry import RegistryMatches, RegistryServer, fetch, installation, search
from tools.config.servers import ConfigError

STDIO = {"type": "stdio"}
NPM = {
    "registryType": "npm",
    "identifier": "@ada/notes",
    "version": "1.0.2",
    "transport": STDIO,
    "packageArguments": [
        {"type": "named", "name": "--root", "isRequired": True, "description": "its folder"},
        {"type": "named", "name": "--verbose"},
        {"type": "positional", "valueHint": "mode", "value": "stdio"},
    ],
    "environmentVariables": [
        {"name": "NOTES_KEY", "isRequired": True, "isSecret": True, "description": "your key"},
        {"name": "NOTES_LEVEL", "default": "info"},
        {"name": "NOTES_EXTRA"},
    ],
}
REMOTE = {
    "type": "streamable-http",
    "url": "https://{tenant}.example.org/mcp",
    "variables": {"tenant": {"isRequired": True, "description": "your tenant"}},
    "headers": [
        {
            "name": "Authorization",
            "value": "Bearer {token}",
            "variables": {"token": {"isRequired": True, "isSecret": True}},
        }
    ],
}


def entry_of(name: str, **data: Any) -> dict[str, Any]:
    return {"name": name, "version": "1.0.2", "description": f"About {name}", **data}


def listed(**data: Any) -> RegistryServer:
    return RegistryServer("org.example/x", "1.0.2", "", "active", data)


def test_search_names_and_descriptions() -> None:
    servers = (
        entry_of("org.example/notes", description="Notes for \x1b[31mAda"),
        entry_of("org.example/notes-old", status="deleted"),
        entry_of("org.example/weather"),
    )
    with serve_registry(*servers) as url:
        (notes,) = search(url, ["notes"], 20).servers
        assert (notes.name, notes.version) == ("org.example/notes", "1.0.2")
        assert "\x1b" not in notes.description
        for words in (["notes", "ADA"], ["notes ada"]):
            assert search(url, words, 20) == RegistryMatches([notes], False)
        assert search(url, ["notes", "eve"], 20) == RegistryMatches([], False)
        assert fetch(url, "org.example/notes", "1.0.2") == fetch(url, "org.example/notes") == notes
        for name, error in (("org.example/no", "no such server"), ("org.example/notes-old", "was")):
            with pytest.raises(ConfigError, match=error):
                fetch(url, name)
    with pytest.raises(ConfigError, match="cannot be reached"):
        search(url, ["notes"], 20)


def test_search_reads_all_pages_and_says_where_more_exist() -> None:
    servers = [entry_of(f"org.example/notes-{number}") for number in range(6)]
    with serve_registry(*servers, page_size=2) as url:
        every = search(url, ["notes"], 6)
        assert [server.name for server in every.servers] == [s["name"] for s in servers]
        assert not every.more
        assert search(url, ["notes"], 3) == RegistryMatches(every.servers[:3], True)
        assert search(url, ["notes", "notes-5"], 1) == RegistryMatches(every.servers[5:], False)
    with serve_registry(*servers, page_size=0) as url:  # a cursor that leads nowhere
        assert search(url, ["notes"], 6) == RegistryMatches([], True)


def test_installation_npm_package_with_inputs() -> None:
    made = installation(listed(packages=[{"registryType": "mcpb"}, NPM], remotes=[REMOTE]))
    assert made.entry == {
        "command": "npx",
        "args": ["-y", "@ada/notes@1.0.2", "--root", "${ROOT}", "stdio"],
        "env": {"NOTES_KEY": "${NOTES_KEY}", "NOTES_LEVEL": "info"},
    }
    assert made.variables == {"ROOT": "its folder", "NOTES_KEY": "your key"}


def test_installation_other_registries() -> None:
    def args(kind: str, identifier: str, **more: Any) -> list[str]:
        package = {"registryType": kind, "identifier": identifier, "transport": STDIO, **more}
        entry = installation(listed(packages=[package])).entry
        return [entry["command"], *entry["args"]]

    assert args("pypi", "notes", version="2.0") == ["uvx", "notes@2.0"]
    image = "docker.io/ada/notes:1.0"
    assert args("oci", image, environmentVariables=[{"name": "KEY", "isRequired": True}]) == [
        "docker", "run", "-i", "--rm", "-e", "KEY", image,
    ]  # fmt: skip
    assert args("oci", "ada/notes", version="1.0")[-1] == "ada/notes:1.0"
    assert args("nuget", "Ada.Notes", version="1.0") == ["dnx", "--yes", "Ada.Notes@1.0"]


def test_installation_remote_with_variables() -> None:
    for made in (
        installation(listed(remotes=[REMOTE])),
        installation(listed(packages=[NPM], remotes=[REMOTE]), remote=True),
    ):
        assert made.entry == {
            "type": "http",
            "url": "https://${TENANT}.example.org/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
        }
        assert made.variables == {"TENANT": "your tenant", "TOKEN": ""}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({}, "no package that can be run here"),
        ({"packages": [{"registryType": "mcpb", "transport": STDIO}]}, "only mcpb"),
        ({"packages": [{**NPM, "transport": {"type": "sse"}}]}, "only npm"),
        ({"packages": [NPM]}, "no package that can be run here"),
        ({"packages": [{**NPM, "identifier": "--eval=1"}]}, "not a package name"),
        ({"packages": [{**NPM, "version": "1 --eval"}]}, "not a package version"),
        (
            {"packages": [{**NPM, "environmentVariables": [{"name": "X", "value": "${HOME}"}]}]},
            "would take a variable of this machine",
        ),
        ({"remotes": [{"type": "sse", "url": "https://x/${SSH_KEY}"}]}, "would take a variable"),
        ({"remotes": [{"type": "sse", "url": "file:///etc/passwd"}]}, "not a server's address"),
        ({"remotes": "x", "packages": 3}, "no package"),
    ],
    ids=str,
)
def test_installation_refused(data: Any, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        installation(listed(**data), remote=data == {"packages": [NPM]})
