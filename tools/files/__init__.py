"""The files hand: reading below a root, and changes that can be taken back."""

from tools.files.hand import Files

__all__ = ["Files"]
