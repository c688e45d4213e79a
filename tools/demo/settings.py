"""The demonstration servers as the host starts them, and what to ask them."""

import sys

from agent.util.programs import module_arguments
from tools.config.servers import ServerConfig

SERVER_NAMES = ("weather", "time", "notes")
EXAMPLES = (
    "What's the weather in Paris?",
    "What time is it in Asia/Tokyo?",
    "Add a note: water the plants",
)
"""Prompts that the embedded model answers with these servers; README.md has them too."""


def demo_servers() -> list[ServerConfig]:
    """The servers of --demo-tools; naming that option is what trusts them."""
    module = module_arguments("tools.demo.server")
    return [
        ServerConfig(
            name,
            command=sys.executable,
            args=(*module, name),
            trusted=True,
            required=True,
            command_line=f"python -m tools.demo.server {name}",
            startup_timeout_sec=120.0,  # on a machine that is busy too
        )
        for name in SERVER_NAMES
    ]
