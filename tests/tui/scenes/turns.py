"""Scenes of a turn, from its prompt to its end, and of turns over HTTP."""

from agent import events as ev
from agent.conversation.conversation import Conversation
from tests.support.fake_app import (
    AppDriver,
    FakeTurn,
    emit_call,
    emit_message,
    emit_reasoning,
    screen_text,
)
from tests.tui.scenes import Scene
from tui.widgets.assistant_message import AssistantMessage

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


async def reading(driver: AppDriver) -> None:
    lines = "\n".join(f"{n:03} GET /page/{n % 7} 200" for n in range(1, 41))
    turn = await driver.ask(f"What is odd in this log?\n{lines}")
    turn.emit(ev.AgentPrefill(done=6144, total=16384, cached=512))
    await driver.expect_text("reading 6,144/16,384 tokens")


async def thinking(driver: AppDriver) -> None:
    turn = await driver.ask("What is 123*456?")
    emit_reasoning(
        turn, "I can do it in my head: 123*400 = 49200, 123*56 = 6888. Better ask the tool."
    )
    await driver.expect_text("Better ask")


async def calling(driver: AppDriver) -> None:
    turn = await driver.ask("What is 123*456?")
    reasoning = emit_reasoning(turn, "Better ask the tool.")
    await driver.expect_text("Better ask")
    driver.clock.now += 1.2
    reasoning.close(True)
    emit_call(turn, "code_interpreter", "python", CODE[:24])
    await driver.type_text("And then?", "enter")
    await driver.type_text("a draft")
    await driver.expect_text("b = 4")


async def second_turn(driver: AppDriver) -> None:
    """All four panes of a running turn, below the turn before; two of them have more than fits."""
    await answered(driver)
    turn = await driver.ask("And the other products up to 30 × 456?")
    numbers = range(1, 31)
    emit_reasoning(turn, "\n".join(f"{n} × 456 is {n * 456}, I think." for n in numbers)).close(
        True
    )
    code = '{"code":"for n in range(1, 31):\\n    print(n, n * 456)"}'
    call = emit_call(turn, "code_interpreter", "python", code)
    call.arguments_done(code)
    call.completed("\n".join(f"{n} {n * 456}" for n in numbers))
    emit_message(turn, "All thirty are as I thought; the **last** is")
    await driver.expect_text("Results", "13680", "All thirty are as I thought; the last is")


async def queued(driver: AppDriver) -> None:
    """Messages sent during a turn: read already, still to be read, and queued for after it."""
    turn = await driver.ask("Tell me of the rivers of France.")
    emit_message(turn, "The Loire is the longest, 1,006 km.", "commentary").close(True)
    turn.emit(ev.AgentSteered(text="only those that reach the Atlantic"))
    emit_message(turn, "Then the Loire and the Garonne:")
    for text in ("and of Spain", "as a table", "with their lengths"):
        await driver.type_text(text, "enter")
    await driver.type_text("in miles", "ctrl+s")
    await driver.expect_text("to this turn: in miles")


async def answered(driver: AppDriver) -> None:
    turn = await driver.ask("What is 123*456?")
    reasoning = emit_reasoning(turn, "Better ask the tool.")
    await driver.expect_text("Better ask")
    driver.clock.now += 1.2
    reasoning.close(True)
    call = emit_call(turn, "code_interpreter", "python", CODE)
    call.arguments_done(CODE)
    await driver.expect_text("running")
    driver.clock.now += 0.3
    call.completed("56088")
    await driver.wait_for(lambda: "56088" in screen_text(driver.app))
    emit_message(turn, ANSWER).close(True)
    await end_turn(driver, turn)


async def end_turn(driver: AppDriver, turn: FakeTurn) -> None:
    """End the turn and wait until all of it is rendered."""
    turn.end()
    await driver.wait_for(lambda: driver.app.turn is None)
    await driver.wait_for(
        lambda: all(message.is_rendered for message in driver.app.query(AssistantMessage))
    )


async def conversation(driver: AppDriver) -> None:
    await answered(driver)
    await driver.expect_text("thought for 1.2 s")


async def wide(driver: AppDriver) -> None:
    """Characters that take two columns, or none."""
    turn = await driver.ask("東京はどこ？ 🗾 And where is Zürich?")
    emit_reasoning(turn, "東京は日本の首都だ。 " * 9 + "👩‍👩‍👧 ok").close(True)
    call = emit_call(turn, "地図", "探す", '{"場所":"東京"}')
    call.arguments_done('{"場所":"東京"}')
    call.completed("北緯35度、東経139度 🗼")
    emit_message(turn, WIDE).close(True)
    await end_turn(driver, turn)


