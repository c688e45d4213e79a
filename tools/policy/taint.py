"""Reading and sending together: private data, text of strangers and a way out. With all three in one
conversation a page or a file can have the model send something private off, so the call that sends asks
first, unless it goes to an address that was linked, or to a host that the person named. Tools have
labels (`tools.types.Label`), a conversation has those of all its results. A rule, setting or answer for
the tool itself covers any arguments, as everywhere."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from tools.config.servers import ServerConfig
from tools.types import Tool

_ADDRESS = re.compile(
    r"https?://[^\s<>\"'`]+"
    r"|(?<![\w@./-])(?:www\.(?:[a-z0-9-]+\.)+[a-z]{2,}|(?:[a-z0-9-]+\.)+(?:com|edu|gov))(?![\w@-])",
    re.IGNORECASE,
)
"""Without https:// or www. only names that cannot be files: ``main.tf`` and ``notes.org`` are both."""
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//\S", re.IGNORECASE)
_ADDRESS_NAMES = frozenset(
    ("url", "urls", "uri", "uris", "href", "link", "links", "address", "endpoint", "host", "hostname",
     "domain", "site", "website", "webhook")
)  # fmt: skip
"""Arguments that are addresses, however they are written."""
MAX_NAMES = 3
"""Tools and attached texts that a question names at most."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The labels and hosts that a conversation has read."""

    private: frozenset[tuple[str, str]] = frozenset()
    """Server and name of tools whose results may be private; attachments have no server."""
    untrusted: frozenset[tuple[str, str]] = frozenset()
    """Those whose results may hold text of strangers."""
    hosts: frozenset[str] = frozenset()
    """Hosts that the person named."""

    @classmethod
    def of(cls, results: Iterable[tuple[Tool, bool]], person: Iterable[str]) -> Self:
        """Make it of the tools that were read, with whether they are public, and a person's words."""
        labels = [
            ((tool.server, tool.name), tool.labels - ({"private"} if public else set()))
            for tool, public in results
        ]
        return cls(
            frozenset(name for name, of in labels if "private" in of),
            frozenset(name for name, of in labels if "untrusted" in of),
            frozenset(host for text in person for host in named_hosts(text)),
        )


def named_hosts(text: str) -> set[str]:
    hosts = set()
    for match in _ADDRESS.finditer(text):
        address = match[0] if "://" in match[0] else f"https://{match[0]}"
        with suppress(ValueError):
            hosts.add((urlsplit(address).hostname or "").rstrip(".,;:!?)]}"))
    return hosts - {""}


def find_leak(
    tool: Tool, config: ServerConfig, arguments: dict[str, Any], exposure: Exposure
) -> tuple[str, tuple[str, ...] | None] | None:
    """Return what a call could send off and where to, as the predicate of a sentence about it, and the
    rules that would allow it (None: an approval of the tool would). None if it sends nothing off."""
    if not may_send(tool, config) or ("sends" not in tool.labels and not _has_address(arguments)):
        return None
    # A server's own results may be sent back to it.
    read = describe_read(exposure, except_for=tool.server)
    if config.builtin is None or not config.builtin.knows_destinations:
        return (f"it {read}", None) if read else None
    host = config.builtin.destination(tool.name, arguments) if read else None
    if host is None or host in exposure.hosts:
        return None
    reason = f"it {read}: neither you nor a link named this address of {host}"
    return reason, (f"open {host}",)


def describe_read(exposure: Exposure, except_for: str = "") -> str:
    """Return what a call could send off, as a predicate; empty if the conversation has read nothing
    private, or no text of strangers. ``except_for``: a server whose results do not count."""
    private = sorted(name for name in exposure.private if name[0] != (except_for or None))
    if not private or not exposure.untrusted:
        return ""
    names = [f"{server}.{name}" if server else name for server, name in private]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"could send off what this conversation has read ({', '.join(names[:MAX_NAMES])}{more})"


def may_send(tool: Tool, config: ServerConfig) -> bool:
    """Whether a tool's calls may send something: it says so, or is foreign and does not deny it."""
    return "sends" in tool.labels or (config.builtin is None and "untrusted" in tool.labels)


def _has_address(value: Any, name: str = "") -> bool:
    match value:
        case dict():
            return any(_has_address(key) or _has_address(value[key], key) for key in value)
        case list():
            return any(_has_address(each, name) for each in value)
        case str() if value:
            is_address = name.lower() in _ADDRESS_NAMES or _URL.search(value)
            return bool(is_address or named_hosts(value))
    return False
