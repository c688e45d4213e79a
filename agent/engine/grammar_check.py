"""Checks in a child process whether a grammar compiles within a second of CPU time: llguidance may take
forever or exhaust the memory. The child is this file: it reads Lark from stdin and exits with 0, or
with 1 and the reason on stdout."""

import subprocess
import sys
from pathlib import Path

GRAMMAR_CPU_SECONDS = 1
CHECK_TIMEOUT_SECONDS = 20.0
MAX_ADDRESS_SPACE_BYTES = 1 << 30


def check_grammar(lark: str) -> str | None:
    """Why a Lark grammar cannot be used, or None. Blocks. Raises OSError where this is unknown."""
    command = [sys.executable, "-I", str(Path(__file__))]
    try:
        child = subprocess.run(
            command, input=lark, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=CHECK_TIMEOUT_SECONDS, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError("the check takes too long") from None
    match child.returncode:
        case 0:
            return None
        case 1:
            return child.stdout.strip() or "it cannot be compiled"
        case _:
            return f"it takes more than {GRAMMAR_CPU_SECONDS} s or too much memory to compile"


def _main() -> int:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (GRAMMAR_CPU_SECONDS, GRAMMAR_CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE_BYTES, MAX_ADDRESS_SPACE_BYTES))
    from llguidance import LLMatcher, LLTokenizer

    # The cost of compiling hardly depends on the vocabulary: that of single bytes will do.
    tokenizer = LLTokenizer("byte", slices=[])
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
