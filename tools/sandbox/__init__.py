"""Running a Python script where it can do no harm: which ways this machine has, proven by trying."""

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
    """Bytes of address space."""
    file_size: int = 256 << 20
    """Bytes of one file."""
    cpu: int = 3600
    """Seconds of processor time in all."""


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


def environment(work: Path) -> dict[str, str]:
    """All that the script is told about this machine."""
    threads = str(min(os.cpu_count() or 1, 4))
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
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
    spec: dict[str, Any] = {**asdict(limits or Limits()), "landlock": None, "seccomp": False}
    around: list[str] = []
    match name:
        case "bubblewrap":
            around = _bubblewrap(script, work)
            spec["seccomp"] = True
        case "landlock":
            devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
            read = [*_readable(), "/proc/self", "/proc/cpuinfo", "/proc/meminfo"]
            spec["landlock"] = {"read": read, "write": [str(work), *devices]}
            spec["seccomp"] = True
        case "sandbox-exec":
            around = ["sandbox-exec", "-p", _seatbelt(script, work)]
        case "none":
            pass
        case _:
            raise ValueError(name)
    # -I: no PYTHON* variables, no user site, nothing imported from where we happen to stand.
    python = [sys.executable, "-I", "-B", str(HERE / "confine.py"), json.dumps(spec), str(script)]
    return [*around, *python]


def _bubblewrap(script: Path, work: Path) -> list[str]:
    options = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for path in [*_readable(), str(HERE / "confine.py"), str(script)]:
        if Path(path).is_symlink():  # /lib -> usr/lib
            options += ["--symlink", str(Path(path).readlink()), path]
        else:
            options += ["--ro-bind-try", path, path]
    options += ["--bind", str(work), str(work), "--chdir", str(work)]
    # gpt-oss was told in training that its files lie there.
    options += ["--symlink", str(work), "/mnt/data"]
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


def _seatbelt(script: Path, work: Path) -> str:
    def quoted(path: str) -> str:
        return json.dumps(os.path.realpath(path), ensure_ascii=False)

    system = ["/usr", "/bin", "/System", "/Library", "/private/etc", "/private/var/db/timezone"]
    system += ["/opt/homebrew", "/dev", *_readable()]
    readable = " ".join(f"(subpath {quoted(path)})" for path in [*system, str(work)])
    files = " ".join(
        f"(literal {quoted(path)})" for path in (str(HERE / "confine.py"), str(script), "/")
    )
    return f"""(version 1)
(deny default)
(allow process-exec* {readable})
(allow file-read-metadata)
(allow file-read* {readable} {files})
(allow file-write* (subpath {quoted(str(work))}) (literal "/dev/null"))
(allow sysctl-read)
(allow signal (target self))
"""
