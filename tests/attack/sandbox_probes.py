"""Try from inside of the sandbox what it is documented to refuse, and report what happened.

The text runs as a program (the config is one line of JSON on stdin), by import, and by `exec` in
an interpreter inside the sandbox. Each attempt runs in a child where processes are allowed, else in
a thread, within a time limit; it undoes what it managed to do. `outside_view` is for the caller
outside: what it returns, added to the config, tells exactly whose a namespace or a folder is.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ATTEMPT_SECONDS = 1.0
TOTAL_SECONDS = 8.5
NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
    "time": 0x00000080,
}
INITIAL_NAMESPACES = {
    "user": 4026531837,
    "pid": 4026531836,
    "ipc": 4026531839,
    "uts": 4026531838,
    "cgroup": 4026531835,
    "time": 4026531834,
}
SYSTEM_FOLDERS = (
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/dev/pts",
    "/run",
    "/etc",
    "/usr",
    "/usr/local",
    "/var",
)

# Numbers of system calls: x86_64, aarch64 (None: not there).
CALL_NUMBERS: dict[str, tuple[int, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "fchmodat2": (452, 452),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "get_robust_list": (274, 100),
    "init_module": (175, 105),
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26),
    "io_uring_enter": (426, 426),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_get": (252, 31),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "linkat": (265, 37),
    "memfd_create": (319, 279),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "renameat2": (316, 276),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "semctl": (66, 191),
    "semget": (64, 190),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
CALL_COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine(), -1)

AT_CURRENT_FOLDER = -100
AT_EMPTY_PATH = 0x1000
AT_EXECVE_CHECK = 0x10000
OPEN_PATH = 0o10000000
OPEN_TEMPORARY = os.O_DIRECTORY | 0o20000000
MOUNT_BIND = 0x1000
MOUNT_PRIVATE = 0x44000  # MS_REC | MS_PRIVATE
DETACH_MOUNT = 2


class _Answer(NamedTuple):
    """What an attempt came to."""

    outcome: str
    evidence: str


class _SkipError(Exception):
    """The attempt is not possible on this kernel or architecture."""


def escaped(evidence: str) -> _Answer:
    """Something outside was reached, or a documented prohibition was broken."""
    return _Answer("escaped", evidence)


def contained(evidence: str) -> _Answer:
    """It worked, on what the sandbox owns."""
    return _Answer("harmless", evidence)


def refused(evidence: str) -> _Answer:
    """Nothing happened."""
    return _Answer("refused", evidence)


def outside_view(paths: list[str]) -> dict[str, Any]:
    """Describe the caller's namespaces and folders, for the config; call it outside.

    Pass the folders of the config too: `config | outside_view([config["home"], ...])`.
    """
    namespaces = {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in NAMESPACES}
    folders = {}
    for path in [*SYSTEM_FOLDERS, *paths]:
        with contextlib.suppress(OSError):
            status = Path(path).stat()
            folders[path] = [status.st_dev, status.st_ino]
    return {"namespaces": namespaces, "folders": folders}


class _Sandbox:
    """The config, and what can be known of the sandbox before the attempts."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.outside_file = str(config["outside_file"])
        self.outside_folder = str(config["outside_folder"])
        self.outside_program = str(config["outside_program"])
        self.work_folder = str(config["work_folder"])
        self.other_folder = str(config["other_folder"])
        self.home = str(config["home"])
        self.victim_pid = int(config["victim_pid"])
        self.parent_pid = int(config["parent_pid"])
        self.secret = str(config["secret"]).encode()
        self.environment_secret = str(config["environment_secret"]).encode()
        self.kind = str(config["kind"])
        self.counter = 0
        self.descriptors = _list_descriptors()
        self.own_namespaces = {name for name in NAMESPACES if self._owns(name)}

    def _owns(self, name: str) -> bool:
        outside = self.config.get("namespaces", {}).get(name)
        try:
            inside = str(Path(f"/proc/self/ns/{name}").readlink())
        except OSError:
            return not _process_exists(self.victim_pid)
        if outside:
            return inside != str(outside)
        if inside.endswith(f"[{INITIAL_NAMESPACES.get(name, 0)}]"):
            return False
        return not _process_exists(self.victim_pid)

    def new_name(self) -> str:
        """Return a file name that nobody uses."""
        self.counter += 1
        return f"probe-{os.getpid()}-{threading.get_native_id()}-{self.counter}"

    def work_path(self) -> Path:
        """Return an unused path in the work folder."""
        return Path(self.work_folder) / self.new_name()

    def outside_path(self) -> Path:
        """Return an unused path in the folder outside."""
        return Path(self.outside_folder) / self.new_name()

    def is_own_folder(self, folder: str) -> bool:
        """Tell whether this folder is not the one that has its name outside."""
        known = self.config.get("folders", {}).get(folder)
        if known:
            status = Path(folder).stat()
            return [status.st_dev, status.st_ino] != list(known)
        return "mnt" in self.own_namespaces and _mount_type(folder) == "tmpfs"

    def judge_change(self, before: os.stat_result, done: str) -> _Answer:
        """Whether a call that said it was done has touched the file outside: its ctime tells."""
        if Path(self.outside_file).stat().st_ctime_ns == before.st_ctime_ns:
            return contained("the call said that it was done, and changed nothing")
        return escaped(done)

    def judge_folder(self, folder: str, evidence: str) -> _Answer:
        """Say that something in this folder was read or changed."""
        if self.is_own_folder(folder):
            return contained(f"{evidence}; a folder of the sandbox bears that name")
        return escaped(evidence)

    def judge_namespace(self, name: str, evidence: str) -> _Answer:
        """Say that something in this namespace was read or changed."""
        if name in self.own_namespaces:
            return contained(f"{evidence}; the {name} namespace is the sandbox's")
        return escaped(evidence)

    def judge_process(self, pid: int, evidence: str) -> _Answer:
        """Say that this process was reached."""
        if "pid" in self.own_namespaces:
            return contained(f"{evidence} process {pid}; the pid namespace is the sandbox's")
        return escaped(f"{evidence} process {pid}")


_Attempt = Callable[[_Sandbox], _Answer]


class _Entry(NamedTuple):
    """An attempt of the list."""

    group: str
    name: str
    run: _Attempt
    kinds: tuple[str, ...]
    only_in_child: bool


ATTEMPTS: list[_Entry] = []


def attempt(
    group: str,
    name: str,
    kinds: tuple[str, ...] = ("python", "shell"),
    only_in_child: bool = False,
) -> Callable[[_Attempt], _Attempt]:
    """Add a function to the list of attempts."""

    def add(run: _Attempt) -> _Attempt:
        ATTEMPTS.append(_Entry(group, name, run, kinds, only_in_child))
        return run

    return add


def _list_descriptors() -> list[int]:
    """List the descriptors that are open now."""
    found = []
    for descriptor in range(512):
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_GETFD)
            found.append(descriptor)
    return found


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _mount_type(folder: str) -> str:
    """Return the type of the file system on which a folder is."""
    best, found = "", ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4]
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, after.split()[0]
    return found


def _code(error: OSError) -> str:
    """Name an error, and say where it only tells that the call is reachable."""
    name = errno.errorcode.get(error.errno or 0, str(error))
    if error.errno in (errno.EINVAL, errno.EFAULT, errno.EBADF, errno.E2BIG):
        return f"{name} (reachable, nothing happened)"
    return name


def _system_call(library: Any, name: str, arguments: tuple[Any, ...]) -> int:
    if CALL_COLUMN < 0:
        raise _SkipError(f"no call numbers for {platform.machine()}")
    number = CALL_NUMBERS[name][CALL_COLUMN]
    if number is None:
        raise _SkipError(f"{platform.machine()} has no {name}")
    return _numbered_call(library, number, arguments)


def _numbered_call(library: Any, number: int, arguments: tuple[Any, ...]) -> int:
    values: list[Any] = []
    for argument in arguments:
        if isinstance(argument, int):
            values.append(ctypes.c_long(argument))
        elif isinstance(argument, bytes):
            values.append(ctypes.c_char_p(argument))
        else:
            values.append(argument)
    library.syscall.restype = ctypes.c_long
    ctypes.set_errno(0)
    result = int(library.syscall(ctypes.c_long(number), *values))
    if result == -1 and ctypes.get_errno():
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def call(name: str, *arguments: Any) -> int:
    """Make a system call by its name; bytes are texts that end with NUL."""
    return _system_call(ctypes.CDLL(None, use_errno=True), name, arguments)


def fork_call(name: str, *arguments: Any) -> int:
    """Make a system call that starts a process, end that at once, and return its id."""
    library = ctypes.PyDLL(None, use_errno=True)  # holds the interpreter's lock meanwhile
    pid = _system_call(library, name, arguments)
    if pid == 0:
        library._exit(0)
    with contextlib.suppress(OSError):
        os.waitpid(pid, 0)
    return pid


@contextlib.contextmanager
def opened(path: str | Path, flags: int, folder: int | None = None) -> Iterator[int]:
    """Open a file or folder for the block."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o755, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def work_file(sandbox: _Sandbox, content: bytes = b"own") -> Iterator[Path]:
    """Make an executable file in the work folder for the block."""
    path = sandbox.work_path()
    with opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY) as descriptor:
        os.write(descriptor, content)
    try:
        yield path
    finally:
        undo(path.unlink)


@contextlib.contextmanager
def work_subfolder(sandbox: _Sandbox) -> Iterator[Path]:
    """Make a folder in the work folder for the block."""
    path = sandbox.work_path()
    path.mkdir()
    try:
        yield path
    finally:
        undo(path.rmdir)


@contextlib.contextmanager
def work_link(sandbox: _Sandbox, target: str) -> Iterator[Path]:
    """Make a symbolic link in the work folder for the block."""
    path = sandbox.work_path()
    path.symlink_to(target)
    try:
        yield path
    finally:
        undo(path.unlink)


def undo(action: Callable[..., object], *arguments: Any) -> None:
    """Take back what an attempt did; where that is refused, the attempt counts all the same."""
    with contextlib.suppress(OSError):
        action(*arguments)


def judge_content(sandbox: _Sandbox, content: bytes, secret: bytes | None = None) -> _Answer:
    """Say what was read."""
    if (secret or sandbox.secret) in content:
        return escaped("read the secret")
    return contained(f"read {len(content)} bytes without the secret")


def read_secret(sandbox: _Sandbox, path: str | Path, folder: int | None = None) -> _Answer:
    """Open a file and look for the secret in it."""
    with opened(path, os.O_RDONLY, folder) as descriptor:
        return judge_content(sandbox, os.read(descriptor, 65536))


def run_program(arguments: list[str]) -> int:
    """Run a program without output and return its exit code."""
    finished = subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=ATTEMPT_SECONDS,
        check=False,
    )
    return finished.returncode


# Files outside: reading.

FILES = "files outside"


def _add_reading(name: str, prefix: Callable[[_Sandbox], str]) -> None:
    @attempt(FILES, name)
    def run(sandbox: _Sandbox) -> _Answer:
        return read_secret(sandbox, prefix(sandbox) + sandbox.outside_file)


_add_reading("read a file outside", lambda sandbox: "")
_add_reading("read a file outside through /proc/self/root", lambda sandbox: "/proc/self/root")
_add_reading(
    "read a file outside through the parent's root", lambda s: f"/proc/{s.parent_pid}/root"
)
_add_reading(
    "read a file outside through the victim's root", lambda s: f"/proc/{s.victim_pid}/root"
)
_add_reading("read a file outside through the first process's root", lambda sandbox: "/proc/1/root")
_add_reading(
    "read a file outside through the parent's folder",
    lambda s: f"/proc/{s.parent_pid}/cwd/../../..",
)
_add_reading("read a file outside by parent folders", lambda s: s.work_folder + "/.." * 40)


@attempt(FILES, "see an outside file's size")
def see_size(sandbox: _Sandbox) -> _Answer:
    """Visible names and sizes are documented for Landlock."""
    size = Path(sandbox.outside_file).stat().st_size
    return contained(f"stat tells {size} bytes, which is documented")


@attempt(FILES, "list a folder outside")
def list_folder(sandbox: _Sandbox) -> _Answer:
    """List the folder outside."""
    count = len(list(Path(sandbox.outside_folder).iterdir()))
    return sandbox.judge_folder(sandbox.outside_folder, f"listed {count} names")


@attempt(FILES, "read a file outside through a symbolic link")
def read_by_link(sandbox: _Sandbox) -> _Answer:
    """The link is in the work folder."""
    with work_link(sandbox, sandbox.outside_file) as path:
        return read_secret(sandbox, path)


@attempt(FILES, "read a file outside through a link to a process's root")
def read_by_root_link(sandbox: _Sandbox) -> _Answer:
    """Links of /proc lead to folders without a walk."""
    with work_link(sandbox, "/proc/self/root") as path:
        return read_secret(sandbox, f"{path}{sandbox.outside_file}")


@attempt(FILES, "read a file outside by hard link")
def read_by_hard_link(sandbox: _Sandbox) -> _Answer:
    """Link the file into the work folder."""
    path = sandbox.work_path()
    path.hardlink_to(sandbox.outside_file)
    try:
        return read_secret(sandbox, path)
    except OSError as error:
        return escaped(f"linked the file; reading it says {_code(error)}")
    finally:
        undo(path.unlink)


@attempt(FILES, "read a file outside by hard link of a descriptor")
def read_by_descriptor_link(sandbox: _Sandbox) -> _Answer:
    """Link an O_PATH descriptor into the work folder."""
    path = sandbox.work_path()
    with opened(sandbox.outside_file, OPEN_PATH) as descriptor:
        try:
            call("linkat", descriptor, b"", AT_CURRENT_FOLDER, os.fsencode(path), AT_EMPTY_PATH)
        except OSError:
            source = f"/proc/self/fd/{descriptor}".encode()
            call("linkat", AT_CURRENT_FOLDER, source, AT_CURRENT_FOLDER, os.fsencode(path), 0x400)
    try:
        return read_secret(sandbox, path)
    except OSError as error:
        return escaped(f"linked the file; reading it says {_code(error)}")
    finally:
        undo(path.unlink)


@attempt(FILES, "read a file outside by opening a path descriptor again")
def read_by_path_descriptor(sandbox: _Sandbox) -> _Answer:
    """O_PATH needs no right to read; /proc/self/fd opens it again."""
    with opened(sandbox.outside_file, OPEN_PATH) as descriptor:
        return read_secret(sandbox, f"/proc/self/fd/{descriptor}")


@attempt(FILES, "read a file outside below a folder's path descriptor")
def read_below_descriptor(sandbox: _Sandbox) -> _Answer:
    """Open the folder with O_PATH and walk from there."""
    path = Path(sandbox.outside_file)
    with opened(path.parent, OPEN_PATH | os.O_DIRECTORY) as folder:
        return read_secret(sandbox, path.name, folder)


@attempt(FILES, "read a file outside by openat2")
def read_by_openat2(sandbox: _Sandbox) -> _Answer:
    """A younger call than open."""
    how = struct.pack("QQQ", os.O_RDONLY | os.O_CLOEXEC, 0, 0)
    path = os.fsencode(sandbox.outside_file)
    descriptor = call("openat2", AT_CURRENT_FOLDER, path, ctypes.create_string_buffer(how), 24)
    try:
        return judge_content(sandbox, os.read(descriptor, 65536))
    finally:
        os.close(descriptor)


@attempt(FILES, "read a file outside by its handle")
def read_by_handle(sandbox: _Sandbox) -> _Answer:
    """Ask for a handle and open it on mounts that are reachable."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 8 + 128)
    path = os.fsencode(sandbox.outside_file)
    mount_id = ctypes.c_int()
    call("name_to_handle_at", AT_CURRENT_FOLDER, path, handle, ctypes.byref(mount_id), 0)
    return _open_handle(sandbox, handle, "")


