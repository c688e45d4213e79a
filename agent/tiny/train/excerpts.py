"""Lines of real files, and the names in real folders: of this checkout and of Python's libraries.

What is made of words and templates does not teach to copy what stands in people's folders: with
such results alone one token in seven of a real file was copied wrongly, one in 150 of the
generator's own.
"""

from __future__ import annotations

import os
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
HOME = (
    "Desktop/", "Documents/", "Downloads/", "Music/", "Pictures/", "Videos/", "Public/",
    "Templates/", "Projects/", "src/", "backup/", "notes/", "old/", ".bashrc", ".cache/",
    ".config/", ".git/", ".gitignore", ".local/", ".profile", ".ssh/", ".venv/", "README.md",
    "LICENSE", "Makefile", "requirements.txt", "package.json", "Dockerfile", "notes.txt",
    "todo.txt", "cv.pdf", "index.html",
)  # fmt: skip
"""What many people's folders have."""
SERIES = (
    "IMG_{n:04}.jpg", "DSC{n:05}.JPG", "Screenshot 2026-{m:02}-{d:02}.png", "scan{n}.pdf",
    "invoice_{n}.pdf", "Invoice {n}.pdf", "2025-{m:02}-{d:02}.md", "chapter{d}.md", "track {d:02}.mp3",
    "report-2024-{m:02}.xlsx", "backup_{n}.zip", "part{d:02}.csv", "log.{d}", "slide {d}.png",
    "draft v{d}.docx", "week{d}.txt", "test_{d}.py", "v1.{d}.tar.gz",
)  # fmt: skip
"""Names that come in numbers; they differ in one place alone."""


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


@cache
def folders(split: Split) -> tuple[tuple[str, ...], ...]:
    """The names in folders, those of folders with a slash, no two alike; an eighth of the folders is
    kept for evaluation."""
    own = [ROOT / name for name in ("agent", "docs", "tests", "tools", "tui")]
    found = set()
    for top in (*own, *map(Path, (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")))):
        for _, inner, names in os.walk(top):
            found.add((*(f"{name}/" for name in sorted(inner)), *sorted(names)))
            inner[:] = [name for name in inner if name not in ("__pycache__", "node_modules")]
    return tuple(names for names in sorted(found) if names and words.belongs(str(names), split))


def folder(rng: random.Random, split: Split) -> list[str]:
    """The names in a folder as the file tool sorts them: a real one, or one made of real names."""
    real = folders(split)
    if rng.random() < 0.4:
        return sorted(rng.choice(real))
    names = set[str]()
    for _ in range(rng.choice([1, 2, 2, 3, 4])):
        kind, count = rng.random(), rng.choice([1, 2, 2, 3, 4, 6, 10])
        if kind < 0.35:
            names.update(rng.choices(HOME, k=count))
        elif kind < 0.6:
            form, first = rng.choice(SERIES), rng.randrange(1, 4000)
            month, day = rng.randint(1, 12), rng.randint(1, 28)
            names.update(form.format(n=first + at, m=month, d=day + at) for at in range(count))
        else:
            names.update(rng.choice(rng.choice(real)) for _ in range(count))
    return sorted(names)
