"""A turn from its prompt to its end."""

from __future__ import annotations

from agent import events as ev
from tests.support.fake_app import Person, PlayedTurn, calls, says, screen_text, thinks
from tests.tui.scenes import Scene
from tui.widgets.assistant_message import Message

CODE = '{"code":"a = 123\\nb = 456\\nprint(a * b)"}'
ANSWER = """# The product

123 × 456 is **56088**; the tool says so too.

- 123 × 400 = 49200
- 123 × 56 = 6888

| step | value |
|---|---|
| 123 × 400 | 49200 |
| sum | 56088 |

```python
print(123 * 456)
```
"""
WIDE = """東京は日本の**首都**です。人口はおよそ千四百万人。🗼

| 都市 | 国 | 人口 |
|---|---|---|
| 東京 | 日本 🇯🇵 | 1400万 |
| Zürich | Schweiz 🇨🇭 | 45万 |
| 👩‍👩‍👧 家族 | e\u0301 | ½ |
"""
TRACEBACK = """Traceback (most recent call last):
  File "fetch.py", line 40, in <module>
    main()
  File "fetch.py", line 33, in main
    rows = list(read(sys.argv[1]))
  File "fetch.py", line 21, in read
    for line in lines(path):
  File "fetch.py", line 12, in lines
    with open(path, encoding="utf-8") as file:
FileNotFoundError: [Errno 2] No such file or directory: 'cities.csv'

stderr:
fetch 1.4 starts
reads cities.csv
gives up after 3 tries"""


async def reading(someone: Person) -> None:
    lines = "\n".join(f"{n:03} GET /page/{n % 7} 200" for n in range(1, 41))
    turn = await someone.ask(f"What is odd in this log?\n{lines}")
    turn.emit(ev.AgentPrefill(done=6144, total=16384, cached=512))
    await someone.sees("reading 6,144/16,384 tokens")


async def thinking(someone: Person) -> None:
    turn = await someone.ask("What is 123*456?")
    thinks(turn, "I can do it in my head: 123*400 = 49200, 123*56 = 6888. Better ask the tool.")
    await someone.sees("Better ask")


async def calling(someone: Person) -> None:
    turn = await someone.ask("What is 123*456?")
    reasoning = thinks(turn, "Better ask the tool.")
    await someone.sees("Better ask")
    someone.clock.now += 1.2
    reasoning.close(True)
    calls(turn, "code_interpreter", "python", CODE[:24])
    await someone.writes("And then?", "enter")
    await someone.writes("a draft")
    await someone.sees("b = 4")


async def queued(someone: Person) -> None:
    """What was said to the turn that runs: read already, about to be, and for after it."""
    turn = await someone.ask("Tell me of the rivers of France.")
    says(turn, "The Loire is the longest, 1,006 km.", "commentary").close(True)
    turn.emit(ev.AgentSteered(text="only those that reach the Atlantic"))
    says(turn, "Then the Loire and the Garonne:")
    for text in ("and of Spain", "as a table", "with their lengths"):
        await someone.writes(text, "enter")
    await someone.writes("in miles", "ctrl+s")
    await someone.sees("now: in miles")


async def answered(someone: Person) -> None:
    turn = await someone.ask("What is 123*456?")
    reasoning = thinks(turn, "Better ask the tool.")
    await someone.sees("Better ask")
    someone.clock.now += 1.2
    reasoning.close(True)
    call = calls(turn, "code_interpreter", "python", CODE)
    call.arguments_done(CODE)
    await someone.sees("running")
    someone.clock.now += 0.3
    call.completed("56088")
    await someone.see(lambda: "56088" in screen_text(someone.app))
    says(turn, ANSWER).close(True)
    await ends(someone, turn)


async def ends(someone: Person, turn: PlayedTurn) -> None:
    turn.end()
    await someone.see(lambda: someone.app.turn is None)
    await someone.see(lambda: all(message.settled for message in someone.app.query(Message)))


async def conversation(someone: Person) -> None:
    await answered(someone)
    await someone.pilot.press("f2")
    await someone.sees("thought for 1.2 s")


async def wide(someone: Person) -> None:
    """Letters that take two cells, or none."""
    turn = await someone.ask("東京はどこ？ 🗾 And where is Zürich?")
    thinks(turn, "東京は日本の首都だ。 " * 9 + "👩‍👩‍👧 ok").close(True)
    call = calls(turn, "地図", "探す", '{"場所":"東京"}')
    call.arguments_done('{"場所":"東京"}')
    call.completed("北緯35度、東経139度 🗼")
    says(turn, WIDE).close(True)
    await ends(someone, turn)


