"""What other programs ask, on a tab for each conversation: over real HTTP, and played by hand where the
moment matters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from agent import bootstrap
from agent.cli.shared import Shared
from agent.conversation.conversation import Conversation
from agent.server.serve import address, listen, serve_in
from tests.support.endpoint import plain_http
from tests.support.fake_app import Person, PlayedTurn, person, says, screen_text, thinks
from tui.app import AgentApp
from tui.controllers import served_tabs as watching
from tui.session import Serving, Session
from tui.widgets.search import Search
from tui.widgets.tabs import LONGEST, Tab, Tabs, fitting
from tui.widgets.transcript import Transcript

SERVE = (
    "<|channel|>analysis<|message|>{0} is thought.<|end|><|start|>assistant"
    "<|channel|>final<|message|>{0} is said.<|return|>"
)


class Served(Person):
    """The person, while programs ask the app over HTTP."""

    url: str

    async def post(self, path: str = "responses", **body: Any) -> dict[str, Any]:
        async with plain_http() as http:
            answer = await http.post(f"{self.url}/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


Serve = Callable[..., Any]


@pytest.fixture
def served(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_logging: None,
    script: Callable[..., str],
) -> Serve:
    """``async with served("markup of a reply", …) as someone``"""
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))

    @asynccontextmanager
    async def start(*replies: str | dict[str, Any]) -> AsyncIterator[Served]:
        shared = Shared(engine=script(*replies), tools="none", root=tmp_path)
        listener = listen("127.0.0.1", 0, None)
        serving = Serving(
            address(listener),
            lambda runtime: serve_in(runtime, bootstrap.options(shared, runtime.model), listener),
        )
        app = AgentApp(Session(shared, serving=serving))
        async with app.run_test(size=(100, 30), notifications=True) as pilot:
            someone = Served(app, app.session, pilot)  # type: ignore[arg-type]
            someone.url = serving.address
            await someone.sees("ready")
            yield someone
        await app.shut_down()

    return start


def line(someone: Person) -> str:
    """The tabs, as they are read."""
    return screen_text(someone.app).splitlines()[0]


async def test_two_programs_at_once_have_a_tab_each(served: Serve) -> None:
    slow = (SERVE.format(name).replace("ht.", "ht." + " So on." * 30) for name in ("One", "Two"))
    async with served(*({"markup": markup, "delay_ms": 60} for markup in slow)) as someone:
        first = asyncio.create_task(someone.post(input="The first question"))
        await someone.see(lambda: "1 ● The first question" in line(someone))
        second = asyncio.create_task(someone.post(input="The second question"))
        await someone.see(lambda: "2 ● The second question" in line(someone))
        await someone.sees("F3: 2 served")
        await someone.pilot.press("f3")
        await someone.sees("http ❯ The first question")
        await someone.sees("One is thought.")
        assert "http ❯ The second question" not in screen_text(someone.app)
        await someone.pilot.press("f3")
        await someone.sees("http ❯ The second question")
        await someone.sees("Two is said.")
        await asyncio.gather(first, second)
        await someone.see(lambda: "1 ✓ The first" in line(someone))
        await someone.see(lambda: "2 ✓ The second" in line(someone))
        await someone.pilot.press("f3")
        await someone.see(lambda: "http ❯" not in screen_text(someone.app))


async def test_a_conversation_stays_on_its_tab(served: Serve) -> None:
    """Whether its client names the response before, or sends all of it again."""
    async with served(*(SERVE.format(name) for name in ("One", "Two", "Three", "Four"))) as someone:
        first = await someone.post(input="A question")
        await someone.post(input="And then?", previous_response_id=first["id"])
        said = [{"role": "user", "content": "A chat"}]
        answer = await someone.post("chat/completions", messages=said)
        said += [answer["choices"][0]["message"], {"role": "user", "content": "More of it"}]
        await someone.post("chat/completions", messages=said)
        await someone.see(lambda: "1 ✓ A question  2 ✓ A chat" in line(someone))
        await someone.pilot.press("f3")
        await someone.sees("http ❯ And then?")
        await someone.pilot.press("pageup")
        await someone.sees("One is said.", "http ❯ A question")
        await someone.pilot.press("ctrl+pagedown")
        await someone.sees("http ❯ More of it")
        await someone.pilot.press("pageup")
        await someone.sees("Three is said.")
        await someone.pilot.press("ctrl+pageup")
        await someone.sees("http ❯ And then?")
        assert len(someone.app.watching.tabs) == 2


async def test_the_turn_of_another_program_is_stopped_by_a_command(served: Serve) -> None:
    async with served({"markup": SERVE.format("word " * 500), "delay_ms": 60}) as someone:
        asked = asyncio.create_task(someone.post(input="Too long"))
        await someone.see(lambda: "1 ● Too long" in line(someone))
        await someone.pilot.press("f3")
        await someone.sees("word word")
        await someone.pilot.press("escape")
        assert someone.app.watching.running == 1, "a stray key is no reason to stop it"
        await someone.pilot.press(*"/stop", "enter")
        assert (await asked)["status"] == "cancelled"
        await someone.sees("Stopped; what was said until then is kept.")
        await someone.see(lambda: "1 ✗ Too long" in line(someone))


async def test_keys_are_for_the_tab_that_is_looked_at(served: Serve) -> None:
    async with served(SERVE.format("Needle")) as someone:
        app = someone.app
        await someone.post(input="A question")
        await someone.see(lambda: "1 ✓" in line(someone))
        await someone.pilot.press("f3")
        await someone.sees("Needle is said.")
        await someone.pilot.press("f2")
        await someone.sees("▸ Thought", gone="Needle is thought.")
        await someone.pilot.press("ctrl+o")
        await someone.sees("Needle is thought.")
        await someone.pilot.press("ctrl+f", *"needle")
        await someone.sees("2/2")
        await someone.pilot.press("f3")
        await someone.see(lambda: not app.query(Search))
        await someone.pilot.press("f3", "f8")
        await someone.sees("<|channel|>analysis<|message|>Needle")


async def test_what_a_client_ran_heads_the_round_that_reads_it(served: Serve) -> None:
    called = (
        "<|channel|>commentary to=functions.shell <|constrain|>json<|message|>"
        '{"command":"ls"}<|call|>'
    )
    async with served(called, SERVE.format("One file")) as someone:
        tool = {"type": "function", "name": "shell", "parameters": {"type": "object"}}
        first = await someone.post(input="What is here?", tools=[tool])
        call = next(item for item in first["output"] if item["type"] == "function_call")
        gave = {"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}
        await someone.post(input=[gave], tools=[tool], previous_response_id=first["id"])
        await someone.see(lambda: "1 ✓ What is here?" in line(someone))
        await someone.pilot.press("f3")
        await someone.sees("http ❯ shell → a.txt")


# --- played by hand ---


def begins(someone: Person, prompt: str, conversation: Conversation | None = None) -> PlayedTurn:
    turn = PlayedTurn(prompt, "http", conversation).start()
    someone.session.runtime.hub.announce(turn)  # type: ignore[arg-type]
    return turn


async def test_what_nobody_looks_at_has_no_widgets_and_comes_at_once_when_they_do() -> None:
    async with person() as someone:
        app = someone.app
        turn = begins(someone, "A question")
        reasoning = thinks(turn, "a long thought")
        await someone.see(lambda: "1 ●" in line(someone))
        assert list(app.query(Transcript)) == [app.chat]
        await someone.pilot.press("f3")
        await someone.sees("a long thought")
        await someone.pilot.press("f3")
        reasoning.delta("and what came unseen")
        reasoning.close(True)
        says(turn, "The answer.").close(True)
        turn.end()
        await someone.see(lambda: "1 ✓" in line(someone))
        assert not any("unseen" in str(pane) for pane in texts(app.watching.tabs[0].transcript))
        await someone.pilot.press("f3")
        await someone.sees("and what came unseen")
        await someone.sees("The answer.")


def texts(transcript: Transcript) -> list[str]:
    from tui.widgets.text_stream import Stream

    return [stream.text for stream in transcript.query(Stream)]


async def test_many_exchanges_that_began_unseen_are_all_there() -> None:
    async with person(size=(80, 40)) as someone:
        talk = Conversation("conv_1")
        for number in range(12):
            turn = begins(someone, f"Question {number}.", talk)
            says(turn, f"Answer {number}.").close(True)
            turn.end()
        await someone.see(lambda: "1 ✓ Question 0." in line(someone))
        await someone.pilot.press("f3")
        await someone.sees("Answer 11.")
        assert len(someone.app.watching.tabs) == 1
        await someone.pilot.press("ctrl+home")
        await someone.sees("http ❯ Question 0.")
        place = screen_text(someone.app)
        await someone.pilot.press("f3", "f3")
        await someone.see(lambda: screen_text(someone.app) == place)


async def test_tabs_are_closed_as_in_a_browser() -> None:
    async with person(size=(100, 24)) as someone:
        app = someone.app
        for name in "ABCD":
            begins(someone, f"Question {name}").end()
        await someone.see(lambda: "4 ✓ Question D" in line(someone))
        await someone.pilot.press(*"/served 2", "enter")
        await someone.sees("http ❯ Question B")
        await someone.pilot.press(*"two words", "ctrl+w")
        assert app.prompt.text == "two " and len(app.watching.tabs) == 4
        await someone.pilot.press("ctrl+w", "ctrl+w")
        await someone.sees("http ❯ Question C")
        await someone.see(lambda: "Question B" not in line(someone))
        await someone.pilot.click(Tabs, (line(someone).index("×"), 0))
        await someone.sees("http ❯ Question D")
        await someone.pilot.click(Tabs, (line(someone).index("A"), 0), button=2)
        await someone.see(lambda: "1 ✓ Question D" in line(someone))
        await someone.pilot.press(*"/close", "enter")
        await someone.see(lambda: not app.query_one(Tabs).display)
        assert list(app.query(Transcript)) == [app.chat] and app.chat.display


async def test_a_closed_conversation_that_goes_on_has_a_tab_again() -> None:
    async with person() as someone:
        talk = Conversation("conv_1")
        turn = begins(someone, "Before.", talk)
        await someone.see(lambda: "1 ● Before." in line(someone))
        await someone.pilot.press("f3", "ctrl+w")
        await someone.see(lambda: not someone.app.watching.tabs)
        await someone.sees("F3: 1 served")
        turn.end()
        await someone.see(lambda: not someone.app.watching.running)
        begins(someone, "After.", talk)
        await someone.see(lambda: "1 ● After." in line(someone))


async def test_what_ended_longest_ago_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST", 4)
    monkeypatch.setattr(watching, "KEPT", 6)
    async with person(size=(200, 24)) as someone:
        app = someone.app

        def titles() -> list[str]:
            return [tab.title for tab in app.watching.tabs]

        begins(someone, "runs")
        for name in ("looked at", "oldest", "older"):
            begins(someone, name).end()
            await someone.see(
                lambda name=name: titles()[-1:] == [name] and app.watching.running == 1
            )
            someone.clock.now += 1
        await someone.pilot.press(*"/served 2", "enter")
        await someone.sees("http ❯ looked at")
        begins(someone, "new")
        await someone.see(lambda: titles() == ["runs", "looked at", "older", "new"])
        talk = Conversation("conv_1")
        for number in range(7):
            begins(someone, f"long {number}", talk).end()
            await someone.see(
                lambda number=number: app.watching.tabs[-1].said[-1].prompt == f"long {number}"
            )
            await someone.see(lambda: app.watching.running == 2)
        assert titles() == ["runs", "looked at", "new", "long 0"]
        assert sum(len(tab.said) for tab in app.watching.tabs) <= 6


async def test_of_what_ended_not_every_event_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "EVENTS", 100)
    async with person() as someone:
        tabs = someone.app.watching.tabs
        for number in range(3):
            turn = begins(someone, f"Question {number}.")
            says(turn, "word " * 60).close(True)
            turn.end()
            await someone.see(lambda number=number: len(tabs) > number and tabs[-1].state == "done")
            await someone.see(lambda: not someone.app.watching.running)
            someone.clock.now += 1
        assert [tab.turn is None for tab in tabs] == [True, True, False]
        await someone.pilot.press("f3")
        await someone.sees("word word")


async def test_what_is_sent_goes_to_ones_own_conversation() -> None:
    async with person() as someone:
        begins(someone, "A question").end()
        await someone.see(lambda: "1 ✓" in line(someone))
        await someone.pilot.press("f3")
        await someone.sees("read only · what you send goes to Chat")
        await someone.pilot.press(*"/view", "enter")
        await someone.see(lambda: "Reasoning" not in screen_text(someone.app))
        assert "http ❯ A question" in screen_text(someone.app)
        await someone.pilot.press(*"/served 7", "enter")
        await someone.sees("There is no tab 7")
        await someone.ask("mine")
        await someone.sees("❯ mine", gone="http ❯")
        await someone.sees(gone="read only")


@asynccontextmanager
async def busy(watching: watching.Watching) -> AsyncIterator[None]:
    """The line is written whenever anything waits, as by turns that begin and end all the time."""

    async def write() -> None:
        while True:
            watching.show()
            await asyncio.sleep(0)

    writing = asyncio.create_task(write())
    yield
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing


async def test_turns_may_begin_and_end_while_tabs_are_turned_or_closed() -> None:
    async with person() as someone:
        app = someone.app
        for name in "ABC":
            begins(someone, f"Question {name}").end()
        await someone.see(lambda: "3 ✓ Question C" in line(someone))
        await someone.pilot.press("f3", "ctrl+f", *"question")
        await someone.sees("1/1")
        gone = app.watching.tabs[1]
        async with busy(app.watching):
            await asyncio.gather(app.watching.look(gone), app.watching.close(gone))
        await someone.sees("http ❯ Question C")
        assert not app.query(Search) and gone not in app.watching.tabs
        await someone.pilot.press("ctrl+f", *"question")
        await someone.sees("1/1")
        async with busy(app.watching):
            await app.watching.close()
        await someone.sees("http ❯ Question A")
        assert not app.query(Search) and len(app.watching.tabs) == 1


async def test_a_long_conversation_goes_on_on_a_new_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "KEPT", 3)
    async with person() as someone:
        talk = Conversation("conv_1")
        for number in range(3):
            begins(someone, f"Question {number}", talk).end()
        await someone.see(lambda: "1 ✓ Question 0" in line(someone))
        await someone.pilot.press("f3")
        await someone.sees("http ❯ Question 2")
        async with busy(someone.app.watching):
            begins(someone, "Question 3", talk).end()
            await someone.sees("http ❯ Question 3", gone="http ❯ Question 2")
        await someone.pilot.press("f3")
        for number in range(4, 7):
            begins(someone, f"Question {number}", talk).end()
        await someone.see(lambda: someone.app.watching.tabs[0].said[0].prompt == "Question 6")
        await someone.pilot.press("f3")
        await someone.sees("http ❯ Question 6", gone="http ❯ Question 5")


async def test_without_tabs_f3_says_why() -> None:
    async with person() as someone:
        await someone.pilot.press("f3")
        await someone.sees("No other program")


@pytest.mark.slow
@pytest.mark.timeout(300)  # each of some 60 tabs is laid out and painted
@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 50)])
async def test_however_many_the_one_that_is_looked_at_is_in_sight(size: tuple[int, int]) -> None:
    async with person(size=size) as someone:
        for number in range(1, 21):
            begins(someone, f"いろは\n\x1b[31mquestion\x1b[0m {number}")
        await someone.see(lambda: len(someone.app.watching.tabs) == 20)
        for number in range(1, 21):
            await someone.pilot.press("f3")
            await someone.see(lambda number=number: f" {number} ● " in line(someone))
            assert "×" in line(someone) and "Chat" in line(someone)
            assert cell_len(line(someone)) <= size[0] and "\x1b" not in line(someone)
        await someone.pilot.press("f3")
        while "›" in line(someone):
            before = someone.app.watching.looked
            await someone.pilot.click(Tabs, (cell_len(line(someone)) - 1, 0))
            await someone.see(lambda before=before: someone.app.watching.looked is not before)
        assert "20 ●" in line(someone)


def test_titles_are_as_long_as_there_is_room() -> None:
    tabs = [Tab(0, None, "Chat", False), *(Tab(n, "done", "a" * 60, n == 2) for n in range(1, 4))]
    for columns in range(40, 200):
        longest, shown = fitting(tabs, columns)
        widths = [tabs[n].width(longest) for n in (0, *shown)]
        assert 2 in shown and sum(widths) <= columns
        assert longest == LONGEST or len(shown) < 3 or columns - sum(widths) < 3
