"""Lines of real files: of this checkout and of Python's standard library.

What is made of words and templates does not teach to copy what stands in people's folders: with
such results alone one token in seven of a real file was copied wrongly, one in 150 of the
generator's own.
"""

from __future__ import annotations

import random
import sysconfig
from functools import cache
from pathlib import Path

from agent.tiny.train import words
from agent.tiny.train.words import Split

TRAINING, ROOT = Path(__file__).parent, Path(__file__).parents[3]
"""What teaches and judges the model; the checkout."""
OWN_FILES = (
    "*.md", "*.toml", "Makefile", "docs/*.md", "tui/*.tcss",
    "agent/**/*.py", "tests/**/*.py", "tools/**/*.py", "tui/**/*.py",
)  # fmt: skip
"""Patterns of its text files; those of TRAINING are left out."""
MAX_LINE_CHARACTERS = 200
MAX_EXCERPT_CHARACTERS = 900


@cache
def files(split: Split) -> tuple[tuple[str, ...], ...]:
    """The lines of each file; an eighth of all files is kept for evaluation."""
    own = {path for pattern in OWN_FILES for path in ROOT.glob(pattern)}
    library = Path(sysconfig.get_path("stdlib")).glob("*.py")
    found = []
    for path in [*sorted(own), *sorted(library)]:
        if path.is_relative_to(TRAINING) or not words.belongs(path.name, split):
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if lines:
            found.append(tuple(line for line in lines if len(line) <= MAX_LINE_CHARACTERS))
    return tuple(found)


def excerpt(rng: random.Random, split: Split) -> str:
    """A few lines of a file that follow each other; a third of them begin it."""
    while True:
        lines = rng.choice(files(split))
        count = rng.choice([1, 1, 2, 2, 3, 4, 5, 6, 8, 12, 20])
        start = 0 if rng.random() < 0.33 else rng.randrange(max(1, len(lines) - count))
        text = "\n".join(lines[start : start + count]).strip("\n")
        if 3 <= len(text) <= MAX_EXCERPT_CHARACTERS:
            return text
