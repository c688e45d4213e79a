"""The names of project files: a leaf of its own, since the start of every command looks for these
files, while ``tools.config.project``, which reads them, takes some 15 ms to import."""

from __future__ import annotations

PROJECT_FILES = (".mcp.json", "mcp.json")
"""In the working folder; the first that is there counts."""
