"""``agent``, whose streams send a sign of life each second, so that clients' limits can be short."""

from functools import partial

from agent.cli import main as commands

commands.ServerOptions = partial(commands.ServerOptions, keepalive_seconds=1.0)  # type: ignore
commands.main()
