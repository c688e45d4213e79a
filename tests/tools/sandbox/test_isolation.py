"""What proves an isolation."""

import sys

import pytest

from tools.sandbox import isolation


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux offers")
def test_probe_without_isolation_names_every_escape() -> None:
    found = isolation.probe("none") or ""
    for attempt in (
        "read a file outside",
        "open a socket",
        "signal the parent",
        "send datagrams",
        "signal the parent by F_SETOWN",
        "signal the parent by F_SETOWN_EX",
        "signal the parent by FIOSETOWN",
        "choose a signal by F_SETSIG",
    ):
        assert f"{attempt}," in found or found.endswith(attempt), found