@attempt(FILES, "read a file outside by a guessed handle")
def read_by_guessed_handle(sandbox: _Sandbox) -> _Answer:
    """Inode 2 of any generation is the root of an ext4 file system."""
    handle = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, 2, 0), 8 + 128)
    return _open_handle(sandbox, handle, sandbox.outside_file.lstrip("/"))


def _open_handle(sandbox: _Sandbox, handle: ctypes.Array[ctypes.c_char], below: str) -> _Answer:
    failure: OSError = FileNotFoundError(errno.ENOENT, "no mount")
    for mount in (sandbox.work_folder, "/", "/usr"):
        with contextlib.suppress(FileNotFoundError), opened(mount, os.O_RDONLY) as folder:
            try:
                descriptor = call("open_by_handle_at", folder, handle, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                failure = error
                continue
            try:
                if below:
                    return read_secret(sandbox, below, descriptor)
                return judge_content(sandbox, os.read(descriptor, 65536))
            finally:
                os.close(descriptor)
    raise failure


@attempt(FILES, "read a file outside after chroot")
def read_after_chroot(sandbox: _Sandbox) -> _Answer:
    """Change the root with the working folder outside of it, and walk up."""
    with (
        work_subfolder(sandbox) as path,
        opened("/", os.O_RDONLY) as root,
        opened(".", os.O_RDONLY) as current,
    ):
        call("unshare", 0x200)  # the folders of this thread only
        call("chroot", os.fsencode(path))
        try:
            os.fchdir(root)
            return read_secret(sandbox, "../" * 40 + sandbox.outside_file.lstrip("/"))
        finally:
            os.fchdir(root)
            call("chroot", b".")
            os.fchdir(current)


@attempt(FILES, "read a file outside through a bind mount")
def read_by_bind_mount(sandbox: _Sandbox) -> _Answer:
    """Mount the folder outside below the work folder."""
    path = Path(sandbox.outside_file)
    with work_subfolder(sandbox) as point:
        call("mount", os.fsencode(path.parent), os.fsencode(point), None, MOUNT_BIND, None)
        try:
            return read_secret(sandbox, point / path.name)
        finally:
            undo(call, "umount2", os.fsencode(point), DETACH_MOUNT)


@attempt(FILES, "read a file outside through a detached mount")
def read_by_open_tree(sandbox: _Sandbox) -> _Answer:
    """Clone the mount of the folder outside."""
    path = Path(sandbox.outside_file)
    flags = 1 | os.O_CLOEXEC  # OPEN_TREE_CLONE
    tree = call("open_tree", AT_CURRENT_FOLDER, os.fsencode(path.parent), flags)
    try:
        return read_secret(sandbox, path.name, tree)
    finally:
        os.close(tree)


@attempt(FILES, "read a file outside in a new user and mount namespace", only_in_child=True)
def read_in_new_namespace(sandbox: _Sandbox) -> _Answer:
    """Become root there, and mount the whole tree below the work folder."""
    with work_subfolder(sandbox) as point:
        call("unshare", NAMESPACES["user"] | NAMESPACES["mnt"])
        call("mount", b"none", b"/", None, MOUNT_PRIVATE, None)
        call("mount", b"/", os.fsencode(point), None, MOUNT_BIND | 0x4000, None)
        try:
            return read_secret(sandbox, f"{point}{sandbox.outside_file}")
        except FileNotFoundError:
            return contained("mounted in a namespace of its own; the file is not there")
        finally:
            undo(call, "umount2", os.fsencode(point), DETACH_MOUNT)


@attempt(FILES, "watch a folder outside by inotify")
def watch_by_inotify(sandbox: _Sandbox) -> _Answer:
    """A watch tells the names of files that others make."""
    descriptor = call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        call("inotify_add_watch", descriptor, os.fsencode(sandbox.outside_folder), 0xFFF)
    finally:
        os.close(descriptor)
    return sandbox.judge_folder(sandbox.outside_folder, "the folder is watched")


@attempt(FILES, "watch a folder outside by fanotify")
def watch_by_fanotify(sandbox: _Sandbox) -> _Answer:
    """Groups that report file ids need no privilege."""
    descriptor = call("fanotify_init", 0x200 | 0x3, os.O_RDONLY)
    try:
        path = os.fsencode(sandbox.outside_folder)
        call("fanotify_mark", descriptor, 1, 0x8000112, AT_CURRENT_FOLDER, path)
    finally:
        os.close(descriptor)
    return sandbox.judge_folder(sandbox.outside_folder, "the folder is watched")


# Files outside: changing.


@attempt(FILES, "create a file outside")
def create_file(sandbox: _Sandbox) -> _Answer:
    """In the folder outside."""
    path = sandbox.outside_path()
    with opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY) as descriptor:
        os.write(descriptor, b"probe")
    undo(path.unlink)
    return sandbox.judge_folder(sandbox.outside_folder, "created and wrote a file")


@attempt(FILES, "create a file outside by a nameless one")
def create_by_nameless(sandbox: _Sandbox) -> _Answer:
    """O_TMPFILE, then linkat."""
    path = sandbox.outside_path()
    with opened(sandbox.outside_folder, OPEN_TEMPORARY | os.O_WRONLY) as descriptor:
        source = f"/proc/self/fd/{descriptor}".encode()
        target = os.fsencode(path)
        call("linkat", AT_CURRENT_FOLDER, source, AT_CURRENT_FOLDER, target, 0x400)
    undo(path.unlink)
    return sandbox.judge_folder(sandbox.outside_folder, "linked a nameless file")


@attempt(FILES, "write a nameless file outside")
def write_nameless(sandbox: _Sandbox) -> _Answer:
    """O_TMPFILE takes space outside without a name."""
    with opened(sandbox.outside_folder, OPEN_TEMPORARY | os.O_WRONLY) as descriptor:
        os.write(descriptor, b"probe")
    return sandbox.judge_folder(sandbox.outside_folder, "wrote a nameless file")


@attempt(FILES, "make a folder outside")
def make_folder(sandbox: _Sandbox) -> _Answer:
    """In the folder outside."""
    path = sandbox.outside_path()
    path.mkdir()
    undo(path.rmdir)
    return sandbox.judge_folder(sandbox.outside_folder, "made and removed a folder")


@attempt(FILES, "make a symbolic link outside")
def make_link(sandbox: _Sandbox) -> _Answer:
    """In the folder outside."""
    path = sandbox.outside_path()
    path.symlink_to("/")
    undo(path.unlink)
    return sandbox.judge_folder(sandbox.outside_folder, "made a symbolic link")


@attempt(FILES, "make a pipe outside")
def make_pipe(sandbox: _Sandbox) -> _Answer:
    """In the folder outside."""
    path = sandbox.outside_path()
    os.mkfifo(path)
    undo(path.unlink)
    return sandbox.judge_folder(sandbox.outside_folder, "made a named pipe")


@attempt(FILES, "link an own file outside")
def link_outside(sandbox: _Sandbox) -> _Answer:
    """Hard link from the work folder."""
    path = sandbox.outside_path()
    with work_file(sandbox) as source:
        path.hardlink_to(source)
        undo(path.unlink)
    return sandbox.judge_folder(sandbox.outside_folder, "linked an own file there")


@attempt(FILES, "rename an own file outside")
def rename_outside(sandbox: _Sandbox) -> _Answer:
    """From the work folder."""
    path = sandbox.outside_path()
    with work_file(sandbox) as source:
        source.rename(path)
        undo(path.unlink)
    return sandbox.judge_folder(sandbox.outside_folder, "moved an own file there")


@attempt(FILES, "rename an own folder outside")
def rename_folder_outside(sandbox: _Sandbox) -> _Answer:
    """Its parent folder would then be the folder outside."""
    path = sandbox.outside_path()
    with work_subfolder(sandbox) as source:
        source.rename(path)
        undo(path.rename, source)
    return sandbox.judge_folder(sandbox.outside_folder, "moved an own folder there")


@attempt(FILES, "rename a file outside into the work folder")
def rename_inside(sandbox: _Sandbox) -> _Answer:
    """And back."""
    path = sandbox.work_path()
    Path(sandbox.outside_file).rename(path)
    undo(path.rename, sandbox.outside_file)
    return escaped("moved the file into the work folder")


@attempt(FILES, "exchange a file outside with an own one")
def exchange_files(sandbox: _Sandbox) -> _Answer:
    """And back."""
    with work_file(sandbox) as path:
        names = (AT_CURRENT_FOLDER, os.fsencode(path))
        others = (AT_CURRENT_FOLDER, os.fsencode(sandbox.outside_file))
        call("renameat2", *names, *others, 2)
        undo(call, "renameat2", *names, *others, 2)
    return escaped("exchanged the file with an own one")


@attempt(FILES, "rename the folder outside")
def rename_folder(sandbox: _Sandbox) -> _Answer:
    """And back."""
    path = Path(sandbox.outside_folder)
    changed = path.with_name(sandbox.new_name())
    own = sandbox.judge_folder(sandbox.outside_folder, "renamed the folder")
    path.rename(changed)
    undo(changed.rename, path)
    return own


def _overwrite(sandbox: _Sandbox, path: str) -> _Answer:
    with opened(path, os.O_WRONLY) as descriptor:
        os.write(descriptor, sandbox.secret)
    return escaped("wrote the file, with what it held")


@attempt(FILES, "write a file outside")
def write_file(sandbox: _Sandbox) -> _Answer:
    """Write what is in it already."""
    return _overwrite(sandbox, sandbox.outside_file)


@attempt(FILES, "write a file outside by opening a path descriptor again")
def write_by_path_descriptor(sandbox: _Sandbox) -> _Answer:
    """O_PATH needs no right to write."""
    with opened(sandbox.outside_file, OPEN_PATH) as descriptor:
        return _overwrite(sandbox, f"/proc/self/fd/{descriptor}")


@attempt(FILES, "write a file outside through the victim's root")
def write_by_victim(sandbox: _Sandbox) -> _Answer:
    """As reading, for writing."""
    return _overwrite(sandbox, f"/proc/{sandbox.victim_pid}/root{sandbox.outside_file}")


