"""The version of the program, as it is reported to people and to MCP servers."""

import functools
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version


@functools.cache
def program_version() -> str:
    """Return the installed version; ``0`` in a source tree that was never installed."""
    try:
        return package_version("agent-local")
    except PackageNotFoundError:
        return "0"
