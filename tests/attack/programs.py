"""Reads the programs of an attack from a text file.

A line ``=== NAME`` begins a program, a line that begins with ``## `` is a comment. A program whose name
begins with ``@`` is a part of others: it stands where a line of theirs names it.
"""

import re
from pathlib import Path


def read_programs(name: str) -> dict[str, str]:
    """Return the programs of a file beside this one, by their names."""
    text = re.sub(r"^## .*\n", "", Path(__file__).with_name(name).read_text(), flags=re.MULTILINE)
    programs = dict(re.findall(r"^=== (.+)\n((?:(?!=== ).*\n)*)", text, flags=re.MULTILINE))
    parts = {name: programs.pop(name) for name in [*programs] if name.startswith("@")}
    return {
        name: re.sub(r"^(@\w+)\n", lambda line: parts[line[1]], program, flags=re.MULTILINE)
        for name, program in programs.items()
    }