async def wide_conversation(driver: AppDriver) -> None:
    await wide(driver)
    await driver.pilot.press("ctrl+o")
    await driver.expect_text("▾ Thought")


async def folded(driver: AppDriver) -> None:
    await driver.pilot.press("f2")
    turn = await driver.ask("Which cities are in the list?")
    call = emit_call(turn, "files", "read", '{"path":"cities.txt"}')
    call.arguments_done('{"path":"cities.txt"}')
    call.completed("\n".join(f"{n:2} a city on the {n}th page of the list" for n in range(4, 34)))
    emit_message(turn, "Thirty of them.").close(True)
    await end_turn(driver, turn)
    await driver.expect_text("… 18 more lines (Ctrl-O opens)")


async def opened(driver: AppDriver) -> None:
    await folded(driver)
    await driver.pilot.press("ctrl+o")
    await driver.expect_text("33 a city")


async def broken(driver: AppDriver) -> None:
    """A failed call with the end of its tool's output."""
    await driver.pilot.press("f2")
    turn = await driver.ask("Fetch the cities.")
    call = emit_call(turn, "shell", "exec", "")
    call.arguments_done('{"command":["python","fetch.py","cities.csv"]}')
    await driver.expect_text("running")
    driver.clock.now += 4.2
    call.failed(ev.McpToolExecutionError(content=[{"type": "text", "text": TRACEBACK}]))
    emit_message(turn, "There is no file `cities.csv`. Where is it?").close(True)
    await end_turn(driver, turn)


async def failed(driver: AppDriver) -> None:
    turn = await driver.ask("Read the list.")
    call = emit_call(turn, "files", "read", '{"path":"list.txt"}')
    call.arguments_done('{"path":"list.txt"}')
    call.completed("apples\npears")
    turn.end("failed", "The engine ran out of memory: ask for a shorter context.")
    await driver.wait_for(lambda: driver.app.turn is None)


async def stopped(driver: AppDriver) -> None:
    turn = await driver.ask("Tell me a long story.")
    emit_reasoning(turn, "A story, then, with a frog and a pond.").close(True)
    emit_message(turn, "Once upon a time there was a **frog** that").close(False)
    await driver.expect_text("Once upon")
    await driver.pilot.press("escape")
    await driver.expect_text("Interrupted; the partial answer is kept.")
    await driver.wait_for(lambda: driver.app.turn is None)


async def compacted(driver: AppDriver) -> None:
    await driver.pilot.press("f2")
    turn = await driver.ask("And what did we say of the frog?")
    notice = (
        "The conversation was compacted: 12 turns summarised in 310 tokens."
        " The prompt has 3,120 tokens now, 29,480 before."
    )
    turn.emit(ev.AgentNotice(level="info", message="Summarising 12 turns …"))
    turn.emit(ev.AgentNotice(level="info", message=notice))
    emit_message(turn, "That it leaps into the old pond.").close(True)
    await end_turn(driver, turn)


async def picked(driver: AppDriver) -> None:
    """The latest message is picked; it is one of three branches."""
    await answered(driver)
    branches: dict[int, tuple[int, list[str]]] = {1: (2, ["conv_a", "conv_b", "conv_c"])}

    async def branches_at(conversation: Conversation, start: int) -> tuple[int, list[str]]:
        return branches.get(start, (0, []))

    driver.session.storage.branches_at = branches_at  # type: ignore[method-assign]
    turn = await driver.ask("And 124*456?")
    emit_message(turn, "It is **56544**.").close(True)
    await end_turn(driver, turn)
    await driver.pilot.press("ctrl+up")
    await driver.expect_text("message 2 of 2")


async def served(driver: AppDriver) -> None:
    """Four conversations of other programs; the first one's tab is visible."""
    prompts = "What is the capital of France?", "Summarise this page", "いろは", "Write a storm"
    first, second, third, _ = turns = [FakeTurn(prompt, "http").start() for prompt in prompts]
    for turn in turns:
        driver.session.runtime.hub.publish(turn)
    second.end()
    third.end("failed", "The engine ran out of memory.")
    await driver.expect_text("3 ✗")
    await driver.pilot.press("f3")
    emit_reasoning(first, "Paris, of course.")
    await driver.expect_text("Paris, of course.")


SCENES: list[Scene] = [
    reading, thinking, calling, second_turn, queued, answered, conversation, wide, wide_conversation,
    folded, opened, broken, failed, stopped, compacted, picked, served,
]  # fmt: skip
