"""``python -m agent_local``."""

from agent_local import main

main()