@attempt(FILES, "write through a detached mount without its flags")
def write_by_open_tree(sandbox: _Sandbox) -> _Answer:
    """Clone the mount, take read-only away, and create a file in it."""
    flags = 1 | os.O_CLOEXEC
    tree = call("open_tree", AT_CURRENT_FOLDER, os.fsencode(sandbox.outside_folder), flags)
    name = sandbox.new_name()
    try:
        attributes = ctypes.create_string_buffer(struct.pack("QQQQ", 0, 1, 0, 0))
        with contextlib.suppress(OSError):
            call("mount_setattr", tree, b"", AT_EMPTY_PATH, attributes, 32)
        with opened(name, os.O_CREAT | os.O_WRONLY, tree):
            undo(lambda: os.unlink(name, dir_fd=tree))
    finally:
        os.close(tree)
    return sandbox.judge_folder(sandbox.outside_folder, "created a file")


@attempt(FILES, "truncate a file outside")
def truncate_file(sandbox: _Sandbox) -> _Answer:
    """To the size that it has."""
    os.truncate(sandbox.outside_file, Path(sandbox.outside_file).stat().st_size)
    return escaped("truncate was allowed, to the same size")


@attempt(FILES, "change an outside file's mode")
def change_mode(sandbox: _Sandbox) -> _Answer:
    """To the mode that it has."""
    path = Path(sandbox.outside_file)
    status = path.stat()
    path.chmod(stat.S_IMODE(status.st_mode))
    return sandbox.judge_change(status, "chmod was allowed, to the same mode")


@attempt(FILES, "change an outside file's mode by a path descriptor")
def change_mode_by_descriptor(sandbox: _Sandbox) -> _Answer:
    """By fchmodat2, which is younger than most filters."""
    status = Path(sandbox.outside_file).stat()
    with opened(sandbox.outside_file, OPEN_PATH) as descriptor:
        call("fchmodat2", descriptor, b"", stat.S_IMODE(status.st_mode), AT_EMPTY_PATH)
    return sandbox.judge_change(status, "fchmodat2 was allowed, to the same mode")


@attempt(FILES, "change an outside file's owner")
def change_owner(sandbox: _Sandbox) -> _Answer:
    """To the owner that it has."""
    status = Path(sandbox.outside_file).stat()
    os.chown(sandbox.outside_file, status.st_uid, status.st_gid)
    return sandbox.judge_change(status, "chown was allowed, to the same owner")


@attempt(FILES, "change an outside file's times")
def change_times(sandbox: _Sandbox) -> _Answer:
    """To the times that it has."""
    status = Path(sandbox.outside_file).stat()
    os.utime(sandbox.outside_file, ns=(status.st_atime_ns, status.st_mtime_ns))
    return sandbox.judge_change(status, "utime was allowed, to the same times")


@attempt(FILES, "set an outside file's extended attribute")
def set_attribute(sandbox: _Sandbox) -> _Answer:
    """And remove it."""
    os.setxattr(sandbox.outside_file, "user.probe", b"1")
    undo(os.removexattr, sandbox.outside_file, "user.probe")
    return escaped("set an extended attribute")


@attempt(FILES, "delete a file outside")
def delete_file(sandbox: _Sandbox) -> _Answer:
    """And write it anew."""
    path = Path(sandbox.outside_file)
    content, mode = sandbox.secret, 0o600
    with contextlib.suppress(OSError):
        content, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    path.unlink()
    with contextlib.suppress(OSError):
        with opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY) as descriptor:
            os.write(descriptor, content)
        path.chmod(mode)
        return escaped("deleted the file, and wrote it anew")
    return escaped("deleted the file, and could not write it anew")


# Folders of the person and of the system.

PERSON = "home and system folders"


@attempt(PERSON, "list the home folder")
def list_home(sandbox: _Sandbox) -> _Answer:
    """Documented: no access to the home folder."""
    count = len(list(Path(sandbox.home).iterdir()))
    return sandbox.judge_folder(sandbox.home, f"listed {count} names")


@attempt(PERSON, "read a file of the home folder")
def read_home(sandbox: _Sandbox) -> _Answer:
    """Files that most homes have, and what a listing gives."""
    home = Path(sandbox.home)
    names = [".bashrc", ".profile", ".bash_history", ".zshrc", ".gitconfig"]
    with contextlib.suppress(OSError):
        names += [path.name for path in home.iterdir() if path.is_file()]
    failure: OSError = FileNotFoundError(errno.ENOENT, "no file")
    for name in names:
        try:
            with opened(home / name, os.O_RDONLY) as descriptor:
                os.read(descriptor, 1)
        except OSError as error:
            failure = error if error.errno != errno.ENOENT else failure
            continue
        return sandbox.judge_folder(sandbox.home, "read a file")
    raise failure


def _add_creating(name: str, folder: Callable[[_Sandbox], str]) -> None:
    @attempt(PERSON, name)
    def run(sandbox: _Sandbox) -> _Answer:
        path = Path(folder(sandbox)) / sandbox.new_name()
        with opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY):
            undo(path.unlink)
        return sandbox.judge_folder(folder(sandbox), "created a file")


_add_creating("create a file in the home folder", lambda sandbox: sandbox.home)
_add_creating("create a file in /tmp", lambda sandbox: "/tmp")
_add_creating("create a file in /var/tmp", lambda sandbox: "/var/tmp")
_add_creating("create a file in /etc", lambda sandbox: "/etc")
_add_creating("create a file in /usr/local", lambda sandbox: "/usr/local")
_add_creating("create a file in python's folder", lambda sandbox: sys.prefix)
_add_creating(
    "create a file beside python's modules",
    lambda sandbox: str(Path(json.__file__).parent),
)


# Folders of other conversations.

MORE_GROUP = "other conversations"


@attempt(MORE_GROUP, "read another's file")
def read_other(sandbox: _Sandbox) -> _Answer:
    """By its path."""
    return read_secret(sandbox, Path(sandbox.other_folder) / "private")


@attempt(MORE_GROUP, "read another's file by a relative path")
def read_other_beside(sandbox: _Sandbox) -> _Answer:
    """From the own work folder, where they lie side by side."""
    relative = os.path.relpath(sandbox.other_folder, sandbox.work_folder)
    with opened(sandbox.work_folder, os.O_RDONLY) as folder:
        return read_secret(sandbox, f"{relative}/private", folder)


@attempt(MORE_GROUP, "read another's file through a symbolic link")
def read_other_by_link(sandbox: _Sandbox) -> _Answer:
    """The link is in the work folder."""
    with work_link(sandbox, sandbox.other_folder) as path:
        return read_secret(sandbox, path / "private")


@attempt(MORE_GROUP, "read another's file by hard link")
def read_other_by_hard_link(sandbox: _Sandbox) -> _Answer:
    """Both are on one file system."""
    path = sandbox.work_path()
    path.hardlink_to(Path(sandbox.other_folder) / "private")
    try:
        return read_secret(sandbox, path)
    except OSError as error:
        return escaped(f"linked the file; reading it says {_code(error)}")
    finally:
        undo(path.unlink)


@attempt(MORE_GROUP, "list another's folder")
def list_other(sandbox: _Sandbox) -> _Answer:
    """List its names."""
    count = len(list(Path(sandbox.other_folder).iterdir()))
    return sandbox.judge_folder(sandbox.other_folder, f"listed {count} names")


@attempt(MORE_GROUP, "list the folder of all conversations")
def list_conversations(sandbox: _Sandbox) -> _Answer:
    """The names tell how many there are."""
    names = {path.name for path in Path(sandbox.other_folder).parent.iterdir()}
    if Path(sandbox.other_folder).name in names:
        return escaped("listed the other conversation's folder")
    return contained(f"listed {len(names)} names, not the other conversation's")


@attempt(MORE_GROUP, "create a file in another's folder")
def create_in_other(sandbox: _Sandbox) -> _Answer:
    """And remove it."""
    path = Path(sandbox.other_folder) / sandbox.new_name()
    with opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY):
        undo(path.unlink)
    return sandbox.judge_folder(sandbox.other_folder, "created a file")


@attempt(MORE_GROUP, "rename another's file")
def rename_other(sandbox: _Sandbox) -> _Answer:
    """Into the work folder, and back."""
    path = sandbox.work_path()
    other = Path(sandbox.other_folder) / "private"
    other.rename(path)
    undo(path.rename, other)
    return escaped("moved the file")


# Processes of others.

PROCESSES = "processes"
QUIET_SIGNAL = signal.SIGURG


def _signal_text(pid: int) -> ctypes.Array[ctypes.c_char]:
    """Fill a siginfo as sigqueue does."""
    head = struct.pack("iii", QUIET_SIGNAL, 0, -1)  # SI_QUEUE
    return ctypes.create_string_buffer(head + struct.pack("iii", 0, os.getpid(), os.getuid()), 128)


def _add_signal(name: str, send: Callable[[int], object]) -> None:
    for whose in ("victim", "parent"):
        _add_signal_to(name.format(whose), whose, send)


def _add_signal_to(name: str, whose: str, send: Callable[[int], object]) -> None:
    @attempt(PROCESSES, name)
    def run(sandbox: _Sandbox) -> _Answer:
        pid = sandbox.victim_pid if whose == "victim" else sandbox.parent_pid
        send(pid)
        return sandbox.judge_process(pid, "the signal was accepted for")


def _send_by_pidfd(pid: int) -> None:
    descriptor = call("pidfd_open", pid, 0)
    try:
        call("pidfd_send_signal", descriptor, int(QUIET_SIGNAL), None, 0)
    finally:
        os.close(descriptor)


def _send_by_folder(pid: int) -> None:
    with opened(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        call("pidfd_send_signal", descriptor, int(QUIET_SIGNAL), None, 0)


_add_signal("ask by kill with signal 0 for the {}", lambda pid: os.kill(pid, 0))
_add_signal("signal the {} by kill", lambda pid: os.kill(pid, QUIET_SIGNAL))
_add_signal("signal the {} by tgkill", lambda pid: call("tgkill", pid, pid, int(QUIET_SIGNAL)))
_add_signal_to(
    "signal the victim by tkill", "victim", lambda p: call("tkill", p, int(QUIET_SIGNAL))
)
_add_signal_to(
    "signal the victim by rt_sigqueueinfo",
    "victim",
    lambda pid: call("rt_sigqueueinfo", pid, int(QUIET_SIGNAL), _signal_text(pid)),
)
_add_signal_to(
    "signal the victim by rt_tgsigqueueinfo",
    "victim",
    lambda pid: call("rt_tgsigqueueinfo", pid, pid, int(QUIET_SIGNAL), _signal_text(pid)),
)
_add_signal("signal the {} by pidfd", _send_by_pidfd)
_add_signal_to("signal the victim by its folder of /proc", "victim", _send_by_folder)


@attempt(PROCESSES, "signal the victim's process group")
def signal_group(sandbox: _Sandbox) -> _Answer:
    """With signal 0, to the group of the victim or of the parent."""
    # 0 in a container whose first process leads no session: the group has no number there.
    group = os.getpgid(sandbox.victim_pid) or sandbox.victim_pid
    os.killpg(group, 0)
    return sandbox.judge_process(sandbox.victim_pid, "signal 0 was accepted for the group of")


@attempt(PROCESSES, "signal all processes")
def signal_all(sandbox: _Sandbox) -> _Answer:
    """Signal 0 to -1 says whether any other process can be signalled."""
    os.kill(-1, 0)
    if "pid" in sandbox.own_namespaces:
        return contained("all processes of the sandbox's own pid namespace")
    try:
        os.kill(sandbox.victim_pid, 0)
    except OSError:
        return contained("some process accepts signals, the victim does not")
    return escaped("kill with signal 0 was accepted for all, the victim too")


@attempt(PROCESSES, "share the parent's session")
def share_session(sandbox: _Sandbox) -> _Answer:
    """The sandbox is documented to have its own."""
    session = os.getsid(0)
    if session == 0:
        return escaped("the session's leader is outside of the pid namespace")
    if "pid" not in sandbox.own_namespaces and session == os.getsid(sandbox.parent_pid):
        return escaped("the session is the parent's")
    return refused("a session of its own")


def _use_owned_descriptor(sandbox: _Sandbox, own: Callable[[int], None], by_pipe: bool) -> _Answer:
    """Make a descriptor signal the victim when data arrive, then make data arrive."""
    descriptors: list[int] = []
    if by_pipe:
        descriptors += os.pipe()
    else:
        pair = socket.socketpair()
        descriptors += [end.detach() for end in pair]
    reader, writer = descriptors
    try:
        own(reader)
        os.write(writer, b"x")
    finally:
        os.close(reader)
        os.close(writer)
    return sandbox.judge_process(sandbox.victim_pid, "a descriptor signals")


def _set_signal(descriptor: int) -> None:
    fcntl.fcntl(descriptor, 10, int(QUIET_SIGNAL))  # F_SETSIG
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)


@attempt(PROCESSES, "signal the victim by a socket's owner")
def signal_by_owner(sandbox: _Sandbox) -> _Answer:
    """F_SETOWN, F_SETSIG, O_ASYNC."""

    def own(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, sandbox.victim_pid)
        _set_signal(descriptor)

    return _use_owned_descriptor(sandbox, own, by_pipe=False)


@attempt(PROCESSES, "signal the victim by a pipe's owner")
def signal_by_pipe_owner(sandbox: _Sandbox) -> _Answer:
    """F_SETOWN_EX, F_SETSIG, O_ASYNC."""

    def own(descriptor: int) -> None:
        fcntl.fcntl(descriptor, 15, struct.pack("ii", 1, sandbox.victim_pid))  # F_OWNER_PID
        _set_signal(descriptor)

    return _use_owned_descriptor(sandbox, own, by_pipe=True)


