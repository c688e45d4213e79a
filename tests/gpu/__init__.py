"""``make gpu``: this program on the GPUs of this machine, beside llama.cpp's own programs.

llama.cpp is compiled for them in an environment of its own, below ``.gpu``. Each of STAGES then is a
process that prints rows of a Markdown table; `page` writes them into docs/gpu.md. A machine without
internet needs what ``python -m tests.gpu pack`` collected on one that has it, in CARRIED.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".gpu"
"""What is built, measured and carried; git ignores it."""
CARRIED = FOLDER / "carried"
"""Wheels, and the source of llama-cpp-python, for a machine without internet."""
ALL_LAYERS = 999
"""More layers than any model has."""
BENCH_GROUPS = ("decode", "streams", "followup", "prefixes")
"""Groups of tests.bench that are measured on GPUs too."""
STAGES = ("engine", "memory", "tokens", *BENCH_GROUPS)
