"""``make sdks``: which version of MCP is spoken with servers on each SDK, and which questions work."""