@attempt(PROCESSES, "signal the victim by ioctl of a socket")
def signal_by_ioctl(sandbox: _Sandbox) -> _Answer:
    """Urgent data signal the owner without O_ASYNC, whose SIGIO would end the victim."""
    first, second = socket.socketpair()
    with first, second:
        fcntl.ioctl(first.fileno(), 0x8901, struct.pack("i", sandbox.victim_pid))  # FIOSETOWN
        second.send(b"x", socket.MSG_OOB)
    return sandbox.judge_process(sandbox.victim_pid, "a descriptor signals")


@attempt(PROCESSES, "open a pidfd of the victim")
def open_pidfd(sandbox: _Sandbox) -> _Answer:
    """It tells that the process exists, and when it ends."""
    os.close(call("pidfd_open", sandbox.victim_pid, 0))
    return contained("tells only that the process exists")


@attempt(PROCESSES, "take a descriptor of the victim by pidfd_getfd")
def take_descriptor(sandbox: _Sandbox) -> _Answer:
    """One of its first three."""
    pidfd = call("pidfd_open", sandbox.victim_pid, 0)
    failure: OSError = OSError(errno.EBADF, "none of its descriptors")
    try:
        for number in range(3):
            try:
                os.close(call("pidfd_getfd", pidfd, number, 0))
            except OSError as error:
                failure = error
                continue
            return sandbox.judge_process(sandbox.victim_pid, f"took descriptor {number} of")
    finally:
        os.close(pidfd)
    raise failure


@attempt(PROCESSES, "trace the victim by ptrace")
def trace_victim(sandbox: _Sandbox) -> _Answer:
    """PTRACE_SEIZE does not stop it; the end of the tracer lets it go."""
    call("ptrace", 0x4206, sandbox.victim_pid, 0, 0)
    return sandbox.judge_process(sandbox.victim_pid, "traced")


@attempt(PROCESSES, "trace the parent by ptrace")
def trace_parent(sandbox: _Sandbox) -> _Answer:
    """As the victim; the parent goes on meanwhile."""
    call("ptrace", 0x4206, sandbox.parent_pid, 0, 0)
    return sandbox.judge_process(sandbox.parent_pid, "traced")


