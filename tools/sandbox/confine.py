"""Gives up every power that is not needed, then runs a script in this process, or a program: ``python
-I confine.py SPEC SCRIPT`` or ``… SPEC PROGRAM ARGUMENT…``. Imports nothing of ours; with ctypes,
because there is no maintained Python package for Landlock or seccomp.

SPEC is JSON: ``{"memory": bytes, "file_size": bytes, "cpu": seconds, "seccomp": "" | "alone" |
"namespace" | "network" | "landlock", "processes": 0 (a script) or how many, "landlock": null | {"read":
[paths], "write": [paths], "partly": {folder: [names not to write]}, "hidden": [unreadable paths]},
"network": "" | "loopback" | "hosts" (by a proxy, whose socket is sent on descriptor 3), "identities":
{path: [device, inode]}}``. It ends if a path of ``identities`` is another file by now.
"""

import _socket
import ctypes
import json
import os
import platform
import resource
import stat
import sys
from collections.abc import Iterator
from typing import Any

# System calls that the filter refuses, with the numbers of x86_64 and aarch64 (None: none).
# Capabilities are dropped as well, so what needs one (mount, reboot, ...) is not repeated here.
DENIED_CALLS: dict[str, tuple[int | None, int | None]] = {
    # other machines, and other programs on this one
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    # other processes: none are started, none are touched
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "ioprio_set": (251, 30),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "kcmp": (312, 272),
    # ways around this filter and the limits
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "unshare": (272, 97), "setns": (308, 268), "personality": (135, 92),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    # parts of the kernel that a calculation never needs
    "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # changes to files by path that Landlock does not look at
    "truncate": (76, 45), "open_tree_attr": (467, 467), "file_setattr": (469, 469),
}  # fmt: skip
# The same, but answered "done": shutil.copy and archives set modes and times, and care little. For a
# command under Landlock, the supervisor makes them where they are harmless (``attributes.py``).
IGNORED_CALLS: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
}  # fmt: skip
# The same, but answered "not supported": the C library then writes the bytes one by one. Otherwise
# one call takes gigabytes of the disk before the next check. cp and install ignore the error for
# attributes.
UNSUPPORTED_CALLS: dict[str, tuple[int | None, int | None]] = {
    "fallocate": (285, 47), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466),
}  # fmt: skip
# A program that starts others needs these. Which files and processes they reach is bounded by its
# namespace, or (signals) by Landlock.
START_CALLS = {"fork", "vfork", "execve", "execveat"}
SIGNAL_CALLS = {"tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"}
ATTRIBUTE_CALLS = {"truncate", "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr"}
ATTRIBUTE_CALLS |= {"lremovexattr", "fremovexattr", "removexattrat"}
WATCH_CALLS = {"inotify_init", "inotify_init1"}
# Only on oneself: the first argument must be 0 or our own process id.
SELF_ONLY_CALLS: dict[str, tuple[int | None, int | None]] = {
    "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122), "getpgid": (121, 155), "getsid": (124, 156),
}  # fmt: skip
NETWORK_CALLS = {"socket", "connect", "bind", "listen", "accept", "accept4"}
"""In a network of the sandbox's own; no sockets but those of IP, so that none of a path is reached."""
IP_FAMILIES, IP_TYPES = (2, 10), (1, 2)
SOCKET_CALL = (41, 198)
GROUP_CALLS = {"getpgid", "getsid"}
"""Calls by which programs find the processes that they started, to signal them."""
# Refused with one of these values as an argument: numbers of the call, offset of the argument, values.
DENIED_REQUESTS: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    # F_SETOWN, F_SETSIG, F_SETOWN_EX: the kernel would send any signal to any process for us
    "fcntl": (72, 25, 24, (8, 10, 15)),
    # FIOSETOWN, SIOCSPGRP: the same for sockets; TIOCSTI, TIOCLINUX: typing into a terminal
    "ioctl": (16, 29, 24, (0x8901, 0x8902, 0x5412, 0x541C)),
    # SO_SNDBUF, SO_RCVBUF, and the same by force: buffers of the kernel, up to megabytes a socket
    "setsockopt": (54, 208, 32, (7, 8, 32, 33)),
}
# Refused where their mode has one of these bits: set-uid, set-gid, and the bit that distinguishes a
# device from a pipe and a socket. Numbers of the call, offset of the mode, offset of the flags or
# None: where these do not create a file, the call has no mode.
MODE_CALLS: dict[str, tuple[int | None, int | None, int, int | None]] = {
    "chmod": (90, None, 24, None), "fchmod": (91, 52, 24, None), "fchmodat": (268, 53, 32, None),
    "fchmodat2": (452, 452, 32, None), "creat": (85, None, 24, None),
    "mkdir": (83, None, 24, None), "mkdirat": (258, 34, 32, None), "mknod": (133, None, 24, None),
    "mknodat": (259, 33, 32, None), "open": (2, None, 32, 24), "openat": (257, 56, 40, 32),
}  # fmt: skip
SPECIAL_MODES, CREATING_FLAGS = 0o26000, 0o100 | 0o20000000
OPENAT2 = (437, 437)
"""Its mode is in memory, where the filter cannot look: programs then use openat."""
# Only connected pairs (asyncio needs streams): a datagram can be sent to any socket of the machine.
# Rust's standard library starts programs with a pair of sequenced packets (5), which is connected too.
SOCKETPAIR, AF_UNIX, SOCK_STREAM, OTHER_SOCKET_TYPES, PACKET_TYPE_BIT = (53, 199), 1, 1, 0xE, 4
CLONE, CLONE3, CAPSET, SECCOMP = (56, 220), (435, 435), (126, 91), (317, 277)
CHANNEL_DESCRIPTOR = 3
"""The descriptor by which a command's filter reaches the supervisor."""
AUDIT_ARCH = (0xC000003E, 0xC00000B7)
MACHINES = {"x86_64": 0, "aarch64": 1}
EPERM_ERRNO, ENOSYS_ERRNO, EOPNOTSUPP_ERRNO = 1, 38, 95
CLONE_THREAD = 0x10000
CLONE_NAMESPACES = 0x7E020000
SCOPED_LANDLOCK_ABI = 6
"""The first version of Landlock that keeps signals and abstract sockets within the sandbox."""
FILTER_OPCODES = 0x20, 0x15, 0x35, 0x45, 0x06
"""Classic BPF: load, jump if equal, if at least, if any bit is set; return."""
FIRST_ARGUMENT = 16
"""Offset of a call's first argument; each has 8 bytes."""

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
# Execute (shared libraries are mapped so), read file, read folder.
READ_ACCESS = 1 << 0 | 1 << 2 | 1 << 3
LIST_ACCESS = 1 << 3
FILE_ACCESS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Apply the limits and restrictions of SPEC and run the script or the program."""
    spec, script = json.loads(sys.argv[1]), sys.argv[2]
    code, proxy = None, dict[str, str]()
    if not spec["processes"]:
        with open(script, "rb") as file:  # noqa: PTH123 - pathlib costs milliseconds here
            code = compile(file.read(), script, "exec")
    set_limits(spec)
    for path, identity in spec["identities"].items():
        status = os.lstat(path)
        if [status.st_dev, status.st_ino] != identity:
            sys.exit(f"{path} was replaced; try again")
    if sys.platform == "linux":
        # PR_SET_NO_NEW_PRIVS: Landlock and seccomp ask for it, and no setuid program helps any more.
        check(libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
        if spec["landlock"]:
            restrict_paths(**spec["landlock"])
        if spec["network"] == "hosts":
            proxy = open_proxy()
        if spec["seccomp"]:
            drop_capabilities()
            install_filter(spec["seccomp"])
    if code is None:
        # ``isolation.SET_INSIDE``: no program outside of the sandbox may see them by their names.
        for name in [name for name in os.environ if name.startswith("AGENT_SET_")]:
            os.environ[name.removeprefix("AGENT_SET_")] = os.environ.pop(name)
        os.environ.update(proxy)
        try:
            os.execvp(script, sys.argv[2:])
        except OSError as error:
            sys.exit(f"{script}: {error.strerror}")
    sys.argv = [script]
    exec(code, {"__name__": "__main__", "__file__": script, "__builtins__": __builtins__})


def open_proxy() -> dict[str, str]:
    """Listen in this network, which is the sandbox's own, for a proxy outside; variables that name it.
    The proxy takes connections from the very socket: no path or port of the machine leads to it."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(fileno=3) as link:
        socket.send_fds(link, [b"-"], [listener.fileno()])
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    named = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), address)
    named["NO_PROXY"] = "localhost,127.0.0.1,::1"
    lower = {name.lower(): value for name, value in named.items()}
    return named | lower | {"NODE_USE_ENV_PROXY": "1"}


