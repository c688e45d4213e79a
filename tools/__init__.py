"""Tools: MCP servers, built-in servers, their settings, and the policy of approvals."""
