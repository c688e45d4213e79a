"""Group ``parser``: our Harmony parser beside openai-harmony's StreamableParser, token by token.

After each token the results are read as a program would read them.
"""

import time
from collections.abc import Callable

from openai_harmony import HarmonyEncoding, Role, StreamableParser

from agent.formats.harmony.encoding import load_encoding as load
from agent.formats.harmony.parser import HarmonyParser
from agent.formats.recipients import Recipients
from agent.tiny.vocabulary import ranks
from tests.bench import BenchmarkRow, compare

TEXT = "A quick “fox” computes 123*456 in Österreich, writes नमस्ते and sends a 👩‍👩‍👧. "
CALL_HEADER = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"


def rows() -> list[BenchmarkRow]:
    """A short and a long message, and the header of a call."""
    encoding = load(ranks)
    recipients = Recipients(["functions.get_weather", "python"])
    header = encoding.encode(CALL_HEADER, allowed_special="all")
    body = encoding.encode(TEXT * 2_500)

    def row(name: str, ids: list[int], repeat: int) -> BenchmarkRow:
        return compare(
            name,
            "tokens/s",
            _make_rate(lambda: _parse_with_agent(encoding, recipients, ids), len(ids), repeat),
            "StreamableParser",
            _make_rate(lambda: _parse_with_openai(encoding, ids), len(ids), repeat),
        )

    return [
        row("Harmony, 2k content tokens", header + body[:2_000], 5),
        row("Harmony, 50k content tokens", header + body[:50_000], 1),
        row("Harmony, a call's header", header, 100),
    ]


def _make_rate(work: Callable[[], None], tokens: int, repeat: int) -> Callable[[], float]:
    def measure() -> float:
        start = time.perf_counter()
        for _ in range(repeat):
            work()
        return tokens * repeat / (time.perf_counter() - start)

    return measure


def _parse_with_agent(encoding: HarmonyEncoding, recipients: Recipients, ids: list[int]) -> None:
    parser = HarmonyParser(encoding, recipients)
    for token in ids:
        parser.feed((token,))
    parser.finish()


def _parse_with_openai(encoding: HarmonyEncoding, ids: list[int]) -> None:
    parser = StreamableParser(encoding, Role.ASSISTANT)
    for token in ids:
        parser.process(token)
        _ = parser.last_content_delta, parser.current_channel, parser.current_recipient
