"""The shell hand: one command at a time, confined to the root folder."""

from tools.shell.hand import Shell

__all__ = ["Shell"]
