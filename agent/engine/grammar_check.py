"""Run as a program: can this grammar be compiled, within a second of the processor's time?

A client's grammar may keep llguidance busy without end. Here it may: the process has limits, and who
started it goes on. Reads Lark from stdin; exit code 0, or 1 with the reason on stdout.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SECONDS = 1
"""Of the processor."""
PATIENCE = 20.0
"""Seconds of the clock, on a machine that is busy."""
MEMORY = 1 << 30
"""Bytes of address space that it may take."""


def vet(lark: str) -> str | None:
    """Why the grammar cannot be used; None: it can. Blocks."""
    command = [sys.executable, "-I", str(Path(__file__))]
    try:
        done = subprocess.run(
            command, input=lark, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=PATIENCE, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it takes too long to compile"
    match done.returncode:
        case 0:
            return None
        case 1:
            return done.stdout.strip() or "it cannot be compiled"
        case _:
            return f"it takes more than {SECONDS} s or too much memory to compile"


class _Bytes:
    """A vocabulary of single bytes: what a grammar costs to compile hardly depends on it."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = 256
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<|end|>")

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


def _main() -> int:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from llguidance import LLMatcher, LLTokenizer

    tokenizer = LLTokenizer(_Bytes(), slices=[])  # type: ignore[arg-type]
    lark = LLMatcher.grammar_from_lark(sys.stdin.read())
    matcher = LLMatcher(tokenizer, lark, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()
    if matcher.is_error():
        print(matcher.get_error())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
