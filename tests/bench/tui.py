"""The app in a real terminal: how late its screen is while text streams, how soon it is there, what
it costs while nothing happens. A typed character is timed from the key to the bytes that show it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from openai_harmony import HarmonyEncoding

from agent.cli.shared import Shared
from agent.formats.harmony import encoding
from tests.bench import Row, beside
from tests.bench.lag import read
from tests.bench.models import model
from tests.bench.naive import RATE
from tests.bench.screen import CLOCK, Screen, screen
from tools.types import Answer, Tool
from tui.session import Session

PYTHON = (sys.executable, "-P", "-m")
AGENT = (*PYTHON, "agent")
WATCHED = (*PYTHON, "tests.bench.lag")
NAIVE = (*PYTHON, "tests.bench.naive")
READY = "sk something"
"""Of the placeholder; on its first letter stands the cursor."""
TYPED = 0.15
"""Seconds between two typed characters."""
BARE = "Textual, one TextArea"
TEXT_AREA = (*NAIVE, "bare")
REASONING = "reasoning, 60 s"
END = "the-very-end"
LOST = 5.0
"""Seconds; who waits for a character for so long is not waited for."""
EXCHANGES = 100
"""In the long conversation, of 2,000 tokens each."""
CALLED, MORE, CALLS = 300, 75, 1000
"""A turn has called so often and calls some more, at RATE; or all of its calls were made before."""
F2 = "\x1bOQ"
WORDS = tuple(
    re.findall(
        r"\w+",
        """the storm came over the sea and the keeper of the light wrote down
what he saw of the ships that night""",
    )
)


def rows() -> list[Row]:
    return [
        beside(
            "first paint", "s", lambda: _paint(AGENT), BARE, lambda: _paint(TEXT_AREA), 9, "≤ 1.2"
        ),
        *_life(),
        *_long(),
        *_calling(),
        _called(),
        *(row for name, text in shapes().items() for row in _streaming(name, text)),
    ]


def shapes() -> dict[str, str]:
    """What streams, by name."""
    items = (f"- item {n} with **bold** words, `code`, and more to come\n" for n in range(200))
    cells = (f"| {n} | value {n * 7} | some words on it |\n" for n in range(800))
    lines = (f"    total_{n} = add({n}, 'text', total)  # and on\n" for n in range(800))
    return {
        REASONING: prose(60 * RATE),
        "prose, 30 s": prose(30 * RATE),
        "a list of 200 items": "".join(items),
        "a table of 800 rows": "| n | name | what |\n|---|---|---|\n" + "".join(cells),
        "800 lines of Python": f"```python\n{''.join(lines)}```\n",
    }


def prose(tokens: int) -> str:
    """Paragraphs of 60 words, each a token."""
    paragraphs = ([WORDS[(n * 7 + k) % len(WORDS)] for k in range(60)] for n in range(tokens // 60))
    return "".join(" ".join(words) + "\n\n" for words in paragraphs)


# --- starting, doing nothing, leaving ---


def _paint(command: tuple[str, ...]) -> float:
    with _run(command) as app:
        return app.see(READY) - app.began


def _life() -> list[Row]:
    """One start of each, typed into while the model loads, then left alone, then left."""
    measured = zip(_lived(AGENT), _lived(TEXT_AREA), strict=True)
    what = (
        ("typing while the model loads, p99", "ms", "≤ 50 ms"),
        ("CPU while nothing happens", "%", "≤ 1 %"),
        ("leaving", "s", ""),
    )
    return [
        Row(name, unit, BARE, [ours], [theirs], goal)
        for (name, unit, goal), (ours, theirs) in zip(what, measured, strict=True)
    ]


def _lived(command: tuple[str, ...]) -> tuple[float, float, float]:
    with _run(command) as app:
        app.see(READY)
        typing = _p99(_typed(app, 5.0))
        app.rest(5.0)
        before, began = app.cpu(), CLOCK()
        app.rest(20.0)
        return typing, 100 * (app.cpu() - before) / (CLOCK() - began), app.leave()


# --- a long conversation ---


def _long() -> list[Row]:
    name = f"{EXCHANGES * 2000:,} tokens"
    home = _said_before()
    with _run((*AGENT, "-c", *_script(home)), home) as app:
        opened = app.see(END, patience=300.0) - app.began
        app.rest(2.0)
        pages = [_page_up(app) for _ in range(50)]
        to_top = -app.press("\x1b[1;5H") + app.see("first-question")
    with _run((*NAIVE, "open", str(home / "text.md")), home) as app:
        naive = app.see(END, patience=300.0) - app.began
    return [
        Row(f"{name}: opened", "s", "one Markdown widget", [opened], [naive], "≤ 1 s"),
        Row(f"{name}: a page up, p99", "ms", "", [_p99(pages)]),
        Row(f"{name}: to the first question", "ms", "", [to_top * 1000]),
    ]


def _page_up(app: Screen) -> float:
    """Seconds until something moves."""
    pressed = app.press("\x1b[5~")
    app.read(5.0)
    moved = CLOCK() - pressed
    app.rest(0.1)
    return moved


def _said_before() -> Path:
    """A home with a long conversation, said by a script; and its text as Markdown."""
    home = _home()
    lines, text = [], ""
    for number in range(EXCHANGES):
        points = "".join(f"- item **{n}** of `{number}`, and some words\n" for n in range(25))
        code = "".join(f"value_{n} = compute({n}, {number})\n" for n in range(20))
        answer = f"# Answer {number}\n\n{prose(600)}\n{points}\n```python\n{code}```\n"
        if number == EXCHANGES - 1:
            answer += f"\n{END}"
        lines.append(_line(prose(1000), answer))
        text += f"{prose(1000)}{answer}\n\n"
    (home / "script").write_text("\n".join(lines))
    (home / "text.md").write_text(text)
    _say(
        home, [f"question {number}" if number else "first-question" for number in range(EXCHANGES)]
    )
    return home


def _say(home: Path, prompts: list[str], tools: str = "none") -> None:
    """What the home's script answers is kept there."""
    before = os.environ.get("AGENT_HOME")
    os.environ["AGENT_HOME"] = str(home)
    try:
        asyncio.run(_turns(f"script:{home / 'script'}", prompts, tools))
    finally:
        os.environ.pop("AGENT_HOME") if before is None else os.environ.update(AGENT_HOME=before)


