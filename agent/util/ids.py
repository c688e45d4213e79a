"""Ids in the style of the Responses API: a prefix that says what it names, and 128 random bits."""

import uuid


def new_id(prefix: str) -> str:
    """Make an id such as ``resp_…``, ``conv_…``, ``msg_…``, ``rs_…``, ``mcp_…``, ``fc_…``."""
    return f"{prefix}_{uuid.uuid4().hex}"