def _stack_address(pid: int) -> int:
    """Return an address in the stack of a process, or 4096 where its maps are out of reach."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith("[stack]"):
                return int(line.split("-")[0], 16)
    return 4096


def _move_memory(sandbox: _Sandbox, name: str, address: int) -> _Answer:
    """Move 8 bytes; a wrong address fails only after the rights were looked at."""
    buffer = ctypes.create_string_buffer(8)
    local = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(buffer), 8))
    remote = ctypes.create_string_buffer(struct.pack("QQ", address, 8))
    try:
        call(name, sandbox.victim_pid, local, 1, remote, 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise
        return sandbox.judge_process(sandbox.victim_pid, "access was given, at no address of")
    return sandbox.judge_process(sandbox.victim_pid, "moved 8 bytes of the memory of")


@attempt(PROCESSES, "read the victim's memory by process_vm_readv")
def read_memory_by_call(sandbox: _Sandbox) -> _Answer:
    """From its stack, where its maps can be read."""
    return _move_memory(sandbox, "process_vm_readv", _stack_address(sandbox.victim_pid))


@attempt(PROCESSES, "write the victim's memory by process_vm_writev")
def write_memory_by_call(sandbox: _Sandbox) -> _Answer:
    """To an address where nothing is, so that nothing changes."""
    return _move_memory(sandbox, "process_vm_writev", 4096)


@attempt(PROCESSES, "read the victim's memory by /proc")
def read_memory_file(sandbox: _Sandbox) -> _Answer:
    """/proc/PID/mem."""
    path = f"/proc/{sandbox.victim_pid}/mem"
    with opened(path, os.O_RDONLY) as descriptor, contextlib.suppress(OSError):
        os.pread(descriptor, 8, _stack_address(sandbox.victim_pid))
    return sandbox.judge_process(sandbox.victim_pid, "opened the memory of")


@attempt(PROCESSES, "write the victim's memory by /proc")
def write_memory_file(sandbox: _Sandbox) -> _Answer:
    """Open it for writing; write nothing."""
    with opened(f"/proc/{sandbox.victim_pid}/mem", os.O_RDWR):
        return sandbox.judge_process(sandbox.victim_pid, "opened for writing the memory of")


def _add_process_file(file: str) -> None:
    @attempt(PROCESSES, f"read the victim's {file}")
    def run(sandbox: _Sandbox) -> _Answer:
        with opened(f"/proc/{sandbox.victim_pid}/{file}", os.O_RDONLY) as descriptor:
            os.read(descriptor, 4096)
        return sandbox.judge_process(sandbox.victim_pid, f"read {file} of")


for _file in ("environ", "cmdline", "maps", "status", "auxv"):
    _add_process_file(_file)


@attempt(PROCESSES, "see the victim's program and folder")
def read_process_links(sandbox: _Sandbox) -> _Answer:
    """Links of /proc/PID."""
    folder = Path(f"/proc/{sandbox.victim_pid}")
    failure: OSError = FileNotFoundError(errno.ENOENT, "no link")
    for name in ("exe", "cwd", "root", "ns/mnt"):
        try:
            (folder / name).readlink()
        except OSError as error:
            failure = error
            continue
        return sandbox.judge_process(sandbox.victim_pid, f"read the link {name} of")
    raise failure


@attempt(PROCESSES, "list the victim's descriptors")
def list_process_descriptors(sandbox: _Sandbox) -> _Answer:
    """/proc/PID/fd."""
    count = len(list(Path(f"/proc/{sandbox.victim_pid}/fd").iterdir()))
    return sandbox.judge_process(sandbox.victim_pid, f"listed {count} descriptors of")


@attempt(PROCESSES, "open a descriptor of the parent by /proc")
def open_process_descriptor(sandbox: _Sandbox) -> _Answer:
    """One of its first three."""
    failure: OSError = FileNotFoundError(errno.ENOENT, "no descriptor")
    for number in range(3):
        try:
            with opened(f"/proc/{sandbox.parent_pid}/fd/{number}", os.O_RDONLY):
                return sandbox.judge_process(sandbox.parent_pid, f"opened descriptor {number} of")
        except OSError as error:
            failure = error
    raise failure


@attempt(PROCESSES, "list processes of others")
def list_processes(sandbox: _Sandbox) -> _Answer:
    """Look for the victim in /proc."""
    numbers = {path.name for path in Path("/proc").iterdir() if path.name.isdigit()}
    if "pid" not in sandbox.own_namespaces and str(sandbox.victim_pid) in numbers:
        return escaped("the victim is in the list of /proc")
    return contained(f"listed {len(numbers)} processes, not the victim")


@attempt(PROCESSES, "make the victim a better victim of the memory killer")
def change_memory_score(sandbox: _Sandbox) -> _Answer:
    """Write the score that it has."""
    path = Path(f"/proc/{sandbox.victim_pid}/oom_score_adj")
    path.write_text(path.read_text())
    return sandbox.judge_process(sandbox.victim_pid, "wrote oom_score_adj of")


@attempt(PROCESSES, "change the victim's limits")
def change_process_limits(sandbox: _Sandbox) -> _Answer:
    """To the limits that it has."""
    limits = resource.prlimit(sandbox.victim_pid, resource.RLIMIT_CORE)
    resource.prlimit(sandbox.victim_pid, resource.RLIMIT_CORE, limits)
    return sandbox.judge_process(sandbox.victim_pid, "set limits of")


@attempt(PROCESSES, "change the victim's priority")
def change_priority(sandbox: _Sandbox) -> _Answer:
    """To the priority that it has."""
    priority = os.getpriority(os.PRIO_PROCESS, sandbox.victim_pid)
    os.setpriority(os.PRIO_PROCESS, sandbox.victim_pid, priority)
    return sandbox.judge_process(sandbox.victim_pid, "set the priority of")


@attempt(PROCESSES, "change the victim's scheduling")
def change_scheduling(sandbox: _Sandbox) -> _Answer:
    """To the processors, or the policy, or the disk priority that it has."""
    pid = sandbox.victim_pid
    failures = []
    try:
        os.sched_setaffinity(pid, os.sched_getaffinity(pid))
        return sandbox.judge_process(pid, "set the processors of")
    except OSError as error:
        failures.append(error)
    try:
        os.sched_setscheduler(pid, os.sched_getscheduler(pid), os.sched_getparam(pid))
        return sandbox.judge_process(pid, "set the policy of")
    except OSError as error:
        failures.append(error)
    call("ioprio_set", 1, pid, call("ioprio_get", 1, pid))
    return sandbox.judge_process(pid, "set the disk priority of")


@attempt(PROCESSES, "compare resources with the victim by kcmp")
def compare_resources(sandbox: _Sandbox) -> _Answer:
    """It needs the right to trace."""
    call("kcmp", os.getpid(), sandbox.victim_pid, 1, 0, 0)
    return sandbox.judge_process(sandbox.victim_pid, "compared memory with")


@attempt(PROCESSES, "ask for the victim's memory pages and locks")
def ask_for_pages(sandbox: _Sandbox) -> _Answer:
    """get_robust_list or move_pages; both need the right to trace."""
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    with contextlib.suppress(OSError):
        call("get_robust_list", sandbox.victim_pid, ctypes.byref(head), ctypes.byref(size))
        return sandbox.judge_process(sandbox.victim_pid, "got an address of")
    call("move_pages", sandbox.victim_pid, 0, None, None, None, 0)
    return sandbox.judge_process(sandbox.victim_pid, "was let at the pages of")


# Sockets.

SOCKETS = "sockets"
ONLY_PAIRS = "documented: only stream pairs of sockets"


def new_socket(family: int, kind: int, protocol: int = 0) -> socket.socket:
    """Make a socket that does not block."""
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    return made


def _finish_connecting(made: socket.socket) -> None:
    """Wait until a connection is there; raise OSError where none comes."""
    select.select([], [made], [], ATTEMPT_SECONDS / 2)
    code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    made.getpeername()


def _connect(made: socket.socket, address: Any) -> None:
    try:
        made.connect(address)
    except BlockingIOError:
        if made.family != socket.AF_UNIX:
            _finish_connecting(made)


def _add_connecting(
    name: str, family: int, kind: int, protocol: int, address: Callable[[_Sandbox], Any]
) -> None:
    @attempt(SOCKETS, name)
    def run(sandbox: _Sandbox) -> _Answer:
        with new_socket(family, kind, protocol) as made:
            _connect(made, address(sandbox))
            if kind == socket.SOCK_DGRAM:
                made.send(b"probe")
        return sandbox.judge_namespace("net", "connected to the listener's address")


def _tcp(sandbox: _Sandbox) -> tuple[str, int]:
    return "127.0.0.1", int(sandbox.config["tcp_port"])


def _mapped(sandbox: _Sandbox) -> tuple[str, int]:
    return "::ffff:127.0.0.1", int(sandbox.config["tcp_port"])


def _udp(sandbox: _Sandbox) -> tuple[str, int]:
    return "127.0.0.1", int(sandbox.config["udp_port"])


_STREAM, _DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
_add_connecting("connect by TCP", socket.AF_INET, _STREAM, 0, _tcp)
_add_connecting("connect by TCP over IPv6", socket.AF_INET6, _STREAM, 0, _mapped)
_add_connecting("connect by MPTCP", socket.AF_INET, _STREAM, 262, _tcp)
_add_connecting("connect by SMC", 43, _STREAM, 0, _tcp)
_add_connecting("send by UDP", socket.AF_INET, _DATAGRAM, 0, _udp)


@attempt(SOCKETS, "send by UDP without connecting")
def send_by_udp(sandbox: _Sandbox) -> _Answer:
    """Also over an IPv6 socket."""
    address = _udp(sandbox)
    try:
        with new_socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.sendto(b"probe", address)
    except OSError:
        with new_socket(socket.AF_INET6, socket.SOCK_DGRAM) as made:
            made.sendto(b"probe", (f"::ffff:{address[0]}", address[1]))
    return sandbox.judge_namespace("net", "sent to the listener's address")


@attempt(SOCKETS, "connect by TCP fast open")
def connect_by_fast_open(sandbox: _Sandbox) -> _Answer:
    """Sends data without a call of connect, which filters may look at."""
    with new_socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        with contextlib.suppress(BlockingIOError):
            made.sendto(b"probe", 0x20000000, _tcp(sandbox))
        _finish_connecting(made)
    return sandbox.judge_namespace("net", "connected to the listener's address")


@attempt(SOCKETS, "find a route to the internet")
def find_route(sandbox: _Sandbox) -> _Answer:
    """Connecting a UDP socket sends nothing; the address is for documents."""
    with new_socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect(("192.0.2.1", 9))
        return escaped(f"there is a route, from {made.getsockname()[0]}")


@attempt(SOCKETS, "listen by TCP")
def listen_by_tcp(sandbox: _Sandbox) -> _Answer:
    """On a free port of 127.0.0.1."""
    with new_socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.bind(("127.0.0.1", 0))
        made.listen(1)
    return sandbox.judge_namespace("net", "listened on 127.0.0.1")


@attempt(SOCKETS, "listen by TCP without bind")
def listen_without_bind(sandbox: _Sandbox) -> _Answer:
    """Listening takes a free port of all addresses by itself."""
    with new_socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.listen(1)
    return sandbox.judge_namespace("net", "listened on all addresses")


@attempt(SOCKETS, "receive by UDP")
def receive_by_udp(sandbox: _Sandbox) -> _Answer:
    """On a free port of 127.0.0.1."""
    with new_socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
    return sandbox.judge_namespace("net", "bound a port of 127.0.0.1")


def _add_making(name: str, family: int, kinds: tuple[int, ...], protocol: int = 0) -> None:
    @attempt(SOCKETS, name)
    def run(sandbox: _Sandbox) -> _Answer:
        failure: OSError = OSError(errno.EAFNOSUPPORT, "")
        for kind in kinds:
            try:
                new_socket(family, kind, protocol).close()
            except OSError as error:
                failure = error
                continue
            return escaped(f"made one; {ONLY_PAIRS}")
        raise failure


_RAW, _SEQUENCE = socket.SOCK_RAW, socket.SOCK_SEQPACKET
_add_making("make an IPv4 stream socket", socket.AF_INET, (_STREAM,))
_add_making("make an IPv4 datagram socket", socket.AF_INET, (_DATAGRAM,))
_add_making("make an IPv6 socket", socket.AF_INET6, (_STREAM, _DATAGRAM))
_add_making("make a raw socket", socket.AF_INET, (_RAW,), 1)
_add_making("make a ping socket", socket.AF_INET, (_DATAGRAM,), 1)
_add_making("make an SCTP socket", socket.AF_INET, (_STREAM, _SEQUENCE), 132)
_add_making("make a packet socket", socket.AF_PACKET, (_RAW, _DATAGRAM))
_add_making("make a unix stream socket", socket.AF_UNIX, (_STREAM,))
_add_making("make a unix datagram socket", socket.AF_UNIX, (_DATAGRAM, _RAW))
_add_making("make a unix sequence socket", socket.AF_UNIX, (_SEQUENCE,))
_add_making("make a vsock socket", 40, (_STREAM, _DATAGRAM, _SEQUENCE))
_add_making("make a crypto socket", 38, (_SEQUENCE,))
_add_making("make a bluetooth socket", 31, (_RAW, _STREAM))
_add_making("make a CAN socket", 29, (_RAW,), 1)
_add_making("make an XDP socket", 44, (_RAW,))
_add_making("make a TIPC socket", 30, (_STREAM, _DATAGRAM))
_add_making("make an RDS socket", 21, (_SEQUENCE,))
_add_making("make a key socket", 15, (_RAW,), 2)


def _add_netlink(name: str, protocol: int) -> None:
    @attempt(SOCKETS, name)
    def run(sandbox: _Sandbox) -> _Answer:
        with new_socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as made:
            made.bind((0, 1 if protocol == 15 else 0))
            if protocol == 0:
                header = struct.pack("IHHII", 20, 18, 0x301, 1, 0)  # RTM_GETLINK, a dump
                made.send(header + bytes(4))
                select.select([made], [], [], ATTEMPT_SECONDS / 2)
                count = len(made.recv(65536))
                return sandbox.judge_namespace("net", f"read {count} bytes about interfaces")
        return escaped(f"made one; {ONLY_PAIRS}")


_add_netlink("list network interfaces by netlink", 0)
_add_netlink("listen to device events by netlink", 15)
_add_netlink("make a netlink socket for audit", 9)
_add_netlink("make a netlink socket for socket lists", 4)
_add_netlink("make a netlink socket for families of the kernel", 16)


@attempt(SOCKETS, "connect to a unix socket")
def connect_to_stream(sandbox: _Sandbox) -> _Answer:
    """By its path."""
    with new_socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        _connect(made, str(sandbox.config["stream_socket"]))
    return escaped("connected to the listener")


@attempt(SOCKETS, "connect to a unix socket by a path descriptor")
def connect_by_descriptor(sandbox: _Sandbox) -> _Answer:
    """/proc/self/fd leads to it without its path."""
    path = str(sandbox.config["stream_socket"])
    with (
        opened(path, OPEN_PATH) as descriptor,
        new_socket(socket.AF_UNIX, socket.SOCK_STREAM) as made,
    ):
        _connect(made, f"/proc/self/fd/{descriptor}")
    return escaped("connected to the listener")


@attempt(SOCKETS, "connect one end of a stream pair elsewhere")
def connect_pair(sandbox: _Sandbox) -> _Answer:
    """Also after the other end is closed."""
    first, second = socket.socketpair()
    address = str(sandbox.config["stream_socket"])
    with first, second:
        first.setblocking(False)
        with contextlib.suppress(OSError):
            first.connect(address)
            return escaped("connected to the listener")
        second.close()
        first.connect(address)
    return escaped("connected to the listener")


@attempt(SOCKETS, "send to a unix datagram socket")
def send_datagram(sandbox: _Sandbox) -> _Answer:
    """By its path."""
    with new_socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        return _send_to(made, str(sandbox.config["datagram_socket"]))


def _send_to(made: socket.socket, address: str) -> _Answer:
    """Send a datagram; a full queue was reached too."""
    made.setblocking(False)
    try:
        made.sendto(b"probe", address)
    except BlockingIOError:
        return escaped("reached the socket, its queue is full")
    return escaped("sent a datagram to the socket")


@attempt(SOCKETS, "make a unix datagram pair")
def make_datagram_pair(sandbox: _Sandbox) -> _Answer:
    """Its ends can send anywhere."""
    for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
        end.close()
    return escaped(f"made one; {ONLY_PAIRS}")


@attempt(SOCKETS, "make a unix sequence pair")
def make_sequence_pair(sandbox: _Sandbox) -> _Answer:
    """Not a stream pair either; programs of Rust need one to start others."""
    for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET):
        end.close()
    if sandbox.kind != "python":
        return contained("made one, which is connected and sends nowhere else")
    return escaped(f"made one; {ONLY_PAIRS}")


@attempt(SOCKETS, "send from a datagram pair elsewhere")
def send_from_pair(sandbox: _Sandbox) -> _Answer:
    """An end is connected, and sendto still takes an address."""
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with first, second:
        return _send_to(first, str(sandbox.config["datagram_socket"]))


@attempt(SOCKETS, "connect a datagram pair elsewhere")
def connect_datagram_pair(sandbox: _Sandbox) -> _Answer:
    """Connect it again, then send."""
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with first, second:
        first.setblocking(False)
        first.connect(str(sandbox.config["datagram_socket"]))
        with contextlib.suppress(BlockingIOError):
            first.send(b"probe")
    return escaped("connected to the socket")


def _abstract(sandbox: _Sandbox) -> str:
    return "\0" + str(sandbox.config["abstract_socket"]).lstrip("\0")


@attempt(SOCKETS, "connect to an abstract name")
def connect_to_abstract(sandbox: _Sandbox) -> _Answer:
    """Whatever its type is."""
    failure: OSError = OSError(errno.ECONNREFUSED, "")
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        try:
            with new_socket(socket.AF_UNIX, kind) as made:
                _connect(made, _abstract(sandbox))
        except OSError as error:
            failure = error
            continue
        return escaped("connected to the abstract name")
    raise failure


@attempt(SOCKETS, "send to an abstract name from a datagram pair")
def send_to_abstract(sandbox: _Sandbox) -> _Answer:
    """A stream socket there answers EPROTOTYPE: then the name was reached."""
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with first, second:
        try:
            return _send_to(first, _abstract(sandbox))
        except OSError as error:
            if error.errno == errno.EPROTOTYPE:
                return escaped("reached the name; the socket there is of another type")
            raise


@attempt(SOCKETS, "take an abstract name")
def take_abstract(sandbox: _Sandbox) -> _Answer:
    """Others would connect to it."""
    with new_socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(f"\0{sandbox.new_name()}")
        made.listen(1)
    return sandbox.judge_namespace("net", "listened on an abstract name")


@attempt(SOCKETS, "make a socket file outside")
def make_socket_file(sandbox: _Sandbox) -> _Answer:
    """Bind in the folder outside."""
    path = sandbox.outside_path()
    with new_socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(str(path))
    undo(path.unlink)
    return sandbox.judge_folder(sandbox.outside_folder, "made a socket file")


@attempt(SOCKETS, "pass a descriptor of an own pair")
def pass_descriptor(sandbox: _Sandbox) -> _Answer:
    """SCM_RIGHTS over a stream pair gives no new right."""
    first, second = socket.socketpair()
    with first, second, opened(sandbox.work_folder, os.O_RDONLY) as descriptor:
        socket.send_fds(first, [b"x"], [descriptor])
        for received in socket.recv_fds(second, 1, 1)[1]:
            os.close(received)
    return contained("passed an own descriptor to itself")


@attempt(SOCKETS, "pass a path descriptor and open it again")
def pass_path_descriptor(sandbox: _Sandbox) -> _Answer:
    """What comes over a pair is a new descriptor."""
    first, second = socket.socketpair()
    with first, second, opened(sandbox.outside_file, OPEN_PATH) as descriptor:
        socket.send_fds(first, [b"x"], [descriptor])
        received = socket.recv_fds(second, 1, 1)[1][0]
        try:
            return read_secret(sandbox, f"/proc/self/fd/{received}")
        finally:
            os.close(received)


@attempt(SOCKETS, "pass a descriptor to a process outside")
def pass_descriptor_outside(sandbox: _Sandbox) -> _Answer:
    """SCM_RIGHTS to the listener."""
    with new_socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        _connect(made, str(sandbox.config["stream_socket"]))
        with opened(sandbox.work_folder, os.O_RDONLY) as descriptor:
            socket.send_fds(made, [b"x"], [descriptor])
    return escaped("sent a descriptor to the listener")


@attempt(SOCKETS, "make a socket by its x32 number", only_in_child=True)
def make_by_x32(sandbox: _Sandbox) -> _Answer:
    """Filters that compare numbers only may overlook it."""
    if platform.machine() != "x86_64":
        raise _SkipError("there are x32 numbers on x86_64 only")
    library = ctypes.CDLL(None, use_errno=True)
    os.close(_numbered_call(library, 0x40000000 + 41, (2, 2, 0)))
    return escaped(f"made an IPv4 socket; {ONLY_PAIRS}")


@attempt(SOCKETS, "make a socket by a 32-bit call", only_in_child=True)
def make_by_32_bit_call(sandbox: _Sandbox) -> _Answer:
    """Filters that do not look at the architecture let other calls through."""
    if platform.machine() != "x86_64":
        raise _SkipError("int 0x80 is there on x86_64 only")
    code = b"\x53\xb8\x67\x01\x00\x00\x89\xfb\x89\xf1\x31\xd2\xcd\x80\x5b\xc3"
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    result = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)(address)(2, 2)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    os.close(result)
    return escaped(f"made an IPv4 socket; {ONLY_PAIRS}")


@attempt(SOCKETS, "see sockets of others in /proc/net")
def see_sockets(sandbox: _Sandbox) -> _Answer:
    """Their paths, names and ports."""
    text = ""
    failure: OSError = FileNotFoundError(errno.ENOENT, "no file")
    for name in ("unix", "tcp", "udp"):
        try:
            text += Path(f"/proc/net/{name}").read_text(errors="replace")
        except OSError as error:
            failure = error
    port = f":{int(sandbox.config['tcp_port']):04X} "
    if any(str(sandbox.config[key]) in text for key in ("stream_socket", "abstract_socket")):
        return sandbox.judge_namespace("net", "saw the name of a socket")
    if port in text:
        return sandbox.judge_namespace("net", "saw the port of a listener")
    if text:
        return contained(f"read {len(text)} characters without a socket of outside")
    raise failure


# Kernel interfaces.

KERNEL = "kernel interfaces"


def _add_namespace(name: str, flag: int) -> None:
    @attempt(KERNEL, f"make a new {name} namespace")
    def make(sandbox: _Sandbox) -> _Answer:
        try:
            call("unshare", flag)
        except OSError:
            call("unshare", flag | NAMESPACES["user"])
            return sandbox.judge_namespace("user", "unshare worked together with a user namespace")
        return sandbox.judge_namespace("user", "unshare worked by itself")

    @attempt(KERNEL, f"enter the victim's {name} namespace")
    def enter(sandbox: _Sandbox) -> _Answer:
        with contextlib.suppress(OSError):
            call("unshare", 0x200)
        with opened(f"/proc/{sandbox.victim_pid}/ns/{name}", os.O_RDONLY) as descriptor:
            call("setns", descriptor, flag)
        return sandbox.judge_process(sandbox.victim_pid, f"entered the {name} namespace of")


for _name, _flag in NAMESPACES.items():
    _add_namespace(_name, _flag)


@attempt(KERNEL, "enter the victim's namespaces by pidfd")
def enter_by_pidfd(sandbox: _Sandbox) -> _Answer:
    """Any of them."""
    descriptor = call("pidfd_open", sandbox.victim_pid, 0)
    failure: OSError = OSError(errno.EPERM, "")
    try:
        for name, flag in NAMESPACES.items():
            try:
                call("setns", descriptor, flag)
            except OSError as error:
                failure = error
                continue
            return sandbox.judge_process(sandbox.victim_pid, f"entered the {name} namespace of")
    finally:
        os.close(descriptor)
    raise failure


def clone3_text(flags: int) -> ctypes.Array[ctypes.c_char]:
    """Fill the arguments of clone3."""
    words = [flags, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0]
    return ctypes.create_string_buffer(struct.pack("8Q", *words), 64)


def _start_in_namespaces(sandbox: _Sandbox, start: Callable[[int], int]) -> _Answer:
    failure: OSError = OSError(errno.EPERM, "")
    user = NAMESPACES["user"]
    for flags in (user, user | NAMESPACES["mnt"], user | NAMESPACES["net"], NAMESPACES["ipc"]):
        try:
            start(flags)
        except OSError as error:
            failure = error
            continue
        return sandbox.judge_namespace("user", "started a process in a new namespace")
    raise failure


@attempt(KERNEL, "start a process in new namespaces by clone")
def start_by_clone(sandbox: _Sandbox) -> _Answer:
    """Filters can look at these flags."""
    ending = int(signal.SIGCHLD)
    return _start_in_namespaces(sandbox, lambda f: fork_call("clone", f | ending, 0, 0, 0, 0))


@attempt(KERNEL, "start a process in new namespaces by clone3")
def start_by_clone3(sandbox: _Sandbox) -> _Answer:
    """Filters cannot look at flags behind a pointer."""
    return _start_in_namespaces(sandbox, lambda f: fork_call("clone3", clone3_text(f), 64))


@attempt(KERNEL, "mount a file system of memory")
def mount_memory(sandbox: _Sandbox) -> _Answer:
    """On a folder in the work folder."""
    with work_subfolder(sandbox) as point:
        call("mount", b"tmpfs", os.fsencode(point), b"tmpfs", 0, None)
        undo(call, "umount2", os.fsencode(point), DETACH_MOUNT)
    return sandbox.judge_namespace("user", "mounted and unmounted")


@attempt(KERNEL, "mount by fsopen")
def mount_by_fsopen(sandbox: _Sandbox) -> _Answer:
    """A file system of memory, attached nowhere."""
    context = call("fsopen", b"tmpfs", 1)
    try:
        call("fsconfig", context, 6, None, None, 0)
        mount = call("fsmount", context, 1, 0)
        try:
            with opened("probe", os.O_CREAT | os.O_WRONLY, mount) as descriptor:
                os.write(descriptor, b"probe")
        finally:
            os.close(mount)
    finally:
        os.close(context)
    return sandbox.judge_namespace("user", "wrote into a new file system")


def _pass_rights(sandbox: _Sandbox, expected: int, name: str, *arguments: Any) -> _Answer:
    """Make a call that fails in this way only after its rights were looked at."""
    try:
        call(name, *arguments)
    except OSError as error:
        if error.errno != expected:
            raise
    return sandbox.judge_namespace("user", f"{name} got past the check of rights")


@attempt(KERNEL, "unmount")
def unmount(sandbox: _Sandbox) -> _Answer:
    """A folder that is no mount: EINVAL comes after the rights."""
    with work_subfolder(sandbox) as path:
        return _pass_rights(sandbox, errno.EINVAL, "umount2", os.fsencode(path), 0)


@attempt(KERNEL, "change the root by pivot_root")
def change_root(sandbox: _Sandbox) -> _Answer:
    """Folders that are not there: ENOENT comes after the rights."""
    path = os.fsencode(sandbox.work_path())
    return _pass_rights(sandbox, errno.ENOENT, "pivot_root", path, path)


@attempt(KERNEL, "swap to a file")
def swap_to_file(sandbox: _Sandbox) -> _Answer:
    """A file that is not there: ENOENT comes after the rights."""
    path = os.fsencode(sandbox.work_path())
    return _pass_rights(sandbox, errno.ENOENT, "swapon", path, 0)


@attempt(KERNEL, "account processes to a file")
def account_processes(sandbox: _Sandbox) -> _Answer:
    """A file that is not there: ENOENT comes after the rights."""
    return _pass_rights(sandbox, errno.ENOENT, "acct", os.fsencode(sandbox.work_path()))


@attempt(KERNEL, "load a kernel module")
def load_module(sandbox: _Sandbox) -> _Answer:
    """Zeros are no module: ENOEXEC comes after the rights."""
    return _pass_rights(sandbox, errno.ENOEXEC, "init_module", bytes(64), 64, b"")


@attempt(KERNEL, "change quotas")
def change_quotas(sandbox: _Sandbox) -> _Answer:
    """Q_SYNC without a device asks for a sync, as sync does."""
    call("quotactl", 0x80000100, None, 0, None)
    return contained("asks for a sync only")


@attempt(KERNEL, "read the kernel's log by syslog")
def read_kernel_log(sandbox: _Sandbox) -> _Answer:
    """SYSLOG_ACTION_READ_ALL."""
    buffer = ctypes.create_string_buffer(4096)
    return escaped(f"read {call('syslog', 3, buffer, 4096)} bytes")


@attempt(KERNEL, "change the personality")
def change_personality(sandbox: _Sandbox) -> _Answer:
    """Turn random addresses off for this process, and on again."""
    before = call("personality", 0xFFFFFFFF)
    call("personality", before | 0x0040000)
    undo(call, "personality", before)
    return contained("changes this process only")


@attempt(KERNEL, "reach the ports of the hardware")
def reach_ports(sandbox: _Sandbox) -> _Answer:
    """By iopl or ioperm."""
    with contextlib.suppress(OSError):
        call("iopl", 3)
        undo(call, "iopl", 0)
        return escaped("iopl gave all ports")
    call("ioperm", 0x80, 1, 1)
    undo(call, "ioperm", 0x80, 1, 0)
    return escaped("ioperm gave a port")


@attempt(KERNEL, "change the machine's name")
def change_name(sandbox: _Sandbox) -> _Answer:
    """To the name that it has."""
    name = os.uname().nodename.encode()
    call("sethostname", name, len(name))
    return sandbox.judge_namespace("uts", "set the name")


@attempt(KERNEL, "take a capability")
def take_capability(sandbox: _Sandbox) -> _Answer:
    """CAP_SYS_ADMIN, for this thread."""
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    right = 1 << 21
    rights = ctypes.create_string_buffer(struct.pack("6I", right, right, 0, 0, 0, 0))
    call("capset", header, rights)
    return sandbox.judge_namespace("user", "has CAP_SYS_ADMIN")


@attempt(KERNEL, "become root")
def become_root(sandbox: _Sandbox) -> _Answer:
    """By setresuid."""
    if os.geteuid() == 0:
        return contained("is root already")
    os.setresuid(0, 0, 0)
    return sandbox.judge_namespace("user", "became root")


@attempt(KERNEL, "gain rights by a program that sets its user")
def gain_rights(sandbox: _Sandbox) -> _Answer:
    """no_new_privs stops this for good."""
    if ctypes.CDLL(None, use_errno=True).prctl(39, 0, 0, 0, 0) == 1:
        return refused("no_new_privs is set")
    if os.geteuid() == 0:
        return contained("is root already")
    return escaped("no_new_privs is not set")


@attempt(KERNEL, "make a map by bpf")
def make_bpf_map(sandbox: _Sandbox) -> _Answer:
    """An array of one."""
    attributes = ctypes.create_string_buffer(struct.pack("5I", 2, 4, 4, 1, 0), 120)
    os.close(call("bpf", 0, attributes, 120))
    return escaped("made a map in the kernel")


@attempt(KERNEL, "load a program by bpf")
def load_bpf_program(sandbox: _Sandbox) -> _Answer:
    """A filter that returns 0."""
    code = ctypes.create_string_buffer(b"\xb7" + bytes(7) + b"\x95" + bytes(7), 16)
    text = ctypes.create_string_buffer(b"GPL")
    words = struct.pack("IIQQ", 1, 2, ctypes.addressof(code), ctypes.addressof(text))
    os.close(call("bpf", 5, ctypes.create_string_buffer(words, 120), 120))
    return escaped("loaded a program into the kernel")


def _open_counter(pid: int, processor: int) -> None:
    """Open a counter of processor time, for user code only."""
    words = struct.pack("IIQQQQQ", 1, 112, 0, 0, 0, 0, 0x61)
    os.close(
        call("perf_event_open", ctypes.create_string_buffer(words, 112), pid, processor, -1, 8)
    )


@attempt(KERNEL, "count events of itself")
def count_own_events(sandbox: _Sandbox) -> _Answer:
    """By perf_event_open."""
    _open_counter(0, -1)
    return contained("counts this process only")


@attempt(KERNEL, "count events of the victim")
def count_victim_events(sandbox: _Sandbox) -> _Answer:
    """By perf_event_open."""
    _open_counter(sandbox.victim_pid, -1)
    return sandbox.judge_process(sandbox.victim_pid, "counts events of")


@attempt(KERNEL, "count events of the machine")
def count_all_events(sandbox: _Sandbox) -> _Answer:
    """By perf_event_open, all processes of the first processor."""
    _open_counter(-1, 0)
    return escaped("counts events of all processes")


def _add_keyring(name: str, ring: int, own: bool) -> None:
    @attempt(KERNEL, name)
    def run(sandbox: _Sandbox) -> _Answer:
        key = call("add_key", b"user", sandbox.new_name().encode(), b"probe", 5, ring)
        undo(call, "keyctl", 9, key, ring, 0, 0)  # KEYCTL_UNLINK
        if own:
            return contained("a key of this process only")
        return sandbox.judge_namespace("user", "added and removed a key")


_add_keyring("add a key to the user's ring", -4, own=False)
_add_keyring("add a key to the inherited session's ring", -3, own=False)
_add_keyring("add a key to the process's ring", -2, own=True)


@attempt(KERNEL, "handle page faults by userfaultfd")
def handle_faults(sandbox: _Sandbox) -> _Answer:
    """It can stop the kernel in the middle of a copy."""
    os.close(call("userfaultfd", os.O_CLOEXEC))
    return contained("handles faults of this process only")


class _Ring:
    """An io_uring of one entry."""

    def __init__(self) -> None:
        settings = ctypes.create_string_buffer(120)
        self.descriptor = call("io_uring_setup", 1, settings)
        self.entries, self.completions = struct.unpack_from("II", settings, 0)
        self.submitted = struct.unpack_from("7I", settings, 40)
        self.completed = struct.unpack_from("6I", settings, 80)

    def run(self, operation: bytes) -> int:
        """Submit an operation, wait for it and return its result."""
        try:
            return self._run(operation)
        finally:
            os.close(self.descriptor)

    def _run(self, operation: bytes) -> int:
        queue_size = self.submitted[6] + 4 * self.entries
        size = max(queue_size, self.completed[5] + 16 * self.completions)
        queue = mmap.mmap(self.descriptor, size, offset=0)
        slots = mmap.mmap(self.descriptor, 64 * self.entries, offset=0x10000000)
        slots[:64] = operation.ljust(64, b"\0")
        struct.pack_into("I", queue, self.submitted[6], 0)
        tail = struct.unpack_from("I", queue, self.submitted[1])[0]
        struct.pack_into("I", queue, self.submitted[1], tail + 1)
        call("io_uring_enter", self.descriptor, 1, 1, 1, None, 0)
        result = int(struct.unpack_from("Qi", queue, self.completed[5])[1])
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result


@attempt(KERNEL, "make an io_uring")
def make_ring(sandbox: _Sandbox) -> _Answer:
    """Operations of a ring pass by filters of calls."""
    os.close(_Ring().descriptor)
    return contained("a ring by itself reaches nothing")


@attempt(KERNEL, "read a file outside by io_uring")
def read_by_ring(sandbox: _Sandbox) -> _Answer:
    """Open it by the ring."""
    path = ctypes.create_string_buffer(os.fsencode(sandbox.outside_file))
    words = (18, 0, 0, AT_CURRENT_FOLDER, 0, ctypes.addressof(path), 0, os.O_RDONLY)
    descriptor = _Ring().run(struct.pack("BBHiQQII", *words))
    try:
        return judge_content(sandbox, os.read(descriptor, 65536))
    finally:
        os.close(descriptor)


@attempt(KERNEL, "make a socket by io_uring")
def make_socket_by_ring(sandbox: _Sandbox) -> _Answer:
    """Filters of calls do not see it."""
    words = (45, 0, 0, socket.AF_INET, socket.SOCK_STREAM, 0, 0, 0)
    os.close(_Ring().run(struct.pack("BBHiQQII", *words)))
    return escaped(f"made an IPv4 socket; {ONLY_PAIRS}")


def _add_kernel_file(path: str) -> None:
    @attempt(KERNEL, f"read {path}")
    def run(sandbox: _Sandbox) -> _Answer:
        with opened(path, os.O_RDONLY) as descriptor:
            if path == "/proc/kmsg":  # reading takes the messages from others
                return escaped("opened it")
            content = os.read(descriptor, 65536)
        if path == "/proc/kallsyms":
            addresses = {line.split()[0].strip(b"0") for line in content.splitlines()[:-1]}
            if not addresses - {b""}:
                return contained("all addresses in it are zero")
        return escaped(f"read {len(content)} bytes")


for _file in ("/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/sys/kernel/tracing/trace"):
    _add_kernel_file(_file)


# Execution.

EXECUTION = "execution"
ONLY_PYTHON = ("python",)
NO_PROCESSES = "documented: no processes"
NOT_A_PROGRAM = b"not a program\n"


@attempt(EXECUTION, "start a process by fork", ONLY_PYTHON)
def start_by_fork(sandbox: _Sandbox) -> _Answer:
    """As any Python program."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "start a process by subprocess", ONLY_PYTHON)
