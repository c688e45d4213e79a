"""Starts MCP servers in the sandbox: they read, write and reach what their settings name."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import AgentError
from agent.util import private_files
from agent.util.programs import require_program, search_path
from agent.util.temporary_folders import process_folder
from tools.audit import AuditLog
from tools.config.named_files import NamedFiles, named_paths
from tools.config.servers import ServerConfig
from tools.sandbox import isolation
from tools.sandbox.control import SupervisorLink
from tools.sandbox.guard import CommandGuard, RootGuard
from tools.sandbox.isolation import NETWORK_ISOLATION, NetworkAccess
from tools.sandbox.protection import Protection

NPM_HOSTS, PYPI_HOSTS = ("registry.npmjs.org",), ("pypi.org", "files.pythonhosted.org")
"""Where ``npx`` and ``uvx`` get packages: settings that name others are not seen in the sandbox."""


class SandboxError(AgentError, OSError):
    """A server cannot be started in the sandbox; ``strerror`` says why."""


@dataclass(slots=True)
class ServerSandbox:
    """Settings that the sandboxes of one host's servers share."""

    root: Path = field(default_factory=Path.cwd)
    """The folder that the person works in, without links."""
    homes: Path | None = None
    """Below it each server has its home, which stays; None: a temporary folder."""
    audit: AuditLog = field(default_factory=lambda: AuditLog(None))
    named_files: Callable[[], NamedFiles] = NamedFiles
    """Files that no server may change, even below writable folders (`RootGuard`)."""
    contacts: dict[str, dict[str, str]] = field(default_factory=dict)
    """By server: the hosts that it has reached, or why they were refused."""

    def home(self, config: ServerConfig) -> Path:
        """Return the home of a server, which exists; a folder's servers have others in each folder."""
        place = str(self.root) if config.from_project else ""
        digest = hashlib.sha256(f"{config.name}\0{place}".encode()).hexdigest()[:16]
        folder = (self.homes or process_folder() / "mcp-homes") / digest
        private_files.make_folder(folder)
        return folder.resolve()


class SandboxedServer:
    """One run of a server in the sandbox."""

    def __init__(self, config: ServerConfig, shared: ServerSandbox) -> None:
        self._config, self._shared = config, shared
        self.link = SupervisorLink()
        self.home = shared.home(config)
        self.start_folder = Path(config.cwd or config.start_folder or shared.root).resolve()
        self._guards: list[CommandGuard] = []

    def command(self) -> list[str]:
        """Return the command line; blocks. Raises OSError."""
        config, best = self._config, isolation.best_isolation()
        assert config.sandbox is not None
        if not best.ok:
            raise SandboxError(0, f"there is no sandbox here: {best.detail}")
        hosts = config.sandbox.hosts
        if config.sandbox.packages:
            hosts += NPM_HOSTS if config.runs_package else PYPI_HOSTS
        network = NetworkAccess(bool(hosts), hosts)
        if network.hosts and best.name != NETWORK_ISOLATION:
            raise SandboxError(0, f"its sandbox reaches hosts with {NETWORK_ISOLATION} only")
        program = require_program(config.command)
        protection = self._protect(writable := [*self._writable()])
        access = isolation.CommandAccess(
            self.home,
            self.start_folder,
            self.home,
            protection=protection,
            network=network,
            control=self.link.descriptor,
            long_running=True,
            readable=[*self._readable(program)],
            writable=writable,
        )
        return isolation.shell_command(best.name, [program, *config.args], access)

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """Return the variables of the server: none of the person's but those of its settings, which are
        set within the sandbox: some (``LD_PRELOAD``) make any program run code."""
        own = isolation.environment(self.home, programs=True)
        path = {"PATH": f"{search_path()}:{own['PATH']}"}
        set_inside = {f"{isolation.SET_INSIDE}{name}": text for name, text in variables.items()}
        return own | path | set_inside

    def follow(self) -> None:
        """Note what it reaches, once it has started."""
        name = self._config.name
        contacts = self._shared.contacts.setdefault(name, {})

        def on_contact(contact: dict[str, object]) -> None:
            host, why = self._shared.audit.record_contact(name, contact, "its server")
            contacts[host] = why

        self.link.follow(on_contact)

    def end(self) -> None:
        """Undo what must not stay of what it wrote; blocks. It has ended by now."""
        for guard in self._guards:
            guard.end()
            for note in guard.notes:
                self._shared.audit.record(self._config.name, "files", note, decision="refused")

    def _writable(self) -> Iterator[Path]:
        assert self._config.sandbox is not None
        for text in self._config.sandbox.write:
            path = Path(text).expanduser()
            path = (path if path.is_absolute() else self._shared.root / path).resolve()
            if not path.exists():
                raise SandboxError(0, f"it is to write {path}, which does not exist")
            self._check(path, "write")
            yield path

    def _check(self, path: Path, verb: str) -> None:
        """Raise SandboxError for a path that would give away too much."""
        if Path.home().resolve().is_relative_to(path):
            raise SandboxError(0, f"it is to {verb} {path}, which holds your home folder")
        if self._config.from_project and not path.is_relative_to(self._shared.root):
            raise SandboxError(0, f"it is to {verb} {path}, outside of the folder that names it")

    def _readable(self, program: str) -> Iterator[str]:
        """Yield the program with what it needs, and the files and folders that settings name."""
        yield from map(str, _installation(Path(program)))
        config = self._config
        paths = [*named_paths(config, self.start_folder)]
        if config.from_project or config.cwd or config.start_folder is None:
            paths.append(self.start_folder)
        for path in paths:
            with suppress(SandboxError):  # the server itself says what it does not find
                self._check(path.resolve(), "read")
                yield from {str(path), str(path.resolve())}

    def _protect(self, writable: list[Path]) -> Protection:
        """Return what must not be written in these folders, as from a command; raises SandboxError."""
        parts = []
        for folder in writable:
            if folder.is_dir():
                guard = RootGuard(folder, isolation.own_paths())
                guard.named_files = self._shared.named_files
                try:
                    self._guards.append(guard.begin(changes_git=False))
                except Exception as error:
                    raise SandboxError(0, str(error)) from None
                parts.append(self._guards[-1].protection)
        return Protection(
            [path for part in parts for path in part.read_only],
            [path for part in parts for path in part.pinned],
            [path for part in parts for path in part.unreadable],
            {path: known for part in parts for path, known in part.identities.items()},
        )


def _installation(program: Path) -> Iterator[Path]:
    """Yield what a program is made of, as far as it is not of the system: itself, what its links lead
    to, a virtual environment, packages of Node.js, and what uvx starts."""
    for path in dict.fromkeys((Path(os.path.abspath(program)), program.resolve())):  # noqa: PTH100
        yield path
        prefix = path.parent.parent
        if (prefix / "pyvenv.cfg").is_file() or (prefix / "lib" / "node_modules").is_dir():
            yield from (prefix / name for name in ("bin", "lib", "lib64", "share", "pyvenv.cfg"))
        for folder in path.parents:
            if folder.name == "node_modules":
                yield folder
        if path.name == "uvx":
            yield path.with_name("uv")
