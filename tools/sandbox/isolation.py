"""Runs scripts and commands where they can do no harm, with the best isolation that works here.

Each isolation is tried out once with a script that attempts to break out (``check.py``). The command
lines that are built here nest as follows (``supervise`` for shell commands only; bubblewrap and
sandbox-exec only if they are the isolation)::

    supervise.py ─▶ bwrap | sandbox-exec ─▶ confine.py (limits, Landlock, seccomp) ─▶ script | command
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent.util.programs import require_program
from agent.util.temporary_folders import process_folder
from tools.sandbox.protection import Protection

SANDBOX_FOLDER = Path(__file__).parent
PROBE_TIMEOUT_SECONDS = 15.0
NETWORK_ISOLATION = "bubblewrap"
"""The isolation that can lead a command to some hosts only. It gives each command an empty network;
Landlock filters by port only, not by host, and sandbox-exec only by ports that all users of the machine
share."""
EDITOR_VARIABLES = {
    "TERM": "dumb", "EDITOR": "false", "GIT_EDITOR": "false",
    "VIMINIT": " ".join(("autocmd VimEnter *", "if &term=='dumb'|cquit|endif")),
}  # fmt: skip
"""End programs that would wait for a person at a terminal. Vim reads keys from stderr where it has no
other input."""
SET_INSIDE = "AGENT_SET_"
"""A program gets variables of such names without this beginning (``confine.py``)."""
TOOLCHAIN_FOLDERS = (
    *(".cargo/bin", ".rustup", ".nvm/versions", ".local/share/fnm", ".volta/bin", ".volta/tools"),
    *(".pyenv", ".local/share/uv/python", ".local/share/uv/tools", ".local/bin", ".rbenv"),
    *(".local/share/mise/installs", ".asdf", ".sdkman/candidates", ".bun/bin", ".deno/bin"),
    "go/bin",
)
"""Where rustup, nvm, pyenv and others put programs, relative to the home folder; commands read these
folders, and nothing else there. None of them holds credentials; the folders around some of them do."""
TOOLCHAIN_VARIABLES = {
    "RUSTUP_HOME": ".rustup", "PYENV_ROOT": ".pyenv", "RBENV_ROOT": ".rbenv",
    "VOLTA_HOME": ".volta", "ASDF_DATA_DIR": ".asdf",
}  # fmt: skip
"""Variables by which programs find their folder where HOME is another one."""
OWN_NAMES = ("agent", "tools", "tui", "packaging", "models.toml", "pyproject.toml")
"""The packages that are imported, the catalog, and what an installation is made of."""
_COMMAND_READABLE = (
    "/etc/alternatives", "/etc/group", "/etc/nsswitch.conf", "/etc/gitconfig", "/etc/ssl/openssl.cnf",
    "/opt", "/etc/os-release", "/etc/lsb-release", "/etc/debian_version", "/etc/redhat-release",
    "/etc/fedora-release", "/etc/arch-release", "/etc/alpine-release", "/etc/SuSE-release",
)  # fmt: skip
"""Files that commands may read in addition to those that Python scripts may read."""
_NETWORK_READABLE = (
    *("/etc/hosts", "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf"),
    *("/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"),
)
"""Those that commands with a network may read: the names of this machine, and who signs for hosts."""
_PROCESS_FILES = (
    "auxv", "cgroup", "cmdline", "comm", "environ", "fd", "fdinfo", "io", "limits", "maps", "mountinfo",
    "mounts", "oom_score", "smaps", "smaps_rollup", "stat", "statm", "status",
)  # fmt: skip
_GUARANTEES = {
    "bubblewrap": "sees the system and Python read-only and its own folder, no home, no network, "
    "no other processes; starts none; memory, file size and CPU are limited",
    "landlock": "opens only the system and Python read-only and its own folder, no sockets, "
    "no signals to others, starts no processes (Landlock, seccomp, rlimits); file names and sizes "
    "elsewhere stay visible; memory, file size and CPU are limited",
    "sandbox-exec": "reads only the system and Python, writes only its own folder, no network, "
    "starts no processes; CPU is limited, memory is not",
}


@dataclass(frozen=True, slots=True)
class Isolation:
    """The mechanism that separates a script or command from this machine."""

    name: str
    """bubblewrap, landlock, sandbox-exec, or none."""
    detail: str
    """One sentence: its guarantees, or why there is none."""
    ok: bool


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of one script, or of one shell command with all of its processes."""

    memory: int = 4 << 30
    """Bytes of address space; of a command: of the memory that all its processes use."""
    file_size: int = 256 << 20
    """Bytes of one file."""
    cpu: int = 3600
    """Seconds of processor time; of a command: of each process."""
    processes: int = 256
    """Maximum number of processes of a command at a time; a script has only its own."""
    descriptors: int = 4096
    """Maximum number of open files, pipes and sockets of all processes of a command."""
    sockets: int = 384
    """Different sockets at a time: each takes up to 208 KiB of the kernel's, which no process owns.
    npm, cargo, git and pytest have a few, Node.js 8 for each of its child processes."""
    written_bytes: int = 4 << 30
    """Bytes that a command may add: to the file systems of the root and of its home, as far as their
    free space shows it, and to its home alone."""
    written_files: int = 200_000
    """Files and folders that it may add, counted in the same way."""


