"""What a folder's own servers are written in. A leaf: looked at before the first paint."""

from __future__ import annotations

FILES = (".mcp.json", "mcp.json")
"""The first that is there counts."""
