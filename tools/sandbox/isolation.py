"""Running scripts and commands where they can do no harm: which ways this machine has, by trying."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROBE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Isolation:
    """What stands between the script and this machine."""

    name: str
    """bubblewrap, landlock, sandbox-exec, or none."""
    detail: str
    """What it guarantees, or why there is none; one sentence."""
    ok: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one worker."""

    memory: int = 4 << 30
    """Bytes of address space; of a command: what all of its processes hold."""
    file_size: int = 256 << 20
    """Bytes of one file."""
    cpu: int = 3600
    """Seconds of processor time in all (of a command: of each process)."""
    processes: int = 256
    """That a command may have at a time; a script has none but itself."""


_PROMISES = {
    "bubblewrap": "sees the system and Python read-only and its own folder, no home, no network, "
    "no other processes; starts none; memory, file size and CPU are limited",
    "landlock": "opens only the system and Python read-only and its own folder, no sockets, "
    "no signals to others, starts no processes (Landlock, seccomp, rlimits); file names and sizes "
    "elsewhere stay visible; memory, file size and CPU are limited",
    "sandbox-exec": "reads only the system and Python, writes only its own folder, no network, "
    "starts no processes; CPU is limited, memory is not",
}


def candidates() -> Sequence[str]:
    """The ways of this platform, the best first."""
    return {"linux": ("bubblewrap", "landlock"), "darwin": ("sandbox-exec",)}.get(sys.platform, ())


@functools.cache
def isolation() -> Isolation:
    """The best way that works here. Tries them once per process, each some 100 ms; blocks."""
    reasons: list[str] = []
    for name in candidates():
        reason = probe(name)
        if reason is None:
            passed_over = f" (not {'; '.join(reasons)})" if reasons else ""
            return Isolation(name, _PROMISES[name] + passed_over, True)
        reasons.append(f"{name}: {reason}")
    why = "; ".join(reasons) or f"none is known for {sys.platform}"
    return Isolation("none", f"no isolation works here ({why})", False)


def probe(name: str) -> str | None:
    """Run a script that tries to break out. None: it could not; else what is wrong."""
    with tempfile.TemporaryDirectory(prefix="agent-probe-") as folder:
        work, secret = Path(folder, "work"), Path(folder, "secret")
        work.mkdir()
        secret.write_text("x")
        try:
            done = subprocess.run(
                command(name, HERE / "check.py", work),
                input=json.dumps([str(secret), os.getpid()]) + "\n",
                env=environment(work),
                cwd=work,
                capture_output=True,
                text=True,
                timeout=PROBE_SECONDS,
                start_new_session=True,
            )
        except FileNotFoundError:
            return "not installed"
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"
    try:
        escaped = json.loads(done.stdout)
    except ValueError:
        return "it gave no answer"
    return f"a script could {', '.join(escaped)}" if escaped else None


def environment(work: Path, *, programs: bool = False) -> dict[str, str]:
    """All that the script is told about this machine; ``programs``: it may start some."""
    threads = str(min(os.cpu_count() or 1, 4))
    own = f":{Path(sys.executable).parent}" if programs else ""
    return {
        "PATH": f"/usr/local/bin:/usr/bin:/bin{own}",
        "HOME": str(work),
        "TMPDIR": str(work),
        "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": str(work / ".matplotlib"),
        # Each thread of these reserves address space, which is limited.
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
    }


def command(name: str, script: Path, work: Path, limits: Limits | None = None) -> list[str]:
    """The command that runs a script (absolute path) with ``work`` as its only writable folder.

    ``none`` runs it with resource limits and nothing else.
    """
    spec = {**asdict(limits or Limits()), "processes": 0, "landlock": None, "seccomp": ""}
    around: list[str] = []
    match name:
        case "bubblewrap":
            # gpt-oss was told in training that its files lie in /mnt/data.
            linked = ["--symlink", str(work), "/mnt/data"]
            around = _bubblewrap([*_readable(), str(script)], [work], work, linked)
            spec["seccomp"] = "alone"
        case "landlock":
            spec |= _landlock(_readable(), [work])
            spec["seccomp"] = "alone"
        case "sandbox-exec":
            around = _sandbox_exec([work], [script])
        case "none":
            pass
        case _:
            raise ValueError(name)
    return [*around, *_confined(spec, str(script))]