@dataclass(frozen=True, slots=True)
class NetworkAccess:
    """Network that a command may reach; by default none."""

    loopback: bool = False
    """Whether it may open ports, and connect to them, in a network of its own."""
    hosts: tuple[str, ...] = ()
    """Hosts of other machines, as `tools.networks.HostRule` reads them; includes ``loopback``."""

    @property
    def kind(self) -> str:
        """Its name in ``confine.py``."""
        return "hosts" if self.hosts else "loopback" if self.loopback else ""


def candidates() -> Sequence[str]:
    """Return the names of this platform's isolations, the best first."""
    return {"linux": ("bubblewrap", "landlock"), "darwin": ("sandbox-exec",)}.get(sys.platform, ())


@functools.cache
def best_isolation() -> Isolation:
    """Return the best isolation that works here. The first call tries each, for some 100 ms."""
    reasons: list[str] = []
    for name in candidates():
        reason = probe(name)
        if reason is None:
            passed_over = f" (not {'; '.join(reasons)})" if reasons else ""
            return Isolation(name, _GUARANTEES[name] + passed_over, True)
        reasons.append(f"{name}: {reason}")
    why = "; ".join(reasons) or f"none is known for {sys.platform}"
    return Isolation("none", f"no isolation works here ({why})", False)


def probe(name: str) -> str | None:
    """Run a script that tries to break out; return what is wrong, None if it could not."""
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        work_folder, secret = Path(folder, "work"), Path(folder, "secret")
        work_folder.mkdir()
        secret.write_text("x")
        try:
            process = subprocess.run(
                script_command(name, SANDBOX_FOLDER / "check.py", work_folder),
                input=json.dumps([str(secret), os.getpid()]) + "\n",
                env=environment(work_folder),
                cwd=work_folder,
                capture_output=True,
                text=True,
                timeout=PROBE_TIMEOUT_SECONDS,
                start_new_session=True,
            )
        except FileNotFoundError:
            return "not installed"
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines()
        return lines[-1] if lines else f"exit code {process.returncode}"
    try:
        escaped = json.loads(process.stdout)
    except ValueError:
        return "it gave no answer"
    return f"a script could {', '.join(escaped)}" if escaped else None


def environment(work_folder: Path, *, programs: bool = False) -> dict[str, str]:
    """Return all environment variables that a script gets; ``programs``: it may start some."""
    home, threads = str(work_folder), str(min(os.cpu_count() or 1, 4))
    path, more = ["/usr/local/bin", "/usr/bin", "/bin"], {}
    if programs:
        toolchains = find_toolchains()
        path = [*toolchains.path, *path, str(Path(sys.executable).parent)]
        more = EDITOR_VARIABLES | certificate_variables() | toolchains.variables
    more |= {"PATH": os.pathsep.join(path), "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
    more |= {"MPLBACKEND": "Agg", "MPLCONFIGDIR": f"{home}/.matplotlib"}
    # Each thread of these reserves address space, which is limited.
    return more | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}


@dataclass(frozen=True, slots=True)
class Toolchains:
    """The paths and variables with which commands run the compilers and interpreters of the user."""

    readable: tuple[str, ...]
    """Folders, absolute; of those that are links also what they lead to."""
    path: tuple[str, ...]
    """The entries of PATH that are in them."""
    variables: dict[str, str]


def find_toolchains() -> Toolchains:
    try:
        home = Path.home()
    except RuntimeError:  # no home folder
        return Toolchains((), (), {})
    folders = [home / name for name in TOOLCHAIN_FOLDERS if (home / name).is_dir()]
    readable = dict.fromkeys(path for f in folders for path in (str(f), os.path.realpath(f)))
    path = [
        entry
        for entry in os.environ.get("PATH", "").split(os.pathsep)
        if any(Path(entry).is_relative_to(folder) for folder in readable) and Path(entry).is_dir()
    ]
    variables = {
        name: os.environ.get(name, str(home / folder))
        for name, folder in TOOLCHAIN_VARIABLES.items()
        if (home / folder).is_dir()
    }
    return Toolchains(tuple(readable), tuple(path), variables)


