"""Give up every power that is not needed, for good, then run a script in this same process, or become
a program that may start others.

Started as ``python -I confine.py SPEC SCRIPT`` or ``… SPEC PROGRAM ARGUMENT…``; stands alone, imports
nothing of ours. SPEC is JSON: ``{"memory": bytes, "file_size": bytes, "cpu": seconds,
"seccomp": "" | "alone" | "namespace" | "landlock", "processes": 0 (a script) or how many,
"landlock": null | {"read": [paths], "write": [paths]}}``.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import sys
from typing import Any

# What the filter refuses, with the numbers of x86_64 and aarch64 (None: does not exist there).
# Capabilities are dropped as well, so what needs one (mount, reboot, ...) is not repeated here.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # other machines, and other programs on this one
    "socket": (41, 198),
    # other processes: none are started, none are touched
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "kcmp": (312, 272),
    # ways around this filter and the limits
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "unshare": (272, 97),
    "setns": (308, 268),
    "personality": (135, 92),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # parts of the kernel that a calculation never needs
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # changes to files by path that Landlock does not look at
    "truncate": (76, 45),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "open_tree_attr": (467, 467),
    "file_setattr": (469, 469),
}
# The same, but answered "done": shutil.copy and archives set modes and times, and care little.
IGNORED: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
# A program that starts others needs these. Which files and processes they reach is bounded by its
# namespace, or (signals) by Landlock.
STARTING = {"fork", "vfork", "execve", "execveat"}
SIGNALS = {"tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"}
ATTRIBUTES = {"truncate", "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr"}
ATTRIBUTES |= {"lremovexattr", "fremovexattr", "removexattrat"}
# Only on oneself: the first argument must be 0 or our own process id.
OWN: dict[str, tuple[int | None, int | None]] = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
}
CLONE, CLONE3, CAPSET = (56, 220), (435, 435), (126, 91)
AUDIT_ARCH = (0xC000003E, 0xC00000B7)
MACHINES = {"x86_64": 0, "aarch64": 1}
EPERM, ENOSYS = 1, 38
CLONE_THREAD = 0x10000
CLONE_NAMESPACES = 0x7E020000
SCOPED = 6
"""The Landlock that keeps signals and abstract sockets within what it confines."""

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ = 1 << 0 | 1 << 2 | 1 << 3  # execute (shared libraries are mapped so), read file, read folder
FILE_ONLY = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    spec, script = json.loads(sys.argv[1]), sys.argv[2]
    code = None
    if not spec["processes"]:
        with open(script, "rb") as file:  # noqa: PTH123 - pathlib costs milliseconds here
            code = compile(file.read(), script, "exec")
    limit(spec)
    if sys.platform == "linux":
        # PR_SET_NO_NEW_PRIVS: Landlock and seccomp ask for it, and no setuid program helps any more.
        done(libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
        if spec["landlock"]:
            landlock(**spec["landlock"])
        if spec["seccomp"]:
            drop_capabilities()
            seccomp(spec["seccomp"])
    if code is None:
        try:
            os.execvp(script, sys.argv[2:])
        except OSError as error:
            sys.exit(f"{script}: {error.strerror}")
    sys.argv = [script]
    exec(code, {"__name__": "__main__", "__file__": script, "__builtins__": __builtins__})


def limit(spec: dict[str, Any]) -> None:
    """Resource limits; without capabilities they cannot be raised again."""
    for name, value in (
        # Programs of other kinds reserve far more address space than they ever use.
        ("RLIMIT_DATA" if spec["processes"] else "RLIMIT_AS", spec["memory"]),
        ("RLIMIT_FSIZE", spec["file_size"]),
        ("RLIMIT_CPU", spec["cpu"]),
        ("RLIMIT_NOFILE", 1024 if spec["processes"] else 256),
        ("RLIMIT_CORE", 0),
    ):
        try:
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))
        except (AttributeError, ValueError, OSError):
            if sys.platform == "linux":  # macOS knows no limit of address space
                raise


def landlock_abi() -> int:
    """Which Landlock the kernel has; 0: none."""
    return max(int(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)), 0)


def landlock(read: list[str], write: list[str]) -> None:
    """From here on only these paths can be opened, and no TCP port."""
    abi = landlock_abi()
    if abi < 1:
        raise OSError("this kernel has no Landlock")
    bits = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    handled = (1 << bits) - 1
    attributes = (ctypes.c_uint64 * 3)(handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = done(
        libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "landlock ruleset"
    )
    for paths, access in ((read, READ), (write, handled)):
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = access if os.path.isdir(path) else access & FILE_ONLY  # noqa: PTH112
            # struct landlock_path_beneath_attr is packed: u64 access, s32 fd
            rule = (allowed & handled).to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
            done(libc.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0), f"landlock rule for {path}")
            os.close(fd)
    done(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


def drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    done(libc.syscall(CAPSET[machine()], header, (ctypes.c_uint32 * 6)()), "capset")


def seccomp(mode: str) -> None:
    """Refuse the system calls above, in this thread and all that it starts."""

    class Instruction(ctypes.Structure):
        _fields_ = [
            ("code", ctypes.c_uint16),
            ("true", ctypes.c_uint8),
            ("false", ctypes.c_uint8),
            ("k", ctypes.c_uint32),
        ]

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.c_void_p)]

    rules = program(machine(), os.getpid(), mode, landlock_abi())
    filters = (Instruction * len(rules))(*(Instruction(*rule) for rule in rules))
    wanted = Program(len(rules), ctypes.cast(filters, ctypes.c_void_p))
    done(libc.prctl(22, 2, ctypes.byref(wanted), 0, 0), "seccomp")


def program(
    arch: int, pid: int, mode: str = "alone", abi: int = SCOPED
) -> list[tuple[int, int, int, int]]:
    """The filter, in classic BPF: (code, jump if true, jump if false, k).

    ``mode``: alone (one process), or processes within a namespace or under Landlock (``abi``).
    """
    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, refuse = (give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x80000000), 0x00050000
    number, architecture, argument = 0, 4, 16
    rules = [(load, 0, 0, architecture), (equal, 1, 0, AUDIT_ARCH[arch]), kill]
    # 0x40000000: the x32 numbers of x86_64, a second door to every call.
    rules += [(load, 0, 0, number), (at_least, 0, 1, 0x40000000), (give, 0, 0, refuse | ENOSYS)]
    free, own = allowed(mode, abi)
    for calls, error in ((DENIED, EPERM), (IGNORED, 0)):
        if calls is IGNORED and mode == "namespace":
            continue
        for name, numbers in calls.items():
            if name not in free and (found := numbers[arch]) is not None:
                rules += [(equal, 0, 1, found), (give, 0, 0, refuse | error)]
    # Answered so, the C library falls back to clone, whose flags can be seen.
    rules += [(equal, 0, 1, CLONE3[arch]), (give, 0, 0, refuse | ENOSYS)]
    no = (give, 0, 0, refuse | EPERM)
    rules += [(equal, 0, 4, CLONE[arch]), (load, 0, 0, argument)]
    if mode == "alone":
        rules += [(bits, 0, 1, CLONE_THREAD), allow, no]
    else:
        rules += [(bits, 0, 1, CLONE_NAMESPACES), no, allow]
    for name, numbers in OWN.items():
        if name in own and (found := numbers[arch]) is not None:
            rules += [(equal, 0, 5, found), (load, 0, 0, argument), (equal, 1, 0, 0)]
            rules += [(equal, 0, 1, pid), allow, (give, 0, 0, refuse | EPERM)]
    return [*rules, allow]


def allowed(mode: str, abi: int) -> tuple[set[str], set[str]]:
    """Of the calls above: those that may be made, and those that may be made on oneself."""
    match mode:
        case "namespace":
            return STARTING | SIGNALS | ATTRIBUTES, set()
        case "landlock":
            # Older ones do not look at truncate, or at who is signalled.
            free = STARTING | ({"truncate"} if abi >= 3 else set())
            signals = {"kill", "tgkill"} if abi >= SCOPED else set()
            return free, set(OWN) - signals
        case _:
            return set(), set(OWN)


def machine() -> int:
    found = MACHINES.get(platform.machine())
    if found is None:
        raise OSError(f"no filter for {platform.machine()}")
    return found


def done(result: int, what: str) -> int:
    """Anything that cannot be confined is not run."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


if __name__ == "__main__":
    main()
