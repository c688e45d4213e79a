"""Builds the host of all servers and the approval policy from the options of a command."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agent.util.programs import set_root
from tools.audit import AuditLog
from tools.builtin.browser.extraction import missing_package
from tools.builtin.browser.server import BrowserServer
from tools.builtin.browser.settings import BrowserSettings
from tools.builtin.files.journal import DEFAULT_UNDO_BYTES
from tools.builtin.files.server import FilesServer
from tools.builtin.python.server import PythonServer
from tools.builtin.shell.server import ShellServer
from tools.builtin.skills import Skill, SkillsServer
from tools.builtin_server import BuiltinServer, ToolError
from tools.config.file import McpFile, folder_environment, own_servers, read_file, read_servers
from tools.config.named_files import NamedFiles, rule_files, server_files
from tools.config.servers import ConfigError, ServerConfig, merge, parse_server
from tools.demo.settings import demo_servers
from tools.mcp.host import Host
from tools.policy.approval_store import ApprovalStore
from tools.policy.approvals import Policy, parse_rules
from tools.policy.project import approved_servers, find_project
from tools.run_later import holds_home
from tools.sandbox.isolation import NetworkAccess, own_paths
from tools.selection import select_servers, unselected_names
from tools.types import Tool, ToolResult


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The host and the policy that a turn calls tools with."""

    host: Host
    policy: Policy


@dataclass(frozen=True, slots=True)
class ToolboxOptions:
    """The choices of a toolbox, those of the command line by the names of its options."""

    tools: str = "all"
    mcp_config: Sequence[Path] = ()
    mcp: Sequence[str] = ()
    demo_tools: bool = False
    approve: str = ""
    root: Path | None = None
    other_roots: Sequence[Path] = ()
    """Roots of other toolboxes of this process: no program is taken from them either."""
    skills: Sequence[Skill] = ()
    client_servers: Sequence[ServerConfig] = ()
    """Servers that an editor brings; those with names of the person's own are left out."""
    allow_unsandboxed: bool = False
    browser: BrowserSettings | None = None
    network: NetworkAccess | None = None
    max_result_chars: int = 32_000
    results_folder: Path | None = None
    work_folder: Path | None = None
    """The folder of built-in servers; None: a temporary one."""
    undo_folder: Path | None = None
    """The folder of what changes of files are taken back with; None: a temporary one."""
    undo_bytes: int = DEFAULT_UNDO_BYTES
    server_homes: Path | None = None
    """The folder of servers in the sandbox."""
    user_config: Path | None = None
    approvals_file: Path | None = None
    """As ``audit_file`` and ``credentials_file``: None: nothing is stored."""
    audit_file: Path | None = None
    credentials_file: Path | None = None
    own_folders: Sequence[Path] = ()
    """This program's, which no tool may change."""
    trust_project: bool | str = False
    allow_home: bool = False