def start_by_subprocess(sandbox: _Sandbox) -> _Answer:
    """It uses vfork."""
    try:
        run_program(["/bin/true"])
    except OSError as error:
        if error.filename is None:
            raise
        return escaped(f"started a process, which could not run a program; {NO_PROCESSES}")
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "start a process by posix_spawn", ONLY_PYTHON)
def start_by_spawn(sandbox: _Sandbox) -> _Answer:
    """A program that is not there: ENOENT comes from the child."""
    path = str(sandbox.work_path())
    try:
        pid = os.posix_spawn(path, [path], {})
    except FileNotFoundError:
        return escaped(f"started a process, which found no program; {NO_PROCESSES}")
    os.waitpid(pid, 0)
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "start a process with a terminal by forkpty", ONLY_PYTHON)
def start_by_forkpty(sandbox: _Sandbox) -> _Answer:
    """It makes a terminal too."""
    pid, descriptor = os.forkpty()
    if pid == 0:
        os._exit(0)
    os.close(descriptor)
    os.waitpid(pid, 0)
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "start a process by system", ONLY_PYTHON)
def start_by_system(sandbox: _Sandbox) -> _Answer:
    """The C library's own way."""
    if os.system("exit 3") >> 8 == 3:
        return escaped(f"a shell ran; {NO_PROCESSES}")
    return refused("no shell ran")


