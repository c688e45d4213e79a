"""The built-in server ``shell``: runs a command in a sandbox (gpt-oss's ``container.exec``)."""

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools import builtin_server
from tools.audit import AuditLog
from tools.builtin.files.patch import rebase_paths
from tools.builtin.files.server import FilesServer
from tools.builtin.shell.process import BackgroundCommand, BackgroundCommands, SandboxedCommand
from tools.builtin_server import ExtraPermission, StructuredText, ToolError, object_schema
from tools.policy.commands import SHELLS, command_requirements, display_line
from tools.policy.rules import OnceOnlyError, command_rule, reach_requirements
from tools.sandbox import isolation as sandbox
from tools.sandbox.guard import SNAPSHOT_SECONDS, CommandGuard, RootGuard
from tools.sandbox.isolation import NETWORK_ISOLATION, Isolation, NetworkAccess, ResourceLimits
from tools.types import Access, OnOutput, Requirement, Tool

MAX_HEAD_CHARS, MAX_TAIL_CHARS = 1_000_000, 100_000
"""Beginning and end of a command's output that are returned; what is between is dropped."""
MIN_TIMEOUT_SECONDS = 1.0
"""Time that every command has, whatever timeout the model asks for."""
MAX_HOSTS, MAX_CONTACTS = 20, 1000
NO_NETWORK = NetworkAccess()
MAX_NAMED_PATHS = 5
"""Read-only paths that are named to the model when a command failed with one."""
FIRST_READ_SECONDS = 1.0
"""Time to wait for output of a command in the background, unless the call sets one."""
_HERE_PATCH = re.compile(
    r"""apply_?patch\s*<<-?\s*(['"]?)(?P<end>\w+)\1\s*\n(?P<patch>.*)\n(?P=end)""", re.DOTALL
)


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


