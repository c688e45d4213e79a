"""Folders as someone hostile leaves them."""

import os
from pathlib import Path


def nest_folders(folder: Path, depth: int) -> None:
    """Make a folder with ``depth`` folders, each in the one before, and a file in the innermost."""
    folder.mkdir(parents=True)
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("nested", dir_fd=inner)
        outer, inner = inner, os.open("nested", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(os.open("file", os.O_CREAT, dir_fd=inner))
    os.close(inner)
