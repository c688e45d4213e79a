"""The system call filter, run here instruction by instruction: also for the other processor."""

import pytest

from tools.sandbox import confine

ALLOW, PID = "allow", 4711


def verdict(
    arch: int,
    number: int,
    argument: int = 0,
    audit: int | None = None,
    mode: str = "alone",
    abi: int = confine.SCOPED_LANDLOCK_ABI,
    second: int = 0,
    third: int = 0,
    fourth: int = 0,
) -> str | int:
    """What the kernel would do: allow, kill, or answer with an error number."""
    data = {
        0: number,
        4: confine.AUDIT_ARCH[arch] if audit is None else audit,
        16: argument,
        24: second,
        32: third,
        40: fourth,
    }
    rules = confine.filter_program(arch, PID, mode, abi)
    at = value = 0
    while True:
        code, true, false, k = rules[at]
        at += 1
        match code:
            case 0x20:
                value = data[k]
            case 0x15:
                at += true if value == k else false
            case 0x35:
                at += true if value >= k else false
            case 0x54:
                value &= k
            case 0x45:
                at += true if value & k else false
            case 0x06:
                return {0x7FFF0000: ALLOW, 0x80000000: "kill"}.get(k, k & 0xFFFF)


@pytest.mark.parametrize("arch", [0, 1])
def test_filter_alone_follows_call_tables(arch: int) -> None:
    for calls, answer in (
        (confine.DENIED_CALLS, confine.EPERM_ERRNO),
        (confine.IGNORED_CALLS, 0),
        (confine.UNSUPPORTED_CALLS, confine.EOPNOTSUPP_ERRNO),
    ):
        for name, numbers in calls.items():
            if (number := numbers[arch]) is not None:
                assert verdict(arch, number) == answer, name
    for name, numbers in confine.SELF_ONLY_CALLS.items():
        number = numbers[arch]
        assert number is not None
        assert verdict(arch, number, PID) == verdict(arch, number, 0) == ALLOW, name
        assert verdict(arch, number, 1) == verdict(arch, number, 0xFFFFFFFF) == confine.EPERM_ERRNO
    read, futex = ((0, 202), (63, 98))[arch]
    assert verdict(arch, read) == verdict(arch, futex) == ALLOW
    clone = confine.CLONE[arch]
    assert verdict(arch, clone, 0x3D0F00) == ALLOW  # a thread, as the C library starts it
    assert verdict(arch, clone, 17) == verdict(arch, clone, 0x10000000) == confine.EPERM_ERRNO
    assert verdict(arch, confine.CLONE3[arch]) == confine.ENOSYS_ERRNO
    assert verdict(arch, 0x40000029) == confine.ENOSYS_ERRNO
    assert verdict(arch, read, audit=confine.AUDIT_ARCH[1 - arch]) == "kill"


@pytest.mark.parametrize("arch", [0, 1])
@pytest.mark.parametrize("mode", ["namespace", "landlock"])
def test_filter_command_allows_only_starting_processes(arch: int, mode: str) -> None:
    def of(name: str, argument: int = 0, abi: int = confine.SCOPED_LANDLOCK_ABI) -> str | int:
        groups = confine.DENIED_CALLS, confine.IGNORED_CALLS, confine.UNSUPPORTED_CALLS
        number = next(
            group[name][arch] for group in (*groups, confine.SELF_ONLY_CALLS) if name in group
        )
        assert number is not None, name
        return verdict(arch, number, argument, mode=mode, abi=abi)

    assert of("execve") == ALLOW
    clone = confine.CLONE[arch]
    assert verdict(arch, clone, 17, mode=mode) == ALLOW
    for namespace in (0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x02000000):
        assert verdict(arch, clone, namespace | 17, mode=mode) == confine.EPERM_ERRNO
    assert verdict(arch, confine.CLONE3[arch], mode=mode) == confine.ENOSYS_ERRNO
    for name in ("socket", "ptrace", "process_vm_writev", "unshare", "setns", "io_uring_setup"):
        assert of(name) == confine.EPERM_ERRNO, name
    confined = mode == "landlock"
    # Where the file system is the person's own, modes and times cannot be changed.
    assert of("fchmodat") == (0 if confined else ALLOW)
    assert of("setxattr") == (confine.EOPNOTSUPP_ERRNO if confined else ALLOW)
    assert of("prlimit64", 1) == (confine.EPERM_ERRNO if confined else ALLOW)
    # Landlock bounds signals, but an older one does not.
    assert of("kill", 1) == ALLOW
    assert of("kill", 1, abi=5) == (confine.EPERM_ERRNO if confined else ALLOW)
    assert of("getpgid", 1) == of("getsid", 1) == ALLOW  # of processes that it starts
    assert of("truncate", abi=2) == (confine.EPERM_ERRNO if confined else ALLOW)