async def _turns(engine: str, prompts: list[str], tools: str) -> None:
    session = Session(Shared(engine=engine, context=1_000_000, tools=tools, compact=False))
    await session.begin()
    await session.load(lambda fraction: None)
    for prompt in prompts:
        await session.finish(session.turn(prompt, _nobody))
    await session.close()


async def _nobody(tool: Tool, arguments: str) -> Answer:
    raise AssertionError("there are no tools that ask")


# --- a turn of many calls ---


def _calling() -> list[Row]:
    """Typing into the record while one call more after the other comes."""
    home = _home_of_calls(CALLED, MORE)
    lags = home / "lags"
    with _run((*WATCHED, str(lags), *_script(home, "python")), home) as app:
        app.see(READY)
        app.press(F2)
        app.rest(3.0)
        app.press("go\r")
        began = app.see(f"of call {CALLED}", patience=300.0)
        typing = _typed(app, 300.0, END)
        ended = CLOCK()
        app.leave()
    name = f"a turn goes on after {CALLED} calls"
    return [
        Row(f"{name}: typing, p99", "ms", "", [_p99(typing)], goal="≤ 50 ms"),
        Row(f"{name}: the loop is late, p99", "ms", "", [_p99(read(lags, began, ended))]),
    ]


def _called() -> Row:
    home = _home_of_calls(CALLS)
    _say(home, ["first-question"], "python")
    with _run((*AGENT, "-c", *_script(home, "python")), home) as app:
        opened = app.see(END, patience=300.0) - app.began
    return Row(f"a turn of {CALLS:,} calls: opened", "s", "", [opened], goal="≤ 1 s")


def _home_of_calls(number: int, more: int = 0) -> Path:
    """A home with the script of a turn: calls at once, ``more`` of them at RATE, and an answer."""
    home = _home()
    lines = [_call(n, 0.0 if n < number else 1000 / RATE) for n in range(number + more)]
    (home / "script").write_text("\n".join([*lines, _line("", END)]))
    return home


