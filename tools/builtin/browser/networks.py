"""Which IP addresses are public. `ipaddress.is_global` depends on the Python version (before 3.11.10
some networks are wrong), and knows no addresses of a cloud's services. Reference: IANA's registries."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",
        "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
        "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "2001::/23", "2001:db8::/32", "3fff::/20",
    )
)  # fmt: skip
"""Networks that nobody on the internet has; 168.63.129.16 is Azure's host."""
_UNICAST, _NAT64 = ipaddress.ip_network("2000::/3"), ipaddress.ip_network("64:ff9b::/96")
"""All public IPv6 addresses; those by which IPv4 addresses are reached."""


def is_public(address: Address) -> bool:
    """Whether an address, and each IPv4 address that is embedded in it, is public."""
    return all(_is_public(part) for part in _embedded_addresses(address))


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and not (
        address in _UNICAST or address in _NAT64
    ):
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
