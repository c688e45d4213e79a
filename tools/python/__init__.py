"""The python hand: code in a stateful worker process, confined."""

from tools.python.hand import Python

__all__ = ["Python"]
