"""MCP's own conformance suite for clients, against the commands of ``agent mcp``."""