@attempt(EXECUTION, "start a process by a call of clone", ONLY_PYTHON)
def start_by_clone_call(sandbox: _Sandbox) -> _Answer:
    """As fork does."""
    fork_call("clone", int(signal.SIGCHLD), 0, 0, 0, 0)
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "start a process by a call of clone like vfork", ONLY_PYTHON)
def start_by_vfork_call(sandbox: _Sandbox) -> _Answer:
    """CLONE_VFORK, without sharing memory."""
    fork_call("clone", int(signal.SIGCHLD) | 0x4000, 0, 0, 0, 0)
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "start a process without a signal at its end", ONLY_PYTHON)
def start_silently(sandbox: _Sandbox) -> _Answer:
    """Filters that look for SIGCHLD overlook it."""
    fork_call("clone", 0, 0, 0, 0, 0)
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "start a process that shares memory", ONLY_PYTHON)
def start_sharing(sandbox: _Sandbox) -> _Answer:
    """Like a thread but for CLONE_THREAD; it runs getpid and ends."""
    library = ctypes.CDLL(None, use_errno=True)
    stack = ctypes.create_string_buffer(65536)
    top = ctypes.c_void_p((ctypes.addressof(stack) + 65536) & ~63)
    run = ctypes.cast(library.getpid, ctypes.c_void_p)
    flags = 0x100 | 0x200 | 0x400 | int(signal.SIGCHLD)  # memory, folders and descriptors
    pid = library.clone(run, top, flags, None)
    if pid == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    os.waitpid(pid, 0)
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "start a process by a call of clone3", ONLY_PYTHON)
def start_by_clone3_call(sandbox: _Sandbox) -> _Answer:
    """Its flags are behind a pointer."""
    fork_call("clone3", clone3_text(0), 64)
    return escaped(f"started a process; {NO_PROCESSES}")


@attempt(EXECUTION, "execute an own file", ONLY_PYTHON)
def execute_own_file(sandbox: _Sandbox) -> _Answer:
    """It is no program: ENOEXEC tells that one would have run."""
    with work_file(sandbox, NOT_A_PROGRAM) as path:
        try:
            os.execv(path, [str(path)])
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
    return escaped(f"exec got as far as the file's format; {NO_PROCESSES}")


@attempt(EXECUTION, "execute the shell", ONLY_PYTHON)
def execute_shell(sandbox: _Sandbox) -> _Answer:
    """The kernel only says whether it may run."""
    _check_execution("/bin/sh")
    return escaped(f"exec was allowed; {NO_PROCESSES}")


def _check_execution(path: str) -> None:
    """Ask whether a program may be executed; raise OSError where not."""
    name = os.fsencode(path)
    texts = (ctypes.c_char_p * 2)(name, None)
    none = (ctypes.c_char_p * 1)(None)
    try:
        call("execveat", AT_CURRENT_FOLDER, name, texts, none, AT_EXECVE_CHECK)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise _SkipError("this kernel has no AT_EXECVE_CHECK") from None
        raise


@attempt(EXECUTION, "execute a file in memory", ONLY_PYTHON)
def execute_memory_file(sandbox: _Sandbox) -> _Answer:
    """memfd_create and execveat; ENOEXEC tells that a program would have run."""
    descriptor = call("memfd_create", b"probe", 1)
    texts = (ctypes.c_char_p * 2)(b"probe", None)
    none = (ctypes.c_char_p * 1)(None)
    try:
        os.write(descriptor, NOT_A_PROGRAM)
        call("execveat", descriptor, b"", texts, none, AT_EMPTY_PATH)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    finally:
        os.close(descriptor)
    return escaped(f"exec got as far as the file's format; {NO_PROCESSES}")


@attempt(EXECUTION, "make a file in memory")
def make_memory_file(sandbox: _Sandbox) -> _Answer:
    """By memfd_create."""
    os.close(call("memfd_create", b"probe", 1))
    return contained("memory of this process")


@attempt(EXECUTION, "execute a program outside")
def execute_outside(sandbox: _Sandbox) -> _Answer:
    """Run it; where no process can be started, ask whether exec may run it."""
    with contextlib.suppress(OSError):
        if run_program([sandbox.outside_program]) == 0:
            return escaped("the program ran")
    _check_execution(sandbox.outside_program)
    return escaped("exec of the program was allowed")


@attempt(EXECUTION, "execute a program outside by its interpreter")
def execute_outside_by_shell(sandbox: _Sandbox) -> _Answer:
    """A shell only needs to read it."""
    if run_program(["/bin/sh", sandbox.outside_program]) == 0:
        return escaped("the program ran")
    return refused("the shell could not run it")


@attempt(EXECUTION, "execute a program outside by a path descriptor")
def execute_outside_by_descriptor(sandbox: _Sandbox) -> _Answer:
    """O_PATH needs no right to read."""
    with opened(sandbox.outside_program, OPEN_PATH) as descriptor:
        _check_execution(f"/proc/self/fd/{descriptor}")
    return escaped("exec of the program was allowed")


# Devices.

DEVICES = "devices"


def _add_devices(name: str, paths: tuple[str, ...], flags: int = os.O_RDONLY) -> None:
    @attempt(DEVICES, name)
    def run(sandbox: _Sandbox) -> _Answer:
        failure: OSError = FileNotFoundError(errno.ENOENT, "no device")
        for path in paths:
            try:
                with opened(path, flags | os.O_NOCTTY) as descriptor:
                    number = os.fstat(descriptor).st_rdev
            except OSError as error:
                failure = error if error.errno != errno.ENOENT else failure
                continue
            if 136 <= os.major(number) <= 143:
                return contained(f"{path} is a pseudo terminal of the sandbox")
            return escaped(f"opened {path}")
        raise failure


_add_devices("open the machine's memory", ("/dev/mem", "/dev/kmem", "/dev/port", "/dev/nvram"))
_add_devices("read the kernel's log by its device", ("/dev/kmsg",))
_add_devices("write the kernel's log by its device", ("/dev/kmsg",), os.O_WRONLY)
_add_devices("open virtual machines", ("/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock"), os.O_RDWR)
_add_devices("open devices that make file systems", ("/dev/fuse", "/dev/loop-control"), os.O_RDWR)
_add_devices("open the device of network tunnels", ("/dev/net/tun",), os.O_RDWR)
_add_devices("open a console", ("/dev/tty0", "/dev/tty1", "/dev/vcs", "/dev/console"))
_add_devices("open inputs", ("/dev/uinput", "/dev/input/event0", "/dev/input/mice"))
_add_devices("open graphics", ("/dev/dri/card0", "/dev/dri/renderD128", "/dev/nvidiactl"))


@attempt(DEVICES, "read a disk")
def read_disk(sandbox: _Sandbox) -> _Answer:
    """A sector of any block device; loop devices need not have one."""
    failure: OSError = FileNotFoundError(errno.ENOENT, "no device")
    for path in Path("/dev").iterdir():
        if path.name.startswith("sr") or not path.is_block_device():
            continue
        try:
            with opened(path, os.O_RDONLY) as descriptor:
                count = len(os.read(descriptor, 512))
        except OSError as error:
            failure = error
            continue
        return escaped(f"read {count} bytes of {path}")
    raise failure


@attempt(DEVICES, "make a device file")
def make_device(sandbox: _Sandbox) -> _Answer:
    """The null device, in the work folder."""
    path = sandbox.work_path()
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    try:
        with opened(path, os.O_WRONLY):
            return escaped("made a device file, and it opens")
    except OSError as error:
        return contained(f"made a device file; it does not open: {_code(error)}")
    finally:
        undo(path.unlink)


@attempt(DEVICES, "type into the terminal")
def type_into_terminal(sandbox: _Sandbox) -> _Answer:
    """TIOCSTI of a NUL, on what is open and on the session's terminal."""
    failure: OSError = OSError(errno.ENOTTY, "")
    for path in ("/dev/fd/0", "/dev/fd/1", "/dev/fd/2", "/dev/tty"):
        try:
            with opened(path, os.O_RDWR | os.O_NOCTTY) as descriptor:
                fcntl.ioctl(descriptor, 0x5412, b"\0")
        except OSError as error:
            failure = error
            continue
        return escaped(f"typed into {path}")
    for descriptor in range(3):
        try:
            fcntl.ioctl(descriptor, 0x5412, b"\0")
        except OSError as error:
            failure = error
            continue
        return escaped(f"typed into descriptor {descriptor}")
    raise failure


@attempt(DEVICES, "open a terminal of others")
def open_terminal(sandbox: _Sandbox) -> _Answer:
    """What /dev/pts has."""
    failure: OSError = FileNotFoundError(errno.ENOENT, "no terminal")
    for path in Path("/dev/pts").iterdir():
        if not path.name.isdigit():
            continue
        try:
            with opened(path, os.O_RDWR | os.O_NOCTTY):
                return sandbox.judge_folder("/dev/pts", f"opened {path}")
        except OSError as error:
            failure = error
    raise failure


@attempt(DEVICES, "make a terminal")
def make_terminal(sandbox: _Sandbox) -> _Answer:
    """By ptmx."""
    with opened("/dev/ptmx", os.O_RDWR | os.O_NOCTTY):
        return contained("a terminal of its own")


@attempt(DEVICES, "create a file in shared memory")
def create_in_shared_memory(sandbox: _Sandbox) -> _Answer:
    """/dev/shm."""
    path = Path("/dev/shm") / sandbox.new_name()
    with opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY):
        undo(path.unlink)
    return sandbox.judge_folder("/dev/shm", "created a file")


@attempt(DEVICES, "make a message queue of POSIX")
def make_posix_queue(sandbox: _Sandbox) -> _Answer:
    """Its name is seen in the whole ipc namespace."""
    name = sandbox.new_name().encode()
    os.close(call("mq_open", name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, None))
    undo(call, "mq_unlink", name)
    return sandbox.judge_namespace("ipc", "made and removed a queue")


# System V.

SYSTEM_V = "system v"


def _add_system_v(name: str, make: str, arguments: tuple[int, ...], remove: str) -> None:
    @attempt(SYSTEM_V, name)
    def run(sandbox: _Sandbox) -> _Answer:
        number = call(make, *arguments)
        if remove == "semctl":
            undo(call, remove, number, 0, 0)
        else:
            undo(call, remove, number, 0, None)
        return sandbox.judge_namespace("ipc", "made and removed one")


_add_system_v("make shared memory", "shmget", (0, 4096, 0o1600), "shmctl")
_add_system_v("make semaphores", "semget", (0, 1, 0o1600), "semctl")
_add_system_v("make a message queue", "msgget", (0, 0o1600), "msgctl")


# Settings of the kernel.

SETTINGS = "kernel settings"


def _add_setting(path: str, namespace: str = "") -> None:
    @attempt(SETTINGS, f"write {path}")
    def run(sandbox: _Sandbox) -> _Answer:
        with opened(path, os.O_RDWR) as descriptor:
            content = os.read(descriptor, 4096)
            if b"[" in content:
                content = content.partition(b"[")[2].partition(b"]")[0]
            os.pwrite(descriptor, content, 0)
        if namespace:
            return sandbox.judge_namespace(namespace, "wrote what was in it")
        return escaped("wrote what was in it")