def build_toolbox(options: ToolboxOptions = ToolboxOptions()) -> Toolbox:
    """Build a toolbox and start nothing. Raises ConfigError. Precedence of servers with the same name:
    ``mcp``, ``mcp_config``, ``user_config``, a built-in one."""
    folder = (options.root or Path.cwd()).resolve()
    set_root(folder, *options.other_roots)
    store, audit = ApprovalStore(options.approvals_file, folder), AuditLog(options.audit_file)
    work, own = options.work_folder, [*options.own_folders, *own_paths()]
    files = FilesServer(
        options.root,
        undo_folder=options.undo_folder,
        own_folders=own,
        undo_bytes=options.undo_bytes,
    )
    browser = BrowserServer(options.browser, work_folder=work and work / "pages")
    python = PythonServer(
        allow_unsandboxed=options.allow_unsandboxed, work_folder=work and work / "python"
    )
    network = options.network or NetworkAccess()
    shell = ShellServer(options.root, files=files, audit=audit, network=network)
    builtins: list[BuiltinServer] = [python, files, shell, browser]
    builtins += [SkillsServer(options.skills)] if options.skills else []
    user = None
    if options.user_config and options.user_config.exists() and options.tools != "none":
        user = read_file(options.user_config, folder_environment(folder))
    servers = _merge_servers(options, user, builtins, store)
    selected = select_servers(options.tools, servers)
    if any(server.builtin is browser for server in selected) and (text := missing_package()):
        raise ConfigError(text)
    if holds_home(folder) and any(map(_changes_root, selected)):
        _require_home_allowed(folder, store, options.allow_home)
    sandbox = None
    if any(server.sandbox for server in selected):
        from tools.mcp.sandboxed import ServerSandbox  # most people have none

        sandbox = ServerSandbox(folder, options.server_homes, audit)
    host = Host(
        selected,
        max_result_chars=options.max_result_chars,
        results_folder=options.results_folder,
        roots=[folder],
        credentials_file=options.credentials_file,
        sandbox=sandbox,
    )
    host.unselected = unselected_names(servers, selected)
    rules, settings = parse_rules(options.approve, servers), user.approve if user else {}
    policy = Policy(rules, settings=settings, store=store, audit=audit)
    own_files = options.user_config, options.approvals_file, options.audit_file
    settings_files = [*filter(None, (*own_files, options.credentials_file)), *options.mcp_config]

    def list_named_files() -> NamedFiles:
        running = (host.server_config(state.name) for state in host.server_states())
        named = server_files(folder, [*servers, *filter(None, running)])
        paths = (*settings_files, *named.paths, *rule_files(folder, policy.granted_rules()))
        return NamedFiles(paths, named.modules, (*options.own_folders, *named.folders))

    shell.guard.named_files = files.named_files = list_named_files
    if sandbox is not None:
        sandbox.named_files = list_named_files
    browser.search_tools = host.find_tool, partial(_call_search_tool, Toolbox(host, policy))
    return Toolbox(host, policy)


def _merge_servers(
    options: ToolboxOptions, user: McpFile | None, own: list[BuiltinServer], store: ApprovalStore
) -> list[ServerConfig]:
    folder = (options.root or Path.cwd()).resolve()
    environment = folder_environment(folder)
    servers = merge(
        [ServerConfig(builtin.name, builtin=builtin) for builtin in own],
        demo_servers() if options.demo_tools else [],
        own_servers(user) if user else [],
        # Naming a file on the command line trusts its servers, as naming a command there does.
        *(
            [replace(server, trusted=True) for server in read_servers(path, environment)]
            for path in options.mcp_config
        ),
        [parse_server(option) for option in options.mcp],
    )
    if options.user_config is not None and options.tools != "none":
        taken = {server.name for server in servers} | {builtin.alias for builtin in own}
        found = approved_servers(find_project(folder), store, trust=options.trust_project)
        servers += [server for server in found if server.name not in taken]
    taken = {server.name for server in servers}
    return servers + [each for each in options.client_servers if each.name not in taken]


def _changes_root(server: ServerConfig) -> bool:
    if not isinstance(server.builtin, FilesServer | ShellServer):
        return False
    return any(server.offers(tool.name) and not tool.read_only for tool in server.builtin.tools)


def _require_home_allowed(folder: Path, store: ApprovalStore, allow: bool) -> None:
    """Raise ConfigError unless the person lets tools change their home folder; remembers it."""
    if store.allows_home():
        return
    if not allow:
        is_home = folder == Path.home().resolve()
        raise ConfigError(
            f"{folder} {'is' if is_home else 'holds'} your home folder, where commands and the files"
            " tools could change nearly all that is yours; choose a folder with --root, or allow it"
            " with --allow-home"
        )
    try:
        store.allow_home()
    except OSError as error:
        raise ConfigError(f"{store.path} cannot be written: {error.strerror}") from error


async def _call_search_tool(toolbox: Toolbox, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    """Call the search tool that the person configured, which answers what the policy would ask, except
    for a project's server; what it denies stays denied. Raises ToolError."""
    host, policy = toolbox.host, toolbox.policy
    config = host.server_config(tool.server)
    decision = policy.decide(tool, config).decision if config else "deny"
    text = json.dumps(arguments, ensure_ascii=False)
    if config is None or decision == "deny" or (decision == "ask" and config.from_project):
        policy.log_decision(tool, text, "refused", "policy", why="searching with it is not allowed")
        raise ToolError(f"searching with {tool.server}.{tool.name} is not allowed")
    policy.log_decision(tool, text, "allowed", "policy", why="it is named to search with")
    return await host.call(tool, arguments)
