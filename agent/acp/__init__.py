"""The Agent Client Protocol (https://agentclientprotocol.com): conversations in an editor."""