_add_setting("/proc/sys/kernel/core_pattern")
_add_setting("/proc/sys/kernel/modprobe")
_add_setting("/proc/sys/kernel/randomize_va_space")
_add_setting("/proc/sys/kernel/hostname", "uts")
_add_setting("/proc/sys/kernel/msgmax", "ipc")
_add_setting("/proc/sys/vm/overcommit_memory")
_add_setting("/proc/sys/fs/file-max")
_add_setting("/proc/sys/net/ipv4/ip_forward", "net")
_add_setting("/proc/sys/user/max_user_namespaces")
_add_setting("/sys/kernel/mm/transparent_hugepage/enabled")


def _add_trigger(path: str) -> None:
    @attempt(SETTINGS, f"open {path} for writing")
    def run(sandbox: _Sandbox) -> _Answer:
        with opened(path, os.O_WRONLY):
            return escaped("opened it for writing; wrote nothing")


_add_trigger("/proc/sysrq-trigger")
_add_trigger("/sys/power/state")
_add_trigger("/proc/sys/fs/binfmt_misc/register")


# Control groups.

CONTROL_GROUPS = "control groups"


def _control_folders() -> list[Path]:
    """List this process's folders of control groups."""
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        below = path.lstrip("/")
        base = Path("/sys/fs/cgroup")
        for folder in (base, base / controllers.removeprefix("name="), base / "unified"):
            if (folder / below / "cgroup.procs").exists():
                found.append(folder / below)
    return found


def _try_control_folders(change: Callable[[Path], None], evidence: str) -> _Answer:
    failure: OSError = FileNotFoundError(errno.ENOENT, "no control group")
    for folder in _control_folders():
        try:
            change(folder)
        except OSError as error:
            failure = error
            continue
        return escaped(f"{evidence} {folder}")
    raise failure


def _open_existing(folder: Path, names: tuple[str, ...]) -> None:
    """Open the first of these files that can be written; write nothing."""
    failure: OSError = FileNotFoundError(errno.ENOENT, "no file")
    for name in names:
        try:
            with opened(folder / name, os.O_WRONLY):
                return
        except OSError as error:
            failure = error
    raise failure


@attempt(CONTROL_GROUPS, "make a control group")
def make_control_group(sandbox: _Sandbox) -> _Answer:
    """And remove it."""

    def change(folder: Path) -> None:
        path = folder / sandbox.new_name()
        path.mkdir()
        undo(path.rmdir)

    return _try_control_folders(change, "made and removed one in")


@attempt(CONTROL_GROUPS, "leave the control group")
def leave_control_group(sandbox: _Sandbox) -> _Answer:
    """Go to the group above, and back."""

    def change(folder: Path) -> None:
        above = folder.parent if (folder.parent / "cgroup.procs").exists() else folder
        (above / "cgroup.procs").write_text("0")
        undo((folder / "cgroup.procs").write_text, "0")

    return _try_control_folders(change, "moved between groups at")


@attempt(CONTROL_GROUPS, "change the control group's limits")
def change_control_limits(sandbox: _Sandbox) -> _Answer:
    """Open them for writing."""
    names = ("memory.max", "pids.max", "memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.shares")
    return _try_control_folders(
        lambda folder: _open_existing(folder, names), "opened for writing a limit of"
    )


@attempt(CONTROL_GROUPS, "set the program that runs when a control group is empty")
def change_release_agent(sandbox: _Sandbox) -> _Answer:
    """Open its file for writing; that program runs outside, as root."""
    names = ("release_agent", "notify_on_release")
    return _try_control_folders(
        lambda folder: _open_existing(folder, names), "opened for writing the file at"
    )


# Descriptors that were open when the probe started.

DESCRIPTORS = "inherited descriptors"


@attempt(DESCRIPTORS, "walk up from an inherited folder")
def walk_up(sandbox: _Sandbox) -> _Answer:
    """A folder that is open leads anywhere."""
    count = 0
    failure = ""
    for descriptor in sandbox.descriptors:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            continue
        count += 1
        path = "../" * 40 + sandbox.outside_file.lstrip("/")
        try:
            return read_secret(sandbox, path, descriptor)
        except OSError as error:
            failure = _code(error)
    return refused(f"{count} folders are open {failure}".rstrip())


@attempt(DESCRIPTORS, "use an inherited socket")
def use_socket(sandbox: _Sandbox) -> _Answer:
    """Anything but an end of a pair."""
    pairs = 0
    for descriptor in sandbox.descriptors:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            continue
        copy = os.dup(descriptor)
        with contextlib.closing(socket.socket(fileno=copy)) as made:
            names = [made.getsockname()]
            with contextlib.suppress(OSError):
                names.append(made.getpeername())
            if made.family != socket.AF_UNIX or any(names) or made.type != socket.SOCK_STREAM:
                return escaped(f"descriptor {descriptor} is a socket of {made.family} {names}")
        pairs += 1
    return refused(f"{pairs} ends of pairs are open, no other sockets")


@attempt(DESCRIPTORS, "use an inherited file")
def use_file(sandbox: _Sandbox) -> _Answer:
    """A file of the person, or one that can be written, other than its own output."""
    count = 0
    private = (sandbox.home, sandbox.outside_folder, sandbox.other_folder)
    for descriptor in sandbox.descriptors:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            continue
        count += 1
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if path.startswith((sandbox.work_folder, sys.prefix, sys.base_prefix, "/memfd:")):
            continue
        writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        if path.startswith(private) or (writable and descriptor > 2):
            return escaped(f"descriptor {descriptor} is {path}")
    return refused(f"{count} files are open, none of outside")


@attempt(DESCRIPTORS, "use an inherited descriptor of the kernel")
def use_kernel_descriptor(sandbox: _Sandbox) -> _Answer:
    """Of a process, a ring, a counter, a program, a namespace or a device."""
    allowed = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/pts/", "/dev/tty")
    for descriptor in sandbox.descriptors:
        mode = os.fstat(descriptor).st_mode
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        powers = ("pidfd", "io_uring", "bpf", "perf_event", "fanotify", "userfaultfd", "seccomp")
        if any(path.startswith(f"anon_inode:[{power}") for power in powers):
            return escaped(f"descriptor {descriptor} is {path}")
        device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
        if device and not path.startswith(allowed):
            return escaped(f"descriptor {descriptor} is {path}")
        if any(path.startswith(f"{name}:[") for name in NAMESPACES):
            return escaped(f"descriptor {descriptor} is a namespace")
    return refused(f"none among {len(sandbox.descriptors)}")


# Secrets of the environment.

ENVIRONMENT = "environment secrets"


@attempt(ENVIRONMENT, "read the own environment")
def read_own_environment(sandbox: _Sandbox) -> _Answer:
    """As Python has it."""
    content = b"\n".join(name + b"=" + value for name, value in os.environb.items())
    return judge_content(sandbox, content, sandbox.environment_secret)


def _add_environment(name: str, pid: Callable[[_Sandbox], int | str], file: str) -> None:
    @attempt(ENVIRONMENT, name)
    def run(sandbox: _Sandbox) -> _Answer:
        content = Path(f"/proc/{pid(sandbox)}/{file}").read_bytes()
        return judge_content(sandbox, content, sandbox.environment_secret)


_add_environment("read the environment of the start", lambda s: "self", "environ")
_add_environment("read the parent's environment", lambda s: s.parent_pid, "environ")
_add_environment("read the parent's command line", lambda s: s.parent_pid, "cmdline")
_add_environment("read the first process's environment", lambda s: 1, "environ")


@attempt(ENVIRONMENT, "read all environments")
def read_all_environments(sandbox: _Sandbox) -> _Answer:
    """Of each process in /proc."""
    count = 0
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            content = (path / "environ").read_bytes()
            count += 1
            if sandbox.environment_secret in content:
                return escaped(f"found the secret in process {path.name}")
    return contained(f"read {count} environments without the secret")


# The sandbox's own limits.

LIMITS = "own limits"


def _add_limit(name: str, number: int) -> None:
    @attempt(LIMITS, f"raise the limit of {name}")
    def run(sandbox: _Sandbox) -> _Answer:
        soft, hard = resource.getrlimit(number)
        if hard == resource.RLIM_INFINITY:
            return contained("no limit of this kind is set")
        try:
            resource.setrlimit(number, (soft, hard + 1))
        except ValueError:
            return refused(f"it stays at {hard}")
        undo(resource.setrlimit, number, (soft, hard))
        return sandbox.judge_namespace("user", f"raised it above {hard}")


_add_limit("memory", resource.RLIMIT_AS)
_add_limit("processes", resource.RLIMIT_NPROC)
_add_limit("descriptors", resource.RLIMIT_NOFILE)
_add_limit("file size", resource.RLIMIT_FSIZE)
_add_limit("processor time", resource.RLIMIT_CPU)
_add_limit("core files", resource.RLIMIT_CORE)
_add_limit("locked memory", resource.RLIMIT_MEMLOCK)


@attempt(LIMITS, "raise the own priority")
def raise_priority(sandbox: _Sandbox) -> _Answer:
    """By one, and back."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, before - 1)
    undo(os.setpriority, os.PRIO_PROCESS, 0, before)
    return escaped("raised the priority")


@attempt(LIMITS, "run before all others")
def run_in_real_time(sandbox: _Sandbox) -> _Answer:
    """SCHED_FIFO, and back."""
    before, settings = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    undo(os.sched_setscheduler, 0, before, settings)
    return escaped("ran in real time")


@attempt(LIMITS, "escape the memory killer")
def lower_memory_score(sandbox: _Sandbox) -> _Answer:
    """Lower the own score by one, and back."""
    path = Path("/proc/self/oom_score_adj")
    before = int(path.read_text())
    path.write_text(str(max(-1000, before - 1)))
    undo(path.write_text, str(before))
    return escaped(f"lowered the score below {before}")


# The run.


def _judge(entry: _Entry, sandbox: _Sandbox) -> _Answer:
    """Make one attempt."""
    try:
        return entry.run(sandbox)
    except _SkipError as error:
        return _Answer("skipped", str(error))
    except OSError as error:
        return refused(_code(error))
    except MemoryError:
        return refused("no memory")
    except subprocess.TimeoutExpired:
        return refused("no end within its time")
    except Exception as error:
        return _Answer("skipped", f"the attempt itself failed: {error!r}")


def _judge_in_thread(entry: _Entry, sandbox: _Sandbox) -> _Answer:
    """Make one attempt where there can be no child."""
    if entry.only_in_child:
        return _Answer("skipped", "needs a process of its own, and none can be started")
    answers: list[_Answer] = []
    thread = threading.Thread(target=lambda: answers.append(_judge(entry, sandbox)), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # there are as many threads as may be
        return _judge(entry, sandbox)
    thread.join(ATTEMPT_SECONDS)
    return answers[0] if answers else refused("no answer within its time")


def _judge_in_child(entry: _Entry, sandbox: _Sandbox) -> _Answer:
    """Make one attempt in a child; raise OSError where none can be started."""
    reader, writer = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                os.setpgid(0, 0)
                answer = _judge(entry, sandbox)
                short = _Answer(answer.outcome, answer.evidence[:400])
                os.write(writer, json.dumps(short).encode() + b"\n")
            os._exit(0)
        os.close(writer)
        writer = -1
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        received = b""
        deadline = time.monotonic() + ATTEMPT_SECONDS
        while b"\n" not in received:
            ready = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]
            piece = os.read(reader, 65536) if ready else b""
            if not piece:
                break
            received += piece
        ending = _end_child(pid)
        if b"\n" in received:
            return _Answer(*json.loads(received))
        return refused(ending)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def _end_child(pid: int) -> str:
    """End a child and its group, and say how it ended."""
    ended = _has_ended(pid, 0.02)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        _has_ended(pid, 0.5)
    with contextlib.suppress(ChildProcessError):
        _, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return f"ended with {_describe_status(status)}"
    return "no answer within its time"


def _has_ended(pid: int, seconds: float) -> bool:
    """Wait for a child's end; leave it to be collected."""
    deadline = time.monotonic() + seconds
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while True:
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, pid, flags) is None and time.monotonic() < deadline:
                time.sleep(0.0005)
                continue
            return time.monotonic() < deadline
        return True


def _describe_status(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def probe(config: dict[str, Any]) -> list[dict[str, str]]:
    """Make all attempts that count for this kind of sandbox."""
    sandbox = _Sandbox(config)
    deadline = time.monotonic() + TOTAL_SECONDS
    children_allowed = True
    results = []
    for entry in ATTEMPTS:
        if sandbox.kind not in entry.kinds:
            continue
        answer = _Answer("skipped", "no time was left")
        if time.monotonic() < deadline:
            if children_allowed:
                try:
                    answer = _judge_in_child(entry, sandbox)
                except OSError:
                    children_allowed = False
            if not children_allowed:
                answer = _judge_in_thread(entry, sandbox)
        results.append({"name": entry.name, "group": entry.group, **answer._asdict()})
    return results


def main() -> None:
    """Read the config from stdin and print the results."""
    line = sys.stdin.readline()
    if line.strip():
        print(json.dumps(probe(json.loads(line))), flush=True)


if __name__ == "__main__" and getattr(sys.modules["__main__"], "probe", None) is probe:
    main()