def certificate_variables() -> dict[str, str]:
    """Return the person's variables that name a file of who signs for hosts."""
    names = (*("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
             *("PIP_CERT", "GIT_SSL_CAINFO"))  # fmt: skip
    values = {name: os.environ.get(name, "") for name in names}
    return {name: path for name, path in values.items() if path[:1] == "/" and Path(path).is_file()}


def script_command(
    name: str, script: Path, work_folder: Path, limits: ResourceLimits | None = None
) -> list[str]:
    """The command line that runs a Python script (absolute path), which may write to ``work_folder``
    only, in the isolation ``name``; ``none``: with resource limits only."""
    spec = _spec(limits or ResourceLimits()) | {"processes": 0}
    wrapper: list[str] = []
    match name:
        case "bubblewrap":
            # gpt-oss knows from its training that its files are in /mnt/data.
            link = ["--symlink", str(work_folder), "/mnt/data"]
            wrapper = _bubblewrap([*_readable(), str(script)], [work_folder], work_folder, link)
            spec["seccomp"] = "alone"
        case "landlock":
            spec |= _landlock(_readable(), [work_folder])
            spec["seccomp"] = "alone"
        case "sandbox-exec":
            wrapper = _sandbox_exec([work_folder], [script])
        case _ if name != "none":
            raise ValueError(name)
    return [*wrapper, *_confined(spec, str(script))]


@dataclass(frozen=True, slots=True)
class CommandAccess:
    """Access of a command in the sandbox; its processes are killed when it or its stdin ends."""

    root: Path
    """It is written to, except for what ``protection`` names."""
    start: Path
    """The working folder."""
    home: Path
    """It is written to, too."""
    limits: ResourceLimits = ResourceLimits()
    protection: Protection = field(default_factory=Protection)
    """It applies to ``readable`` and ``writable`` too."""
    network: NetworkAccess = NetworkAccess()
    """Bubblewrap alone can grant any."""
    control: int = 0
    """A descriptor, see ``supervise.py``, at whose end the processes are killed."""
    long_running: bool = False
    """It may run for days, so what others write to the disk does not count."""
    readable: Sequence[str] = ()
    writable: Sequence[Path] = ()

    def readable_paths(self) -> list[str]:
        """Return what it reads, folders before what is in them."""
        seen = [*_readable(), *_COMMAND_READABLE, *find_toolchains().readable]
        # Programs refuse a missing certificate.
        readable = {*self.readable, *certificate_variables().values()}
        for path in sorted(readable - set(seen)):
            if not any(path.startswith(f"{p}/") and not Path(p).is_symlink() for p in seen):
                seen.append(path)
        if self.network.kind:
            seen += [path for path in _NETWORK_READABLE if os.path.lexists(path)]
        return seen


def shell_command(name: str, argv: Sequence[str], access: CommandAccess) -> list[str]:
    """Return the command line that runs ``argv`` within the sandbox."""
    protection, network, writable = access.protection, access.network, access.writable
    root, home, long_running = access.root, access.home, access.long_running
    spec, seen = _spec(access.limits), access.readable_paths()
    if network.kind:
        if name != NETWORK_ISOLATION:
            raise ValueError(name)
        spec["network"] = network.kind
    wrapper: list[str] = []
    read_only: Sequence[str] | None = None
    match name:
        case "bubblewrap":
            options = ["--dir", str(access.start)] if long_running else []
            options += protection.bind_options()
            wrapper = _bubblewrap(seen, [home, root, *writable], access.start, options)
            spec |= {"seccomp": "network" if network.kind else "namespace"}
            spec["identities"] = protection.identities
        case "landlock":
            if protection.read_only and len(writable) > 1:
                raise OSError(0, "it may write one folder only, without bubblewrap")
            partly = protection.partly_writable(writable[0] if writable else root)
            whole = [path for path in (root, *writable) if str(path) not in partly]
            spec |= _landlock(seen, [home, *whole], partly)
            spec["landlock"]["hidden"] = protection.unreadable
            read_only = protection.read_only
            spec["seccomp"] = "landlock"
        case "sandbox-exec":
            more = "(allow process-fork) (allow signal (target same-sandbox))"
            wrapper = _sandbox_exec([home, root, *writable], [], more, protection)
        case _ if name != "none":
            raise ValueError(name)
    bounds = {**asdict(access.limits), "root": str(root), "home": str(home), "read_only": read_only}
    bounds |= {"hosts": network.hosts, "control": access.control, "long_running": long_running}
    return [*_python("supervise.py"), json.dumps(bounds), *wrapper, *_confined(spec, *argv)]


def own_paths() -> set[Path]:
    own = {SANDBOX_FOLDER.parent.parent.resolve() / name for name in OWN_NAMES}
    return own | {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}


def _python(script: str) -> list[str]:
    # -I: no PYTHON* variables, no user site, nothing imported from the current folder.
    return [sys.executable, "-I", "-B", str(SANDBOX_FOLDER / script)]


def _spec(limits: ResourceLimits) -> dict[str, Any]:
    return {**asdict(limits), "landlock": None, "seccomp": "", "network": "", "identities": {}}


def _confined(spec: dict[str, Any], *argv: str) -> list[str]:
    return [*_python("confine.py"), json.dumps(spec), *argv]


def _landlock(
    readable: Sequence[str], writable: Sequence[Path], partly: dict[str, list[str]] | None = None
) -> dict[str, Any]:
    devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
    # Not all of /proc/self: its folders "net" show the machine's connections.
    read = [*readable, *(f"/proc/self/{name}" for name in _PROCESS_FILES)]
    read += ["/proc/cpuinfo", "/proc/meminfo"]
    write = [*map(str, writable), *devices]
    return {"landlock": {"read": read, "write": write, "partly": partly or {}, "hidden": []}}


def _bubblewrap(
    readable: Sequence[str], writable: Sequence[Path], start: Path, more: Sequence[str] = ()
) -> list[str]:
    options = [require_program("bwrap"), "--unshare-all", "--die-with-parent"]
    options += ["--new-session"]  # bubblewrap itself is out of reach of signals to the group
    options += ["--proc", "/proc", "--dev", "/dev"]
    for path in [*readable, str(SANDBOX_FOLDER / "confine.py")]:
        if Path(path).is_symlink():  # /lib -> usr/lib
            options += ["--symlink", str(Path(path).readlink()), path]
        else:
            options += ["--ro-bind-try", path, path]
    for folder in writable:
        options += ["--bind", str(folder), str(folder)]
    options += ["--chdir", str(start), *more]
    # The rest is a file system in memory, which no limit would bound; of /proc, root could write the
    # kernel's settings.
    options += [word for path in ("/dev", "/proc", "/") for word in ("--remount-ro", path)]
    return [*options, "--"]


def _readable() -> list[str]:
    """Return the paths of the system's programs and libraries and of this Python, no home folder."""
    system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache"]
    system += ["/etc/localtime", "/etc/passwd", "/etc/mime.types", "/etc/fonts", "/nix/store"]
    prefixes = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)}
    # Both the names of links and what they lead to.
    prefixes |= {os.path.realpath(prefix) for prefix in prefixes}
    python = [
        f"{prefix}/{part}"
        for prefix in sorted(prefixes)
        # A prefix that has the home in it would give it away.
        if not prefix.startswith("/usr") and not Path.home().is_relative_to(prefix)
        for part in ("bin", "lib", "lib64", "share", "etc", "pyvenv.cfg")
    ]
    return [path for path in [*system, *python] if os.path.lexists(path)]


