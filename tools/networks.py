"""Which IP addresses are public, and which hosts a command or server may reach. `ipaddress.is_global`
depends on the Python version (before 3.11.10 some networks are wrong), and knows no addresses of a
cloud's services. Reference: IANA's registries."""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from agent.errors import AgentError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",
        "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
        "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "2001::/23", "2001:db8::/32", "3fff::/20",
    )
)  # fmt: skip
"""Networks that are not public; 168.63.129.16 is Azure's host."""
_UNICAST, _NAT64 = ipaddress.ip_network("2000::/3"), ipaddress.ip_network("64:ff9b::/96")
"""All public IPv6 addresses; those by which IPv4 addresses are reached."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host and port."""
WEB_PORTS = (80, 443)
"""Ports of a host that is named without one."""
LOOPBACK = "loopback"
"""In place of a host: ports of the sandbox itself."""
_LABEL = "[a-z0-9_]+(?:-+[a-z0-9_]+)*"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?!(?:.*\.)?[0-9]+\Z){_LABEL}(?:\.{_LABEL})*")


class HostError(AgentError):
    """A text names no host that could be allowed; the message is the predicate of a sentence."""


@dataclass(frozen=True, slots=True)
class HostRule:
    """One host, all below it (``*.example.org``), or a network, with its ports."""

    name: str
    """Empty: a network."""
    network: Network | None
    ports: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``example.org``, ``*.example.org``, an address or a network, with ``:PORT`` or not; an
        IPv6 address with a port is in brackets. Raises HostError."""
        ports: tuple[int, ...] = WEB_PORTS
        host = text.strip().lower().removesuffix(".")
        if match := re.fullmatch(r"(\[[^]]*\]|[^:]*):([0-9]{1,5})", host):
            host, ports = match[1], (int(match[2]),)
            if not 0 < ports[0] < 1 << 16:
                raise HostError(f"{text!r} has no port of a host")
        with suppress(ValueError):
            return cls("", ipaddress.ip_network(host.strip("[]"), strict=False), ports)
        name = host.removeprefix("*.")
        if not _HOST_NAME.fullmatch(name) or (name != host and "." not in name):
            raise HostError(f"{text!r} is not a host such as example.org or *.example.org")
        return cls(host, None, ports)

    def __str__(self) -> str:
        host = self.name
        if self.network is not None:
            host = str(self.network[0] if self.network.num_addresses == 1 else self.network)
        if self.ports == WEB_PORTS:
            return host
        return f"[{host}]:{self.ports[0]}" if ":" in host else f"{host}:{self.ports[0]}"


class AllowedHosts:
    """The hosts that may be reached."""

    def __init__(self, hosts: Iterable[str]) -> None:
        """Raises HostError."""
        self._rules = [HostRule.parse(host) for host in hosts]

    def allows(self, host: str, port: int) -> bool:
        name = host.lower().removesuffix(".")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return bool(_HOST_NAME.fullmatch(name)) and any(
                port in rule.ports
                and rule.name
                and (rule.name == name or (rule.name[0] == "*" and name.endswith(rule.name[1:])))
                for rule in self._rules
            )
        return any(address in network for network in self.networks(port))

    def covers(self, rule: HostRule) -> bool:
        if rule in self._rules:
            return True
        network = rule.network
        is_one_host = rule.name[0] != "*" if network is None else network.num_addresses == 1
        host = rule.name if network is None else str(network[0])
        return is_one_host and all(self.allows(host, port) for port in rule.ports)

    def networks(self, port: int) -> list[Network]:
        """Return the networks that may be reached although they are not public."""
        return [rule.network for rule in self._rules if rule.network and port in rule.ports]


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a host with the system's resolver; raises OSError."""
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in addresses]


def permits(text: str, allowed: Iterable[Network] = ()) -> bool:
    """Return whether an address may be connected to: it is public, or in an allowed network."""
    try:
        address: Address = ipaddress.ip_address(text)
    except ValueError:  # with a scope: link-local
        return False
    return any(address in network for network in allowed) or is_public(address)


def is_public(address: Address) -> bool:
    """Whether an address, and each IPv4 address that is embedded in it, is public."""
    return all(_is_public(part) for part in _embedded_addresses(address))


def _is_public(address: Address) -> bool:
    if address.version == 6 and not (address in _UNICAST or address in _NAT64):
        return False
    if any(address in network for network in NOT_PUBLIC) or address.is_multicast:
        return False
    # Newer versions of Python call all 6to4 addresses private; the one within is looked at by itself.
    is_6to4 = isinstance(address, ipaddress.IPv6Address) and address.sixtofour is not None
    return is_6to4 or address.is_global


def _embedded_addresses(address: Address) -> list[Address]:
    """Return the address and the IPv4 addresses in it: of a mapped one (::ffff:0:0/96) that alone, of
    6to4 (2002::/16), Teredo (2001::/32) and NAT64 (64:ff9b::/96) both."""
    if not isinstance(address, ipaddress.IPv6Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    addresses: list[Address] = [address, *(address.teredo or ())]
    if address.sixtofour is not None:
        addresses.append(address.sixtofour)
    if address in _NAT64:
        addresses.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return addresses