def set_limits(spec: dict[str, Any]) -> None:
    """Set resource limits; without capabilities they cannot be raised again."""
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
    """Landlock's version, 0: none (https://docs.kernel.org/userspace-api/landlock.html)."""
    return max(int(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)), 0)


def restrict_paths(
    read: list[str], write: list[str], partly: dict[str, list[str]], hidden: list[str]
) -> None:
    """Apply Landlock: only these paths can be opened, and no TCP port. ``partly``: folders, parents
    first, whose entries can be written except these names: each other one is granted by itself, and
    nothing can be created there. ``hidden``: entries that cannot be read either."""
    abi = landlock_abi()
    if abi < 1:
        raise OSError("this kernel has no Landlock")
    bits = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    handled = (1 << bits) - 1
    attributes = (ctypes.c_uint64 * 3)(handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = check(
        libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "landlock ruleset"
    )
    top = list(partly)[:1]
    reading = [(read, READ_ACCESS), (top, LIST_ACCESS if hidden else READ_ACCESS)]
    for paths, access in (*reading, (write, handled)):
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            grant(ruleset, fd, access & handled)
    for fd in entries_except(partly, partly):
        grant(ruleset, fd, handled)
    if hidden:
        ways: dict[str, list[str]] = {path: [] for path in partly}
        for path in (*hidden, *partly):
            folder, _, name = path.rpartition("/")
            if folder in ways:
                ways[folder].append(name)
        for fd in entries_except(partly, ways):
            grant(ruleset, fd, READ_ACCESS)
    check(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


def grant(ruleset: int, fd: int, access: int) -> None:
    """Add a rule for what ``fd`` is, and below it, and close it."""
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        access &= FILE_ACCESS
    # struct landlock_path_beneath_attr is packed: u64 access, s32 fd
    rule = access.to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
    check(libc.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0), "landlock rule")
    os.close(fd)


def entries_except(partly: dict[str, list[str]], excluded: dict[str, list[str]]) -> Iterator[int]:
    """Open the entries of the folders of ``partly`` but those of ``excluded``; follows no link."""
    folders: dict[str, int] = {}
    for path in partly:
        parent, _, name = path.rpartition("/")
        near = folders.get(parent)
        mode = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folders[path] = folder = os.open(path if near is None else name, mode, dir_fd=near)
        for entry in set(os.listdir(folder)) - set(excluded[path]):  # noqa: PTH208
            try:
                fd = os.open(entry, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            except OSError:
                continue
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                os.close(fd)
            else:
                yield fd
    for folder in folders.values():
        os.close(folder)


def drop_capabilities() -> None:
    """Give up all capabilities, which makes root an ordinary user."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    check(libc.syscall(CAPSET[machine()], header, (ctypes.c_uint32 * 6)()), "capset")


def install_filter(mode: str) -> None:
    """Install the seccomp filter in this thread, and so in all that it starts."""

    class Instruction(ctypes.Structure):
        _fields_ = [
            ("code", ctypes.c_uint16),
            ("true", ctypes.c_uint8),
            ("false", ctypes.c_uint8),
            ("k", ctypes.c_uint32),
        ]

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.c_void_p)]

    for handed_over in (True, False) if mode == "landlock" else (False,):
        rules = filter_program(machine(), os.getpid(), mode, landlock_abi(), handed_over)
        filters = (Instruction * len(rules))(*(Instruction(*rule) for rule in rules))
        prog = Program(len(rules), ctypes.cast(filters, ctypes.c_void_p))
        if not handed_over:
            check(libc.prctl(22, 2, ctypes.byref(prog), 0, 0), "seccomp")
        # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
        elif (listener := libc.syscall(SECCOMP[machine()], 1, 8, ctypes.byref(prog))) >= 0:
            send_listener(listener)
            break


def send_listener(listener: int) -> None:
    """Give the supervisor the calls that are handed over, and which these are."""
    numbers = {str(each[machine()]): name for name, each in IGNORED_CALLS.items()}
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))]
    _socket.socket(fileno=CHANNEL_DESCRIPTOR).sendmsg([json.dumps(numbers).encode()], ancillary)
    os.close(listener)


def filter_program(
    arch: int,
    pid: int,
    mode: str = "alone",
    abi: int = SCOPED_LANDLOCK_ABI,
    handed_over: bool = False,
) -> list[tuple[int, int, int, int]]:
    """Return the seccomp filter in classic BPF: (code, jump if true, jump if false, k).

    It is a list of tests, each of which skips the rules after it if it does not apply::

        architecture is ours?          else kill
        number is of the x32 ABI?      then ENOSYS
        number is a denied call?       then EPERM       (one test for each)
        number is an ignored call?     then 0, "done", or handed over (one test for each)
        number is an unsupported call? then EOPNOTSUPP  (one test for each)
        clone3?                        then ENOSYS: the C library falls back to clone
        clone?                         then by its flags: threads only, or no new namespaces
        openat2?                       then ENOSYS
        chmod, mknod, open, ...?       then EPERM for set-uid, set-gid, devices
        socketpair?                    then only of connected ones
        socket, in mode "network"?     then only of TCP and UDP
        fcntl, ioctl, setsockopt?      then EPERM for some of their requests
        a call only on oneself?        then allowed if its first argument is 0 or ``pid``
        all others                     allowed

    ``mode``: alone (one process), or processes within a namespace, within one that has a network of
    its own, or under Landlock (``abi``). ``handed_over``: whether another process answers the ignored
    calls.
    """
    load, equal, at_least, bits, ret = FILTER_OPCODES
    allow, kill, refuse = (ret, 0, 0, 0x7FFF0000), (ret, 0, 0, 0x80000000), 0x00050000
    number, architecture, argument = 0, 4, FIRST_ARGUMENT
    rules = [(load, 0, 0, architecture), (equal, 1, 0, AUDIT_ARCH[arch]), kill]
    # 0x40000000: the x32 numbers of x86_64, a second door to every call.
    no_call = (ret, 0, 0, refuse | ENOSYS_ERRNO)
    rules += [(load, 0, 0, number), (at_least, 0, 1, 0x40000000), no_call]
    permitted, self_only = exceptions(mode, abi)
    rules += _answered_calls(arch, mode, permitted, handed_over)
    # Answered so, the C library falls back to clone, whose flags can be seen.
    rules += [(equal, 0, 1, CLONE3[arch]), no_call]
    no = (ret, 0, 0, refuse | EPERM_ERRNO)
    rules += [(equal, 0, 4, CLONE[arch]), (load, 0, 0, argument)]
    namespaces = [(bits, 0, 1, CLONE_NAMESPACES), no, allow]
    rules += [(bits, 0, 1, CLONE_THREAD), allow, no] if mode == "alone" else namespaces
    rules += [(equal, 0, 1, OPENAT2[arch]), no_call]
    for *call, mode_offset, flags_offset in MODE_CALLS.values():
        if (value := call[arch]) is not None:
            test = [(load, 0, 0, mode_offset), (bits, 0, 1, SPECIAL_MODES), no, allow]
            if flags_offset is not None:
                test = [(load, 0, 0, flags_offset), (bits, 0, 3, CREATING_FLAGS), *test]
            rules += [(equal, 0, len(test), value), *test]
    rules += _argument_rules(arch, mode)
    for name, numbers in SELF_ONLY_CALLS.items():
        if name in self_only and (value := numbers[arch]) is not None:
            rules += [(equal, 0, 5, value), (load, 0, 0, argument), (equal, 1, 0, 0)]
            rules += [(equal, 0, 1, pid), allow, no]
    return [*rules, allow]


def _answered_calls(
    arch: int, mode: str, permitted: set[str], handed_over: bool
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the tests of calls that are answered whatever their arguments are."""
    answers = (DENIED_CALLS, EPERM_ERRNO), (IGNORED_CALLS, 0), (UNSUPPORTED_CALLS, EOPNOTSUPP_ERRNO)
    for calls, error in answers:
        if calls is IGNORED_CALLS and mode in ("namespace", "network"):
            continue
        for name, numbers in calls.items():
            if name not in permitted and (value := numbers[arch]) is not None:
                hands_over = calls is IGNORED_CALLS and handed_over
                yield FILTER_OPCODES[1], 0, 1, value
                yield FILTER_OPCODES[4], 0, 0, 0x7FC00000 if hands_over else 0x00050000 | error


def _argument_rules(arch: int, mode: str) -> list[tuple[int, int, int, int]]:
    """Return the tests of sockets and of the requests of fcntl, ioctl and setsockopt."""
    load, equal, _, bits, ret = FILTER_OPCODES
    allow, no = (ret, 0, 0, 0x7FFF0000), (ret, 0, 0, 0x00050000 | EPERM_ERRNO)
    argument, second = FIRST_ARGUMENT, FIRST_ARGUMENT + 8
    rules = [(equal, 0, 7, SOCKETPAIR[arch]), (load, 0, 0, argument), (equal, 0, 4, AF_UNIX)]
    refused = OTHER_SOCKET_TYPES if mode == "alone" else OTHER_SOCKET_TYPES & ~PACKET_TYPE_BIT
    rules += [(load, 0, 0, second), (bits, 2, 0, refused), (bits, 0, 1, SOCK_STREAM)]
    rules += [allow, no]
    if mode == "network":
        # 0x54 (and) leaves the type without SOCK_NONBLOCK and SOCK_CLOEXEC.
        rules += [(equal, 0, 9, SOCKET_CALL[arch]), (load, 0, 0, argument)]
        rules += [(equal, 1, 0, IP_FAMILIES[0]), (equal, 0, 4, IP_FAMILIES[1])]
        rules += [(load, 0, 0, second), (0x54, 0, 0, 0xF)]
        rules += [(equal, 2, 0, IP_TYPES[0]), (equal, 1, 0, IP_TYPES[1]), no, allow]
    for *request, offset, values in DENIED_REQUESTS.values():
        count = len(values)
        rules += [(equal, 0, count + 3, request[arch]), (load, 0, 0, offset)]
        rules += [(equal, count - index, 0, value) for index, value in enumerate(values)]
        rules += [allow, no]
    return rules


def exceptions(mode: str, abi: int) -> tuple[set[str], set[str]]:
    """Return which of the calls above may be made in a mode, and which on oneself only."""
    match mode:
        case "namespace" | "network":
            network = NETWORK_CALLS if mode == "network" else set()
            return START_CALLS | SIGNAL_CALLS | ATTRIBUTE_CALLS | WATCH_CALLS | network, set()
        case "landlock":
            # Older versions check neither truncate nor who is signalled.
            permitted = START_CALLS | ({"truncate"} if abi >= 3 else set())
            signals = {"kill", "tgkill"} if abi >= SCOPED_LANDLOCK_ABI else set()
            return permitted, set(SELF_ONLY_CALLS) - signals - GROUP_CALLS
    return set(), set(SELF_ONLY_CALLS)


def machine() -> int:
    """Return the index of this machine's numbers; raises OSError if we have none for it."""
    index = MACHINES.get(platform.machine())
    if index is None:
        raise OSError(f"no filter for {platform.machine()}")
    return index


def check(result: int, action: str) -> int:
    """Return a system call's result; raises OSError if it failed, so that nothing runs unconfined."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{action}: {os.strerror(error)}")
    return result


if __name__ == "__main__":
    main()