def _sandbox_exec(
    writable: list[Path], scripts: list[Path], more: str = "", protection: Protection | None = None
) -> list[str]:
    def quoted(path: str) -> str:
        return json.dumps(os.path.realpath(path), ensure_ascii=False)

    system = ["/usr", "/bin", "/System", "/Library", "/private/etc", "/private/var/db/timezone"]
    system += ["/opt/homebrew", "/dev", *_readable()]
    system += find_toolchains().readable if protection else ()
    own = " ".join(f"(subpath {quoted(str(path))})" for path in writable)
    readable = " ".join([*(f"(subpath {quoted(path)})" for path in system), own])
    literal = [str(SANDBOX_FOLDER / "confine.py"), "/", *map(str, scripts)]
    files = " ".join(f"(literal {quoted(path)})" for path in literal)
    if protection is not None:
        filters = [f"(subpath {quoted(path)})" for path in protection.read_only]
        filters += [f"(literal {quoted(path)})" for path in protection.pinned]
        hidden = " ".join(f"(subpath {quoted(path)})" for path in protection.unreadable)
        more += f"\n(deny file-read* {hidden})" if hidden else ""
        more += f"\n(deny file-write* {' '.join(filters)})" if filters else ""
    profile = f"""(version 1)
(deny default)
(allow process-exec* {readable})
(allow file-read-metadata)
(allow file-read* {readable} {files})
(allow file-write* {own} (literal "/dev/null"))
(deny file-write-setugid)
(allow sysctl-read)
(allow signal (target self))
{more}
"""
    return [require_program("sandbox-exec"), "-p", profile]
