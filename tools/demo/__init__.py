"""MCP servers for demonstrations (--demo-tools): weather, time and notes, each a real process."""