@pytest.mark.parametrize("arch", [0, 1])
@pytest.mark.parametrize("mode", ["alone", "namespace", "network", "landlock"])
def test_filter_sockets_and_descriptors_signal_nobody(arch: int, mode: str) -> None:
    def of(number: int, first: int, second: int) -> str | int:
        return verdict(arch, number, first, mode=mode, second=second)

    refused, flags, pair = confine.EPERM_ERRNO, 0o2004000, confine.SOCKETPAIR[arch]
    assert of(pair, 1, 1) == of(pair, 1, 1 | flags) == ALLOW
    for kind in (2, 3, 4, 6, 10, 2 | flags, 3 | flags, 0):
        assert of(pair, 1, kind) == refused, kind
    # Of programs of Rust, to start others: connected, as streams are.
    packets = refused if mode == "alone" else ALLOW
    assert of(pair, 1, 5) == of(pair, 1, 5 | flags) == packets
    assert of(pair, 30, 1) == refused  # TIPC
    fcntl, ioctl = ((72, 16), (25, 29))[arch]
    for value in (8, 10, 15):
        assert of(fcntl, 3, value) == refused
    assert of(fcntl, 8, 4) == of(fcntl, 3, 9) == of(ioctl, 3, 0x5401) == ALLOW
    for value in (0x8901, 0x8902, 0x5412):
        assert of(ioctl, 3, value) == refused
    setsockopt = (54, 208)[arch]
    for option in (7, 8, 32, 33):  # SO_SNDBUF, SO_RCVBUF, and by force
        assert verdict(arch, setsockopt, 3, mode=mode, second=1, third=option) == refused
    assert verdict(arch, setsockopt, 3, mode=mode, second=1, third=20) == ALLOW


@pytest.mark.parametrize("arch", [0, 1])
def test_filter_network_is_of_tcp_and_udp_only(arch: int) -> None:
    number, flags, refused = confine.SOCKET_CALL[arch], 0o2004000, confine.EPERM_ERRNO

    def of(family: int, kind: int, mode: str = "network") -> str | int:
        return verdict(arch, number, family, mode=mode, second=kind)

    for family in (2, 10):
        for kind in (1, 2, 1 | flags, 2 | flags):
            assert of(family, kind) == ALLOW
            for mode in ("alone", "namespace", "landlock"):
                assert of(family, kind, mode) == refused
        for kind in (0, 3, 5, 6, 10, 3 | flags):
            assert of(family, kind) == refused, kind
    for family in (0, 1, 16, 17, 30, 40):  # Unix, netlink, packet, TIPC, virtual machines
        assert of(family, 1) == of(family, 2) == refused, family
    for name in confine.NETWORK_CALLS - {"socket"}:
        call = confine.DENIED_CALLS[name][arch]
        assert call is not None and verdict(arch, call, mode="network") == ALLOW
        assert verdict(arch, call, mode="namespace") == refused


@pytest.mark.parametrize("arch", [0, 1])
@pytest.mark.parametrize("mode", ["alone", "namespace", "landlock"])
def test_filter_no_set_uid_set_gid_or_device(arch: int, mode: str) -> None:
    eperm, ignored = confine.EPERM_ERRNO, {0} if mode != "namespace" else {ALLOW}
    for name, (*call, mode_offset, flags_offset) in confine.MODE_CALLS.items():
        if (number := call[arch]) is None:
            continue
        pretended = name in confine.IGNORED_CALLS and mode != "namespace"

        def of(
            bits: int,
            flags: int = 0o100,
            number: int = number,
            offsets: tuple[int | None, int] = (flags_offset, mode_offset),
        ) -> str | int:
            arguments = {None: "third", 24: "second", 32: "third", 40: "fourth"}
            values = {arguments[offset]: 0 for offset in offsets} | {arguments[offsets[0]]: flags}
            return verdict(arch, number, mode=mode, **(values | {arguments[offsets[1]]: bits}))

        for bits in (0o644, 0o755, 0o1777, 0o100644, 0o10644, 0o140755):
            assert of(bits) in (ignored if pretended else {ALLOW}), (name, oct(bits))
        for bits in (0o4755, 0o2755, 0o6000, 0o104755, 0o20666, 0o60666):
            assert of(bits) == (0 if pretended else eperm), (name, oct(bits))
        if flags_offset is not None:
            assert of(0o4755, 0) == ALLOW, "the mode of a file that is not created means nothing"
            assert of(0o4755, 0o20200002) == eperm, "O_TMPFILE"
    assert verdict(arch, confine.OPENAT2[arch], mode=mode) == confine.ENOSYS_ERRNO
