"""The files hand: reading below a root."""

from tools.files.hand import Files

__all__ = ["Files"]
