"""``make servers``: whether published MCP servers work here, plainly and in the sandbox."""
