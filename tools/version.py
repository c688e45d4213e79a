"""Which version of the program this is: what it says of itself to people and to servers."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as of_package


def version() -> str:
    try:
        return of_package("agent-local")
    except PackageNotFoundError:  # it runs from a tree that was never installed
        return "0"
