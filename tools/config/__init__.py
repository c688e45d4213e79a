"""The settings of MCP servers: reading, editing and importing them."""
