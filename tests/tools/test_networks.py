"""Which addresses the browser and clients' MCP servers may have."""

import ipaddress

import pytest

from tools.networks import is_public

PRIVATE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "168.63.129.16", "169.254.169.254",
    "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.19.0.1",
    "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::a00:1",
    "64:ff9b:1::808:808", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1",
    "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "168.63.129.17", "172.32.0.1", "192.0.1.1", "223.255.255.255",
    "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808", "2002:808:808::", "::ffff:8.8.8.8",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_is_public_private_address_false(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_is_public_public_address_true(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