def shell(
    name: str,
    argv: Sequence[str],
    *,
    root: Path,
    start: Path,
    work: Path,
    limits: Limits | None = None,
) -> list[str]:
    """The command line that runs ``argv`` in the folder ``start``, and all that it starts, with no
    network and with ``root`` and ``work`` (also its home) as the only folders that it may write.

    Nothing of it lives on when it ends, or when the stdin of what is started here does.
    """
    limits = limits or Limits()
    spec = {**asdict(limits), "landlock": None, "seccomp": ""}
    around: list[str] = []
    match name:
        case "bubblewrap":
            kept = [part for path in guarded(root) for part in ("--ro-bind", path, path)]
            around = _bubblewrap([*_readable(), *_SETTINGS], [work, root], start, kept)
            spec["seccomp"] = "namespace"
        case "landlock":
            spec |= _landlock([*_readable(), *_SETTINGS], [work, root])
            spec["seccomp"] = "landlock"
        case "sandbox-exec":
            around = _sandbox_exec(
                [work, root],
                [],
                "(allow process-fork) (allow signal (target same-sandbox))",
                guarded(root),
            )
        case "none":
            pass
        case _:
            raise ValueError(name)
    bounds = json.dumps({"processes": limits.processes, "memory": limits.memory})
    return [*_python("supervise.py"), bounds, *around, *_confined(spec, *argv)]


def guarded(root: Path) -> list[str]:
    """What commands must not change though it lies below ``root``: what git of the person runs later,
    outside of any sandbox, and this program and its Python."""
    git = [root / ".git" / name for name in ("hooks", "config", "config.worktree", "info")]
    own = {HERE.parent.parent.resolve() / name for name in ("tools", "agent")}
    own |= {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    own = {path for path in own if path != root and path.is_relative_to(root)}
    return sorted(str(path) for path in (*git, *own) if path.exists())


def unguarded(name: str, root: Path) -> str | None:
    """Why this isolation cannot keep commands below ``root`` from changing this program."""
    if Path(sys.prefix).resolve().is_relative_to(root) and name == "landlock":
        return f"cannot protect the Python that runs this program, which lies in {root}"
    return None


_SETTINGS = ("/etc/alternatives", "/etc/group", "/etc/nsswitch.conf", "/etc/gitconfig", "/opt")
"""What commands read besides what Python does."""


def _python(script: str) -> list[str]:
    # -I: no PYTHON* variables, no user site, nothing imported from where we happen to stand.
    return [sys.executable, "-I", "-B", str(HERE / script)]


def _confined(spec: dict[str, Any], *what: str) -> list[str]:
    return [*_python("confine.py"), json.dumps(spec), *what]


def _landlock(readable: Sequence[str], writable: Sequence[Path]) -> dict[str, Any]:
    devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
    read = [*readable, "/proc/self", "/proc/cpuinfo", "/proc/meminfo"]
    return {"landlock": {"read": read, "write": [*map(str, writable), *devices]}}


def _bubblewrap(
    readable: Sequence[str], writable: Sequence[Path], start: Path, more: Sequence[str] = ()
) -> list[str]:
    options = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for path in [*readable, str(HERE / "confine.py")]:
        if Path(path).is_symlink():  # /lib -> usr/lib
            options += ["--symlink", str(Path(path).readlink()), path]
        else:
            options += ["--ro-bind-try", path, path]
    for folder in writable:
        options += ["--bind", str(folder), str(folder)]
    options += ["--chdir", str(start), *more]
    # The rest is a file system in memory, which no limit would bound.
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--"]


def _readable() -> list[str]:
    """The system's programs and libraries and this Python; nothing of the person's."""
    system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache"]
    system += ["/etc/localtime", "/etc/passwd", "/etc/mime.types", "/etc/fonts", "/nix/store"]
    prefixes = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)}
    # Both the names that links lead by and what they lead to.
    prefixes |= {os.path.realpath(prefix) for prefix in prefixes}
    mine = [
        f"{prefix}/{part}"
        for prefix in sorted(prefixes)
        # A prefix that has the home in it would give it away.
        if not prefix.startswith("/usr") and not Path.home().is_relative_to(prefix)
        for part in ("bin", "lib", "lib64", "share", "etc", "pyvenv.cfg")
    ]
    return [path for path in [*system, *mine] if os.path.lexists(path)]


def _sandbox_exec(
    writable: Sequence[Path], scripts: Sequence[Path], more: str = "", kept: Sequence[str] = ()
) -> list[str]:
    def quoted(path: str) -> str:
        return json.dumps(os.path.realpath(path), ensure_ascii=False)

    system = ["/usr", "/bin", "/System", "/Library", "/private/etc", "/private/var/db/timezone"]
    system += ["/opt/homebrew", "/dev", *_readable()]
    own = " ".join(f"(subpath {quoted(str(path))})" for path in writable)
    readable = " ".join([*(f"(subpath {quoted(path)})" for path in system), own])
    literal = [str(HERE / "confine.py"), "/", *map(str, scripts)]
    files = " ".join(f"(literal {quoted(path)})" for path in literal)
    if kept:
        more += f"\n(deny file-write* {' '.join(f'(subpath {quoted(path)})' for path in kept)})"
    profile = f"""(version 1)
(deny default)
(allow process-exec* {readable})
(allow file-read-metadata)
(allow file-read* {readable} {files})
(allow file-write* {own} (literal "/dev/null"))
(allow sysctl-read)
(allow signal (target self))
{more}
"""
    return ["sandbox-exec", "-p", profile]