class ShellServer(builtin_server.BuiltinServer):
    """The server ``shell``: commands write the root only, reach only allowed networks, and leave no
    process beyond their call, or their conversation."""

    name = "shell"
    alias = "shell"
    default_tools: Sequence[str] = ()
    keeps_tool_approvals = False
    tools: Sequence[Tool] = (
        Tool(
            "shell", "exec",
            "Run a command and give its output. It can write the working folder,"
            " has no network unless it names it, and nothing that it starts runs on after it,"
            " unless in the background. It cannot write .git.",
            object_schema(
                ["cmd"],
                cmd=_texts('The program and its arguments, e.g. ["bash", "-lc", "ls"]'),
                workdir={"type": "string", "description": "Where to run it"},
                timeout={"type": "integer", "description": "In milliseconds"},
                changes_git=_flag("Whether it may write .git, e.g. to commit: asks the user"),
                network=_texts('Hosts to reach, e.g. ["wheels.example"]; "loopback": own ports'),
                background=_flag("Whether it runs on after the call: gives its id"),
            ),
            model_name="container.exec",
        ),
        Tool("shell", "read", "Wait for new output of a command in the background, and give it.",
             object_schema(["id"], id="string", timeout="integer"), read_only=True),
        Tool("shell", "write", "Write to the stdin of a command in the background; give its new"
             " output.", object_schema(["id", "text"], id="string", text="string")),
        Tool("shell", "stop", "Stop a command in the background.", object_schema(["id"], id="string")),
    )  # fmt: skip

    def __init__(
        self,
        root: Path | None = None,
        *,
        timeout: float = 120.0,
        limits: ResourceLimits | None = None,
        isolation: Isolation | None = None,
        files: FilesServer | None = None,
        min_timeout: float = MIN_TIMEOUT_SECONDS,
        audit: AuditLog | None = None,
        snapshot_seconds: float = SNAPSHOT_SECONDS,
        network: NetworkAccess = NetworkAccess(),
    ) -> None:
        """``root``: None: the working folder. ``timeout``, ``min_timeout``: seconds of a command.
        ``isolation``: None: the best that works. ``files``: applies patches (None: one of its own).
        ``snapshot_seconds``: for each look at all files. ``network``: reached without a question."""
        self.root = (root or Path.cwd()).resolve()
        self._timeout, self._min_timeout = timeout, min_timeout
        self.limits = limits or ResourceLimits()
        self._isolation = isolation
        self.files = files or FilesServer(self.root)
        self.audit = audit or AuditLog(None)
        self.network = network
        self.background = BackgroundCommands()
        self.contacts: dict[str, str] = {}
        """The hosts that commands have reached or tried to reach, with why those were refused."""
        self.guard = RootGuard(self.root, sandbox.own_paths(), snapshot_seconds)

    def rule_verbs(self, tool: Tool) -> Sequence[str]:
        return () if tool.read_only else ("run", "write", "reach", "type")

    def is_safe(self, name: str) -> bool:
        """Return whether a call does not let a command do more: one can change the root folder."""
        return name in ("read", "stop")

    def access(self, offered: Collection[str]) -> Access:
        self._isolation = self._isolation or sandbox.best_isolation()
        if self.problem() is not None:
            return Access()
        if self._isolation.name == NETWORK_ISOLATION:
            network = "with ports of its own" if self.network.loopback else "without network"
            hosts = ", ".join(self.network.hosts)
            reach = f"{hosts}, by commands; other hosts after a question" if hosts else ""
        else:
            network, reach = f"without network (limited: it needs {NETWORK_ISOLATION})", ""
        return Access(
            read=f"files below {self.root} and the system's programs, by commands",
            change=f"files below {self.root}, by commands",
            run=f"commands in a sandbox ({self._isolation.name}) {network}",
            reach=reach,
            reached=tuple(
                f"{host}, by commands" + (f": refused, {why}" if why else "")
                for host, why in self.contacts.items()
            ),
            running=tuple(self.running().values()),
        )

    def problem(self) -> str | None:
        if self.root == Path(self.root.anchor) or not self.root.is_dir():
            return f"needs a folder as its root, not {self.root}; choose one with --root"
        if self._isolation is not None and not self._isolation.ok:
            return f"is not available: {self._isolation.detail}"
        return None

    def extra_permissions(self, name: str, arguments: dict[str, Any]) -> list[ExtraPermission]:
        if name != "exec":
            return self._input_permissions(arguments) if name == "write" else []
        if patch := self._patch_arguments(arguments):
            return self.files.extra_permissions("apply_patch", patch)
        extras = []
        if arguments.get("changes_git") is True:
            reason = "this command may change git's data, also what git runs later"
            extras.append(ExtraPermission("changes_git", reason))
        with contextlib.suppress(ToolError):  # the call fails with it
            network, commands = self._network(arguments), list[str]()
            with contextlib.suppress(OnceOnlyError):
                needs = [need.rule for need in self.requirements(name, arguments) or ()]
                commands = [rule for rule in needs if rule.startswith("run ")]
            if "loopback" in (arguments.get("network") or ()) and not self.network.loopback:
                reason = "this command may open ports of its own sandbox"
                extras.append(ExtraPermission("network", reason, (Requirement("reach loopback"),)))
            extras += _host_permissions(network.hosts, commands, self.network.hosts)
        return extras

    def _input_permissions(self, arguments: dict[str, Any]) -> list[ExtraPermission]:
        """Return what a text for a command in the background could be sent to."""
        try:
            entry = self._background_command(arguments)
            commands = [command_rule(entry.command.words, prefix=False)] if entry.command else []
        except (ToolError, OnceOnlyError):
            return []
        return _host_permissions(entry.network.hosts, commands, entry.network.hosts)

    def _background_command(self, arguments: dict[str, Any]) -> BackgroundCommand:
        return self.background.find(arguments["id"], builtin_server.conversation_id.get())

    def _network(self, arguments: dict[str, Any]) -> NetworkAccess:
        named = arguments.get("network") or []
        has_isolation = self._isolation is not None and self._isolation.name == NETWORK_ISOLATION
        if not named:
            return replace(NO_NETWORK, loopback=self.network.loopback and has_isolation)
        from tools.networks import LOOPBACK, HostError, HostRule

        if not has_isolation:
            raise ToolError(f"commands reach no network here: it needs {NETWORK_ISOLATION}")
        if len(named) > MAX_HOSTS:
            raise ToolError(f"network may name {MAX_HOSTS} hosts")
        try:
            hosts = [str(HostRule.parse(host)) for host in named if host != LOOPBACK]
        except HostError as error:
            raise ToolError(f"network: {error}") from None
        return NetworkAccess(loopback=True, hosts=tuple(dict.fromkeys(hosts)))

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        if name != "exec":
            return f"{self._background_command(arguments).description}\n{arguments.get('text', '')}"
        if patch := self._patch_arguments(arguments):
            return self.files.preview("apply_patch", patch)
        line = display_line([str(word) for word in arguments["cmd"]])
        return f"{self._folder(arguments.get('workdir') or '.')}$ {line}"

    def requirements(self, name: str, arguments: dict[str, Any]) -> list[Requirement] | None:
        if name == "write":
            return [_input_requirement(self._background_command(arguments))]
        if name != "exec":
            return None
        if patch := self._patch_arguments(arguments):
            return self.files.requirements("apply_patch", patch)
        folder = self._folder(arguments.get("workdir") or ".")
        return command_requirements(arguments["cmd"], folder, self.root)

    async def start(self) -> None:
        self._isolation = self._isolation or await asyncio.to_thread(sandbox.best_isolation)

    async def close(self) -> None:
        """End the commands in the background; others end with their call."""
        await self.background.close()

    def running(self) -> dict[str, str]:
        return {entry.id: entry.description for entry in self.background.listed()}

    async def stop_running(self, id: str) -> bool:
        entry = next((each for each in self.background.listed() if each.id == id), None)
        if entry is not None:
            await self.background.stop(entry)
        return entry is not None

    def end_conversation(self, conversation: str, successor: str | None) -> None:
        self.background.end_conversation(conversation, successor)

    async def call(self, name: str, arguments: dict[str, Any]) -> str | StructuredText:
        """Run a command, or apply a patch; read, write to or stop one in the background."""
        if name != "exec":
            return await self._call_background(name, arguments)
        if patch := self._patch_arguments(arguments):
            return await self.files.call("apply_patch", patch)
        await self.start()
        if problem := self.problem():
            raise ToolError(f"shell {problem}")
        words = arguments["cmd"]
        if not words or any("\0" in word for word in words):
            raise ToolError("cmd must name a program")
        folder = self._folder(arguments.get("workdir") or ".")
        network, is_background = self._network(arguments), arguments.get("background") is True
        changes_git = arguments.get("changes_git") is True
        if is_background and changes_git:
            raise ToolError("a command in the background cannot have changes_git")
        guard, step = await self._begin(changes_git=changes_git)
        if is_background:
            return await self._start_background(folder, guard, network, arguments, step)
        output, ended = CommandOutput(builtin_server.output_listener.get()), ""
        command = self._new_command(words, output.add)
        try:
            await command.start(self._line(command, folder, guard, network), folder)
            limit = self._timeout * 1000
            seconds = min(arguments.get("timeout", limit), limit) / 1000
            seconds = max(seconds, self._min_timeout)
            is_done = await command.wait(seconds)
            await asyncio.shield(command.end())
            ended = command.exit_line if is_done else f"stopped after {seconds:g} s"
        finally:
            if not ended:
                await asyncio.shield(command.end())
            await asyncio.shield(asyncio.to_thread(self._end, guard, step))
            details = {"changes": guard.changes, "notes": guard.notes}
            self.audit.record(self.name, name, json.dumps(arguments), **details)
            if not ended:  # interrupted: there will not be a result that could name it
                output.notify([*_listed_changes(guard.changes), *guard.notes])
        notes = [*guard.notes, *self._explain_refusal(guard, output.text()), *command.refused]
        ended, structured = "\n".join([ended, *notes]), {"changes": guard.changes}
        if not is_done:
            raise ToolError(ended, output.text(), structured)
        return StructuredText(f"{output.text()}{ended}", structured)

    async def _begin(self, *, changes_git: bool) -> tuple[CommandGuard, int | None]:
        """Look at the root before a command. Raises ToolError."""

        def begin() -> tuple[CommandGuard, int | None]:
            guard = self.guard.begin(changes_git=changes_git)
            try:
                return guard, self.files.journal.begin(self.name)
            except OSError:  # as on a full disk: a command runs all the same
                return guard, None

        beginning = asyncio.create_task(asyncio.to_thread(begin))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:  # else later changes would count as the command's
            await asyncio.to_thread(self._end, *await beginning)
            raise

    def _end(self, guard: CommandGuard, step: int | None) -> None:
        try:
            guard.end()
        finally:
            with contextlib.suppress(OSError):
                self.files.journal.end(step)

    def _new_command(self, words: Sequence[str], on_output: OnOutput) -> SandboxedCommand:
        return SandboxedCommand(words, on_output, lambda contact: self.note_contact(contact, words))

    def _line(
        self, command: SandboxedCommand, folder: Path, guard: CommandGuard, network: NetworkAccess
    ) -> list[str]:
        assert self._isolation is not None
        words, control = _without_login(list(command.words)), command.link.descriptor
        access = sandbox.CommandAccess(
            self.root, folder, command.home, self.limits, guard.protection, network, control
        )
        return sandbox.shell_command(self._isolation.name, words, access)

    # --- in the background ---

    async def _start_background(
        self, folder: Path, guard: CommandGuard, network: NetworkAccess, arguments: dict[str, Any],
        step: int | None,
    ) -> StructuredText:  # fmt: skip
        words = arguments["cmd"]
        conversation = builtin_server.conversation_id.get()
        entry = self.background.reserve(conversation, display_line(words), network)
        command = self._new_command(words, entry.add)
        try:
            line = self._line(command, folder, guard, network)
            await command.start(line, folder, takes_input=True)
        except BaseException:
            self.background.drop(entry)
            await asyncio.shield(command.end())
            await asyncio.to_thread(self._end, guard, step)
            raise
        entry.command = command

        async def clean_up() -> str:
            await asyncio.to_thread(self._end, guard, step)
            self.audit.record(self.name, "exec", json.dumps(arguments), notes=guard.notes)
            return "\n".join(guard.notes)

        self.background.follow(entry, clean_up)
        text = await self.background.read(entry, FIRST_READ_SECONDS)
        return StructuredText(text, {"id": entry.id, "running": not entry.ended})

    async def _call_background(self, name: str, arguments: dict[str, Any]) -> str:
        entry = self._background_command(arguments)
        if name == "stop":
            return await self.background.stop(entry)
        if name == "write":
            try:
                assert entry.command is not None
                await entry.command.write(arguments["text"])
            except OSError as error:
                raise ToolError(f"{entry.id} takes no input: {error}") from None
        seconds = arguments.get("timeout", FIRST_READ_SECONDS * 1000) / 1000
        return await self.background.read(entry, seconds)

    def note_contact(self, contact: dict[str, Any], words: Sequence[str]) -> None:
        host, why = self.audit.record_contact(self.name, contact, shlex.join(words))
        if len(self.contacts) < MAX_CONTACTS:
            self.contacts[host] = why

    def _explain_refusal(self, guard: CommandGuard, output: str) -> list[str]:
        """Say what is read-only, if a command seems to have failed with it."""
        paths = guard.protection.read_only
        error = ("Read-only file system", "Permission denied")
        if not paths or not any(text in output for text in error):
            return []
        names = [str(Path(path).relative_to(self.root)) for path in paths[:MAX_NAMED_PATHS]]
        more = ", …" if len(paths) > len(names) else ""
        note = f"Commands cannot change {', '.join(map(json.dumps, names))}{more}; the files tools can,"
        note += " but for files of git (changes_git) and of this program."
        assert self._isolation is not None
        if self._isolation.name == "landlock":
            note += " Without bubblewrap, nothing can be created, renamed or deleted in the folders"
            note += " that hold these, only below their other folders; changes_git, which asks,"
            note += " allows it if they are git's."
        return [f"[{note}]"]

    def _patch_arguments(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the arguments of the files server's tool, whose root is its own; None: not a patch."""
        if (patch := _patch_in(arguments["cmd"])) is None:
            return None
        folder = self._folder(arguments.get("workdir") or ".")
        return {"input": rebase_paths(patch, folder) if folder != self.files.root.path else patch}

    def _folder(self, path: str) -> Path:
        folder = self.files.root.real(path)
        if not folder.is_dir():
            raise ToolError(f"no such folder: {path}")
        return folder


def _patch_in(words: Sequence[str]) -> str | None:
    """Return the patch if the command is gpt-oss's ``apply_patch``, which is not a program."""
    match words:
        case ["apply_patch" | "applypatch", text]:
            return text
        case ["bash" | "sh", "-lc" | "-c", line] if match := _HERE_PATCH.fullmatch(line.strip()):
            return match["patch"]
    return None


def _without_login(words: list[str]) -> list[str]:
    """Replace ``-lc`` by ``-c``: a login shell first reads files that it cannot reach here."""
    match words:
        case [program, "-lc", *rest] if Path(program).name in ("bash", "sh"):
            return [program, "-c", *rest]
    return words


def _host_permissions(
    hosts: Sequence[str], commands: Sequence[str], granted: Sequence[str]
) -> list[ExtraPermission]:
    """Return the permissions for commands (rules ``run …``) to reach hosts; ``granted``: those that
    need none until something was read."""
    if not hosts:
        return []
    from tools.networks import AllowedHosts, HostRule

    rules, allowed = [HostRule.parse(host) for host in hosts], AllowedHosts(granted)
    return [
        ExtraPermission(
            "network",
            f"this command may reach {rule}",
            reach_requirements(str(rule), commands),
            host=rule.name or str(rule),
            is_granted=allowed.covers(rule),
        )
        for rule in rules
    ]


def _input_requirement(entry: BackgroundCommand) -> Requirement:
    """Return the rule for texts that are written to a command; raises OnceOnlyError."""
    words = entry.command.words if entry.command else ()
    if not words or words[0] in SHELLS:
        raise OnceOnlyError("a shell does whatever it is written")
    return Requirement(command_rule(words, prefix=False).replace("run ", "type to ", 1))


def _listed_changes(changes: Mapping[str, Any]) -> list[str]:
    """Say which files an interrupted command has changed, in one line; none if it changed none."""
    kinds = [kind for kind in ("created", "modified", "deleted") if kind in changes]
    listed = [f"{kind} {', '.join(map(json.dumps, changes[kind]))}" for kind in kinds]
    if unknown := changes.get("unknown"):
        listed = [f"changed files are not known: {unknown}"]
    return [f"[until it was interrupted: {'; '.join(listed)}]"] if listed else []


class CommandOutput:
    """Collects a command's output and passes it on as it comes, but drops the middle of a long one."""

    def __init__(self, listener: OnOutput | None) -> None:
        self._listener = listener
        self._head: list[str] = []
        self._tail = ""
        self._head_room, self._dropped = MAX_HEAD_CHARS, 0

    def add(self, stream: str, text: str) -> None:
        head, rest = text[: self._head_room], text[self._head_room :]
        self._head_room -= len(head)
        if head:
            self._head.append(head)
            if self._listener is not None:
                self._listener(stream, head)
        if rest:
            tail = self._tail + rest
            self._tail = tail[-MAX_TAIL_CHARS:]
            self._dropped += len(tail) - len(self._tail)

    def notify(self, notes: Iterable[str]) -> None:
        """Pass lines on that are not the command's."""
        if self._listener is not None:
            for note in notes:
                self._listener("stderr", f"\n{note}")

    def text(self) -> str:
        """Return the output, ending with a newline unless it is empty."""
        note = f"\n[... {self._dropped:,} characters dropped ...]\n" if self._dropped else ""
        text = "".join([*self._head, note, self._tail])
        return text if not text or text.endswith("\n") else f"{text}\n"
