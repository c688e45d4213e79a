"""The MCP client: the host, its servers, their connections, and logins."""