async def wide_conversation(someone: Person) -> None:
    await wide(someone)
    await someone.pilot.press("f2", "ctrl+o")
    await someone.sees("▾ Thought")


async def folded(someone: Person) -> None:
    await someone.pilot.press("f2")
    turn = await someone.ask("Which cities are in the list?")
    call = calls(turn, "files", "read", '{"path":"cities.txt"}')
    call.arguments_done('{"path":"cities.txt"}')
    call.completed("\n".join(f"{n:2} a city on the {n}th page of the list" for n in range(4, 34)))
    says(turn, "Thirty of them.").close(True)
    await ends(someone, turn)
    await someone.sees("… 18 more lines (Ctrl-O opens)")


async def opened(someone: Person) -> None:
    await folded(someone)
    await someone.pilot.press("ctrl+o")
    await someone.sees("33 a city")


async def broken(someone: Person) -> None:
    """A call that failed, with what its tool wrote last."""
    await someone.pilot.press("f2")
    turn = await someone.ask("Fetch the cities.")
    call = calls(turn, "shell", "exec", "")
    call.arguments_done('{"command":["python","fetch.py","cities.csv"]}')
    await someone.sees("running")
    someone.clock.now += 4.2
    call.failed(ev.McpToolExecutionError(content=[{"type": "text", "text": TRACEBACK}]))
    says(turn, "There is no file `cities.csv`. Where is it?").close(True)
    await ends(someone, turn)


async def failed(someone: Person) -> None:
    turn = await someone.ask("Read the list.")
    call = calls(turn, "files", "read", '{"path":"list.txt"}')
    call.arguments_done('{"path":"list.txt"}')
    call.completed("apples\npears")
    turn.end("failed", "The engine ran out of memory: ask for a shorter context.")
    await someone.see(lambda: someone.app.turn is None)


async def stopped(someone: Person) -> None:
    turn = await someone.ask("Tell me a long story.")
    thinks(turn, "A story, then, with a frog and a pond.").close(True)
    says(turn, "Once upon a time there was a **frog** that").close(False)
    await someone.sees("Once upon")
    await someone.pilot.press("escape")
    await someone.sees("Stopped; what was said until then is kept.")
    await someone.see(lambda: someone.app.turn is None)


async def compacted(someone: Person) -> None:
    await someone.pilot.press("f2")
    turn = await someone.ask("And what did we say of the frog?")
    told = (
        "The conversation was compacted: 12 turns summarised in 310 tokens."
        " The prompt has 3,120 tokens now, 29,480 before."
    )
    turn.emit(ev.AgentNotice(level="info", message="Summarising 12 turns …"))
    turn.emit(ev.AgentNotice(level="info", message=told))
    says(turn, "That it leaps into the old pond.").close(True)
    await ends(someone, turn)


async def picked(someone: Person) -> None:
    """The latest message, which is one of three branches."""
    await answered(someone)
    places: dict[int, tuple[int, list[str]]] = {1: (2, ["conv_a", "conv_b", "conv_c"])}
    someone.session.alternatives = lambda start: places.get(start, (0, []))  # type: ignore[method-assign]
    turn = await someone.ask("And 124*456?")
    says(turn, "It is **56544**.").close(True)
    await ends(someone, turn)
    await someone.pilot.press("f2", "ctrl+up")
    await someone.sees("message 2 of 2")


async def served(someone: Person) -> None:
    """Four conversations of other programs; the first is looked at."""
    asked = "What is the capital of France?", "Summarise this page", "いろは", "Write a storm"
    first, second, third, _ = turns = [PlayedTurn(prompt, "http").start() for prompt in asked]
    for turn in turns:
        someone.session.runtime.hub.announce(turn)  # type: ignore[arg-type]
    second.end()
    third.end("failed", "The engine ran out of memory.")
    await someone.sees("3 ✗")
    await someone.pilot.press("f3")
    thinks(first, "Paris, of course.")
    await someone.sees("Paris, of course.")


SCENES: list[Scene] = [
    reading, thinking, calling, queued, answered, conversation, wide, wide_conversation, folded,
    opened, broken, failed, stopped, compacted, picked, served,
]  # fmt: skip
