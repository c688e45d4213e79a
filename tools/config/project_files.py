"""The names of project files: a leaf, as every start looks for them; `project` takes 15 ms."""

from __future__ import annotations

PROJECT_FILES = (".mcp.json", "mcp.json")
"""In the working folder; the first that is there counts."""