def _call(number: int, delay: float) -> str:
    code = "".join(f"x_{n} = {number} * {n}\n" for n in range(6))
    code += f"for n in range({6 + number % 9}): print('line', n, 'of call {number}')"
    markup = (
        f"<|channel|>analysis<|message|>{prose(60)}<|end|><|start|>assistant<|channel|>commentary"
        " to=mcp.code_interpreter.python <|constrain|>json<|message|>"
        f"{json.dumps({'code': code})}<|call|>"
    )
    return json.dumps({"markup": markup, "delay_ms": delay})


# --- text that streams ---


def _streaming(name: str, text: str) -> list[Row]:
    home = _home()
    lags, file = home / "lags", home / "text.md"
    thought, said = (text, END) if name == REASONING else ("", f"{text}\n{END}")
    (home / "script").write_text(_line(thought, said, delay=1000 / RATE))
    file.write_text(f"{text}\n{END}")
    tokens = len(_vocabulary().encode(text))
    lasts = tokens / RATE
    ours = _streamed((*WATCHED, str(lags), *_script(home)), home, "go\r", lags, lasts)
    naive = _streamed(
        (*NAIVE, "stream", str(file), str(lags), str(tokens)), home, "\r", lags, lasts
    )
    pairs = zip(ours, naive, strict=True)
    what = (
        (f"{name}: typing, p99", "ms", "≤ 50 ms"),
        (f"{name}: the loop is late, p99", "ms", "≤ 50 ms"),
        (f"{name}: until its end, of the time that it takes to say", "", ""),
    )
    return [
        Row(label, unit, "MarkdownStream", [a], [b], goal)
        for (label, unit, goal), (a, b) in zip(what, pairs, strict=True)
    ]


def _streamed(
    command: tuple[str, ...], home: Path, start: str, lags: Path, lasts: float
) -> tuple[float, float, float]:
    """Of typing and of the loop, the 99th percentile in ms; and how much longer it took."""
    with _run(command, home) as app:
        app.see(READY)
        app.rest(3.0)
        began = app.press(start)
        typing = _typed(app, 1.5 * lasts + 5, END)
        ended = CLOCK()
        app.rest(1.0)
        app.leave()
    late = read(lags, began, ended)
    return _p99(typing), _p99(late), (ended - began) / lasts


def _typed(app: Screen, seconds: float, until: str = "") -> list[float]:
    """Type for so long, or until something is painted; seconds until each character was seen."""
    took, began, end = [], CLOCK(), until.encode()
    while CLOCK() - began < seconds and not (until and app.painted.find(end) >= 0):
        character = chr(0x400 + len(took) % 256)
        since = len(app.painted)
        pressed = app.press(character)
        with contextlib.suppress(TimeoutError):
            app.see(character, since, patience=LOST)
        took.append(CLOCK() - pressed)
        app.press("\x7f")
        app.rest(TYPED)
    return took


def _p99(seconds: list[float]) -> float:
    """In milliseconds."""
    return 1000 * statistics.quantiles(seconds, n=100, method="inclusive")[98]


def _line(thought: str, said: str, delay: float = 0.0) -> str:
    """A generation, as the scripted engine reads it."""
    thinking = (
        f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant" if thought else ""
    )
    markup = f"{thinking}<|channel|>final<|message|>{said}<|return|>"
    return json.dumps({"markup": markup, "delay_ms": delay})


@functools.cache
def _vocabulary() -> HarmonyEncoding:
    return encoding.encoding(lambda: encoding.ranks_from_gguf(model()))


def _script(home: Path, tools: str = "none") -> tuple[str, ...]:
    return ("--engine", f"script:{home / 'script'}", "--context", "1000000", "--tools", tools)


def _home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="agent-bench-"))
    (home / "cache").symlink_to(model().parent)
    return home


@contextlib.contextmanager
def _run(command: tuple[str, ...], home: Path | None = None) -> Iterator[Screen]:
    home = home or _once()
    env = {**os.environ, "AGENT_HOME": str(home), "TERM": "xterm-256color"}
    with screen(command, env, home) as app:
        yield app


_once = functools.cache(_home)
