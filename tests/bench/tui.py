"""Group ``tui``: the app in a real terminal: first paint, lag while text streams, CPU while idle.

A typed character is timed from the key to the bytes that paint it.
"""

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

from agent.config.launch import LaunchOptions
from agent.formats.harmony import encoding
from tests.bench import BenchmarkRow, compare
from tests.bench.loop_lag import lags_between
from tests.bench.models import embedded_model
from tests.bench.pty_program import CLOCK, PtyProgram, start_program
from tests.bench.textual_peers import TOKENS_PER_SECOND
from tools.types import Answer, Tool
from tui.session import Session

PYTHON = (sys.executable, "-P", "-m")
AGENT = (*PYTHON, "agent")
AGENT_WITH_LAGS = (*PYTHON, "tests.bench.loop_lag")
TEXTUAL_PEER = (*PYTHON, "tests.bench.textual_peers")
PLACEHOLDER_PART = "sk something"
"""Part of the prompt's placeholder, painted in one piece: its first letter is below the cursor."""
KEY_INTERVAL_SECONDS = 0.15
"""Seconds between two typed characters."""
BARE_PEER = "Textual, one TextArea"
BARE_COMMAND = (*TEXTUAL_PEER, "bare")
REASONING = "reasoning, 60 s"
END_MARK = "the-very-end"
MAX_ECHO_SECONDS = 5.0
"""Seconds after which waiting for a typed character ends."""
EXCHANGES = 100
"""Exchanges of the long conversation, of 2,000 tokens each."""
PAST_CALLS, STREAMED_CALLS, STORED_CALLS = 300, 75, 1000
"""Calls that a running turn makes at once, and then at TOKENS_PER_SECOND; calls of a stored turn."""
VIEW_TURNS, VIEW_SECONDS = 100, 12.0
"""Turns of the conversation over which a view is opened, and how long keys are pressed in it."""
F2_KEY, F8_KEY = "\x1bOQ", "\x1b[19~"
RIGHT_KEY, LEFT_KEY, TO_TOP_KEY = "\x1b[C", "\x1b[D", "\x1b[1;5H"
WORDS = tuple(
    re.findall(
        r"\w+",
        """the storm came over the sea and the keeper of the light wrote down
what he saw of the ships that night""",
    )
)


def rows() -> list[BenchmarkRow]:
    """Starting, idling, a long conversation, a turn of many calls, views, kinds of streamed text."""
    return [
        compare(
            "first paint",
            "s",
            lambda: _first_paint_seconds(AGENT),
            BARE_PEER,
            lambda: _first_paint_seconds(BARE_COMMAND),
            9,
            "≤ 1.2",
        ),
        *_idle_rows(),
        *_long_conversation_rows(),
        *_running_calls_rows(),
        _stored_calls_row(),
        *_view_rows(),
        *_token_rows(),
        *(row for name, text in streamed_texts().items() for row in _streaming_rows(name, text)),
    ]


def streamed_texts() -> dict[str, str]:
    """The texts that stream, by the names of their rows."""
    items = (f"- item {n} with **bold** words, `code`, and more to come\n" for n in range(200))
    cells = (f"| {n} | value {n * 7} | some words on it |\n" for n in range(800))
    lines = (f"    total_{n} = add({n}, 'text', total)  # and on\n" for n in range(800))
    return {
        REASONING: prose(60 * TOKENS_PER_SECOND),
        "prose, 30 s": prose(30 * TOKENS_PER_SECOND),
        "a list of 200 items": "".join(items),
        "a table of 800 rows": "| n | name | what |\n|---|---|---|\n" + "".join(cells),
        "800 lines of Python": f"```python\n{''.join(lines)}```\n",
    }


