"""The length of the longest common prefix of two sequences."""

from collections.abc import Sequence

_BLOCK_ITEMS = 1024
"""Items per comparison: two slices are compared many times faster than their items one by one."""


def common_prefix_length(a: Sequence[object], b: Sequence[object]) -> int:
    length = min(len(a), len(b))
    for start in range(0, length, _BLOCK_ITEMS):
        end = min(start + _BLOCK_ITEMS, length)
        if a[start:end] != b[start:end]:
            for i in range(start, end):
                if a[i] != b[i]:
                    return i
    return length
