"""Attacks on the program, most of them written without a look at its code: ``make attack``."""

GROUPS = ("rules", "sandbox", "exhaustion", "repositories", "later", "swaps", "network",
          "mcp_servers", "http_clients", "other_clients")  # fmt: skip