def prose(tokens: int) -> str:
    """Paragraphs of 60 words of one token each."""
    paragraphs = ([WORDS[(n * 7 + k) % len(WORDS)] for k in range(60)] for n in range(tokens // 60))
    return "".join(" ".join(words) + "\n\n" for words in paragraphs)


# --- starting, idling, quitting ---


def _first_paint_seconds(command: tuple[str, ...]) -> float:
    with _start(command) as app:
        return app.wait_for(PLACEHOLDER_PART) - app.began


def _idle_rows() -> list[BenchmarkRow]:
    """Each program is typed into while the model loads, then idles, then quits."""
    pairs = zip(_typing_cpu_and_quit(AGENT), _typing_cpu_and_quit(BARE_COMMAND), strict=True)
    labels = (
        ("typing while the model loads, p99", "ms", "≤ 50 ms"),
        ("CPU while nothing happens", "%", "≤ 1 %"),
        ("leaving", "s", ""),
    )
    return [
        BenchmarkRow(name, unit, BARE_PEER, [ours], [theirs], goal)
        for (name, unit, goal), (ours, theirs) in zip(labels, pairs, strict=True)
    ]


def _typing_cpu_and_quit(command: tuple[str, ...]) -> tuple[float, float, float]:
    """The 99th percentile of typing in ms, the idle CPU in percent, the seconds of quitting."""
    with _start(command) as app:
        app.wait_for(PLACEHOLDER_PART)
        typing = _p99_ms(_echo_seconds(app, 5.0))
        app.read_for(5.0)
        before, began = app.cpu_seconds(), CLOCK()
        app.read_for(20.0)
        return typing, 100 * (app.cpu_seconds() - before) / (CLOCK() - began), app.quit()


# --- a long conversation ---


def _long_conversation_rows() -> list[BenchmarkRow]:
    name = f"{EXCHANGES * 2000:,} tokens"
    home = _home_with_conversation()
    with _start((*AGENT, "-c", *_script_options(home)), home) as app:
        opened = app.wait_for(END_MARK, seconds=300.0) - app.began
        app.read_for(2.0)
        pages = [_page_up_seconds(app) for _ in range(50)]
        to_top = -app.press("\x1b[1;5H") + app.wait_for("first-question")
    with _start((*TEXTUAL_PEER, "open", str(home / "text.md")), home) as app:
        naive = app.wait_for(END_MARK, seconds=300.0) - app.began
    return [
        BenchmarkRow(f"{name}: opened", "s", "one Markdown widget", [opened], [naive], "≤ 1 s"),
        BenchmarkRow(f"{name}: a page up, p99", "ms", "", [_p99_ms(pages)]),
        BenchmarkRow(f"{name}: to the first question", "ms", "", [to_top * 1000]),
    ]


def _page_up_seconds(app: PtyProgram) -> float:
    """Press PageUp; seconds until something is painted."""
    pressed = app.press("\x1b[5~")
    app.read(5.0)
    moved = CLOCK() - pressed
    app.read_for(0.1)
    return moved


def _home_with_conversation() -> Path:
    """Make a home with a long stored conversation, and its text as ``text.md``."""
    home = _new_home()
    lines, text = [], ""
    for number in range(EXCHANGES):
        points = "".join(f"- item **{n}** of `{number}`, and some words\n" for n in range(25))
        code = "".join(f"value_{n} = compute({n}, {number})\n" for n in range(20))
        answer = f"# Answer {number}\n\n{prose(600)}\n{points}\n```python\n{code}```\n"
        if number == EXCHANGES - 1:
            answer += f"\n{END_MARK}"
        lines.append(_reply(prose(1000), answer))
        text += f"{prose(1000)}{answer}\n\n"
    (home / "script").write_text("\n".join(lines))
    (home / "text.md").write_text(text)
    _store_turns(
        home, [f"question {number}" if number else "first-question" for number in range(EXCHANGES)]
    )
    return home


def _store_turns(home: Path, prompts: list[str], tools: str = "none") -> None:
    """Run turns on the home's script and store them there."""
    before = os.environ.get("AGENT_HOME")
    os.environ["AGENT_HOME"] = str(home)
    try:
        asyncio.run(_run_turns(f"script:{home / 'script'}", prompts, tools))
    finally:
        os.environ.pop("AGENT_HOME") if before is None else os.environ.update(AGENT_HOME=before)


async def _run_turns(engine: str, prompts: list[str], tools: str) -> None:
    session = Session(LaunchOptions(engine=engine, context=1_000_000, tools=tools, compact=False))
    await session.begin()
    await session.load(lambda fraction: None)
    for prompt in prompts:
        await session.start_turn(prompt, _refuse_approval).done()
    await session.close()


async def _refuse_approval(tool: Tool, arguments: str) -> Answer:
    raise AssertionError("there are no tools that ask")


# --- a turn of many calls ---


def _running_calls_rows() -> list[BenchmarkRow]:
    """Typing into a running turn while call after call comes."""
    home = _home_with_calls(PAST_CALLS, STREAMED_CALLS)
    lags = home / "lags"
    with _start((*AGENT_WITH_LAGS, str(lags), *_script_options(home, "python")), home) as app:
        app.wait_for(PLACEHOLDER_PART)
        app.press(F2_KEY)
        app.read_for(3.0)
        app.press("go\r")
        began = app.wait_for(f"of call {PAST_CALLS}", seconds=300.0)
        typing = _echo_seconds(app, 300.0, END_MARK)
        ended = CLOCK()
        app.quit()
    name = f"a turn goes on after {PAST_CALLS} calls"
    return [
        BenchmarkRow(f"{name}: typing, p99", "ms", "", [_p99_ms(typing)], goal="≤ 50 ms"),
        BenchmarkRow(
            f"{name}: the loop is late, p99", "ms", "", [_p99_ms(lags_between(lags, began, ended))]
        ),
    ]


def _stored_calls_row() -> BenchmarkRow:
    home = _home_with_calls(STORED_CALLS)
    _store_turns(home, ["first-question"], "python")
    with _start((*AGENT, "-c", *_script_options(home, "python")), home) as app:
        opened = app.wait_for(END_MARK, seconds=300.0) - app.began
    return BenchmarkRow(
        f"a turn of {STORED_CALLS:,} calls: opened", "s", "", [opened], goal="≤ 1 s"
    )


def _home_with_calls(number: int, streamed: int = 0) -> Path:
    """Make a home with the script of a turn: calls, ``streamed`` slower calls, and an answer."""
    home = _new_home()
    lines = [
        _call_reply(n, 0.0 if n < number else 1000 / TOKENS_PER_SECOND)
        for n in range(number + streamed)
    ]
    (home / "script").write_text("\n".join([*lines, _reply("", END_MARK)]))
    return home


def _call_reply(number: int, delay: float) -> str:
    code = "".join(f"x_{n} = {number} * {n}\n" for n in range(6))
    code += f"for n in range({6 + number % 9}): print('line', n, 'of call {number}')"
    markup = (
        f"<|channel|>analysis<|message|>{prose(60)}<|end|><|start|>assistant<|channel|>commentary"
        " to=mcp.code_interpreter.python <|constrain|>json<|message|>"
        f"{json.dumps({'code': code})}<|call|>"
    )
    return json.dumps({"markup": markup, "delay_ms": delay})


# --- views that are open while text streams ---


def _view_rows() -> list[BenchmarkRow]:
    """Keys with each view open while a turn streams beside it."""
    return [
        *_measure_view(f"/times of a turn before, {VIEW_TURNS} turns", f"/times {VIEW_TURNS}\r",
                       "tokens per second"),
        *_measure_view(f"/context of {VIEW_TURNS} turns", "/context \r", "same key undoes", "\x1b[B"),
        *_measure_view(f"/compare after {VIEW_TURNS} turns", "/compare effort=low\r", "take left",
                       "\x1b[B"),
    ]  # fmt: skip


def _measure_view(name: str, command: str, mark: str, key: str = "") -> list[BenchmarkRow]:
    """``mark``: what the view paints. ``key``: what is pressed in it; empty: characters are typed,
    and timed until they are painted."""
    home = _new_home()
    lags, script = home / "lags", home / "script"
    turns = [_reply(prose(60), prose(120)) for _ in range(VIEW_TURNS)]
    script.write_text("\n".join(turns))
    _store_turns(home, [f"question {number}" for number in range(VIEW_TURNS)])
    streamed = _reply("", prose(40 * TOKENS_PER_SECOND), 1000 / TOKENS_PER_SECOND)
    script.write_text(f"{streamed}\n{streamed}")
    with _start((*AGENT_WITH_LAGS, str(lags), "-c", *_script_options(home)), home) as app:
        app.wait_for(PLACEHOLDER_PART)
        app.read_for(3.0)
        if command.startswith("/context"):  # it has no prompt
            app.press("go\r")
            app.read_for(1.0)
        since = len(app.painted)
        app.press(command)
        app.wait_for(mark, since)
        if not key:
            app.press("go\r")
            app.read_for(1.0)
        began, typing = CLOCK(), []
        if key:
            while CLOCK() - began < VIEW_SECONDS:
                app.press(key)
                app.read_for(KEY_INTERVAL_SECONDS)
        else:
            typing = _echo_seconds(app, VIEW_SECONDS)
        ended = CLOCK()
        app.quit()
    late = lags_between(lags, began, ended)
    measured = (
        {"typing": typing, "the loop is late": late} if typing else {"the loop is late": late}
    )
    return [
        BenchmarkRow(f"{name}: {what}, p99", "ms", "", [_p99_ms(seconds)], goal="≤ 50 ms")
        for what, seconds in measured.items()
    ]


# --- the tokens of text that streams ---


def _token_rows() -> list[BenchmarkRow]:
    """Typing, and going through the tokens, while text streams into the token view."""
    home = _new_home()
    text = prose(60 * TOKENS_PER_SECOND)
    (home / "script").write_text(_reply("", f"{text}\n{END_MARK}", delay=1000 / TOKENS_PER_SECOND))
    with _start((*AGENT, *_script_options(home)), home) as app:
        app.wait_for(PLACEHOLDER_PART)
        app.read_for(3.0)
        app.press("go\r")
        app.press(F8_KEY)
        app.wait_for("Raw")
        app.press("\t")
        app.wait_for("generated")
        typing = _echo_seconds(app, 25.0, END_MARK)
        app.press("\t")
        app.read_for(1.0)
        since = len(app.painted)
        app.press(TO_TOP_KEY)
        app.wait_for('"<|start|>"', since)
        steps = [_step_seconds(app, number % 2 == 0) for number in range(150)]
        app.quit()
    name = "the token view is open, tokens stream"
    return [
        BenchmarkRow(f"{name}: typing, p99", "ms", "", [_p99_ms(typing)], goal="≤ 50 ms"),
        BenchmarkRow(f"{name}: to the next token, p99", "ms", "", [_p99_ms(steps)], goal="≤ 50 ms"),
    ]


def _step_seconds(app: PtyProgram, forward: bool) -> float:
    """Go from the first token to the second or back; seconds until the panel has that one."""
    since = len(app.painted)
    pressed = app.press(RIGHT_KEY if forward else LEFT_KEY)
    text = '"system"' if forward else '"<|start|>"'
    painted = app.wait_for(text, since, seconds=MAX_ECHO_SECONDS)
    app.read_for(KEY_INTERVAL_SECONDS)
    return painted - pressed


# --- text that streams ---


def _streaming_rows(name: str, text: str) -> list[BenchmarkRow]:
    home = _new_home()
    lags, file = home / "lags", home / "text.md"
    reasoning, answer = (text, END_MARK) if name == REASONING else ("", f"{text}\n{END_MARK}")
    (home / "script").write_text(_reply(reasoning, answer, delay=1000 / TOKENS_PER_SECOND))
    file.write_text(f"{text}\n{END_MARK}")
    tokens = len(_encoding().encode(text))
    stream_seconds = tokens / TOKENS_PER_SECOND
    ours = _measure_streaming(
        (*AGENT_WITH_LAGS, str(lags), *_script_options(home)), home, "go\r", lags, stream_seconds
    )
    naive = _measure_streaming(
        (*TEXTUAL_PEER, "stream", str(file), str(lags), str(tokens)),
        home,
        "\r",
        lags,
        stream_seconds,
    )
    pairs = zip(ours, naive, strict=True)
    labels = (
        (f"{name}: typing, p99", "ms", "≤ 50 ms"),
        (f"{name}: the loop is late, p99", "ms", "≤ 50 ms"),
        (f"{name}: until its end, of the time that it takes to say", "", ""),
    )
    return [
        BenchmarkRow(label, unit, "MarkdownStream", [a], [b], goal)
        for (label, unit, goal), (a, b) in zip(labels, pairs, strict=True)
    ]


def _measure_streaming(
    command: tuple[str, ...], home: Path, start: str, lags: Path, stream_seconds: float
) -> tuple[float, float, float]:
    """99th percentiles of typing and of the loop's lag in ms; the time over ``stream_seconds``."""
    with _start(command, home) as app:
        app.wait_for(PLACEHOLDER_PART)
        app.read_for(3.0)
        began = app.press(start)
        typing = _echo_seconds(app, 1.5 * stream_seconds + 5, END_MARK)
        ended = CLOCK()
        app.read_for(1.0)
        app.quit()
    late = lags_between(lags, began, ended)
    return _p99_ms(typing), _p99_ms(late), (ended - began) / stream_seconds


def _echo_seconds(app: PtyProgram, seconds: float, until: str = "") -> list[float]:
    """Type for ``seconds`` or until a text is painted; seconds until each character is painted."""
    delays: list[float] = []
    began, end = CLOCK(), until.encode()
    while CLOCK() - began < seconds and not (until and app.painted.find(end) >= 0):
        character = chr(0x400 + len(delays) % 256)
        since = len(app.painted)
        pressed = app.press(character)
        with contextlib.suppress(TimeoutError):
            app.wait_for(character, since, seconds=MAX_ECHO_SECONDS)
        delays.append(CLOCK() - pressed)
        app.press("\x7f")
        app.read_for(KEY_INTERVAL_SECONDS)
    return delays


def _p99_ms(seconds: list[float]) -> float:
    """The 99th percentile of seconds, in milliseconds."""
    return 1000 * statistics.quantiles(seconds, n=100, method="inclusive")[98]


def _reply(reasoning: str, answer: str, delay: float = 0.0) -> str:
    """A line of a script: a generation whose tokens are ``delay`` ms apart."""
    prefix = (
        f"<|channel|>analysis<|message|>{reasoning}<|end|><|start|>assistant" if reasoning else ""
    )
    markup = f"{prefix}<|channel|>final<|message|>{answer}<|return|>"
    return json.dumps({"markup": markup, "delay_ms": delay})


@functools.cache
def _encoding() -> HarmonyEncoding:
    return encoding.load_encoding(lambda: encoding.ranks_from_gguf(embedded_model()))


def _script_options(home: Path, tools: str = "none") -> tuple[str, ...]:
    return ("--engine", f"script:{home / 'script'}", "--context", "1000000", "--tools", tools)


def _new_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="agent-bench-"))
    (home / "cache").symlink_to(embedded_model().parent)
    return home


@contextlib.contextmanager
def _start(command: tuple[str, ...], home: Path | None = None) -> Iterator[PtyProgram]:
    home = home or _shared_home()
    env = {**os.environ, "AGENT_HOME": str(home), "TERM": "xterm-256color"}
    with start_program(command, env, home) as app:
        yield app


_shared_home = functools.cache(_new_home)
