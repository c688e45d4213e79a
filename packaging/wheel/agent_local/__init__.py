"""The program as it is installed: its packages are in this folder of the wheel.

Their names (``agent``, ``tools``, ``tui``) are common, so they are on the path of the program and its
own child processes only, before the packages of others. In a checkout they are on the path already.
"""

import sys
from pathlib import Path


def main() -> None:
    """Run the command in ``sys.argv``; always ends the process with an exit code."""
    sys.path.insert(0, str(Path(__file__).parent))
    from agent.__main__ import main as run_program

    run_program()
