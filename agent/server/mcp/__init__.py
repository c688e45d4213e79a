"""This program as an MCP server."""
