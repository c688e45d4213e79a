"""Tabs of other programs' conversations: over real HTTP, and with fake turns where timing matters."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.conversation.conversation import Conversation
from agent.server.http.options import ServerOptions
from agent.server.serve import base_url, listen, serve_in
from tests.support.endpoint import http_client
from tests.support.fake_app import (
    AppDriver,
    FakeTurn,
    ScreenDriver,
    drive_app,
    emit_message,
    emit_reasoning,
    screen_text,
)
from tests.support.scripts import hold
from tui.app import AgentApp
from tui.controllers.served_tabs import ServedTabs
from tui.session import Serving, Session
from tui.widgets.search import SearchBar
from tui.widgets.served_conversation import ServedConversation
from tui.widgets.tabs import MAX_TITLE_COLUMNS, TabBar, TabLabel, fit_tabs
from tui.widgets.transcript import Transcript

SERVE = (
    "<|channel|>analysis<|message|>{0} is thought.<|end|><|start|>assistant"
    "<|channel|>final<|message|>{0} is said.<|return|>"
)


class ServingDriver(ScreenDriver):
    """Drives an app that serves HTTP, and sends requests to it as another program."""

    def __init__(self, app: AgentApp, pilot: Pilot[int], url: str) -> None:
        super().__init__(app, pilot)
        self.url = url

    async def post(self, path: str = "responses", **body: Any) -> dict[str, Any]:
        """Send a request and return the answer's JSON."""
        async with http_client() as http:
            answer = await http.post(f"{self.url}/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


Serve = Callable[..., AbstractAsyncContextManager[ServingDriver]]


@pytest.fixture
def served(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restored_logging: None,
    script: Callable[..., str],
) -> Serve:
    """Runs the app with a scripted model: ``async with served("markup of a reply", …) as driver``."""
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))

    @asynccontextmanager
    async def start(*replies: str | dict[str, Any]) -> AsyncIterator[ServingDriver]:
        launch = LaunchOptions(engine=script(*replies), tools="none", root=tmp_path)
        listener = listen("127.0.0.1", 0, None)
        serving = Serving(
            base_url(listener),
            lambda runtime: serve_in(
                runtime, bootstrap.turn_options(launch, runtime.model), listener, ServerOptions()
            ),
        )
        app = AgentApp(Session(launch, serving=serving))
        async with app.run_test(size=(100, 30), notifications=True) as pilot:
            driver = ServingDriver(app, pilot, serving.address)
            await driver.expect_text("ready")
            yield driver
        await app.shut_down()

    return start


def tab_bar(driver: ScreenDriver) -> str:
    """The text of the tab bar."""
    return screen_text(driver.app).splitlines()[0]


def has_begun(tab: ServedConversation) -> bool:
    """Whether a tab's turn has got its reply, of which the first text is there."""
    events = tab.turn.log.events if tab.turn else []
    return any(event.type == "response.reasoning_text.delta" for event in events)


async def test_concurrent_clients_have_own_tabs(served: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    replies = (SERVE.format(name).replace("ht.", "ht." + " So on." * 30) for name in ("One", "Two"))
    async with served(*(hold(reply, 40, go) for reply in replies)) as driver:  # while they think
        first = asyncio.create_task(driver.post(input="The first question"))
        await driver.wait_for(lambda: "1 ● The first question" in tab_bar(driver))
        await driver.wait_for(lambda: has_begun(driver.app.served_tabs.tabs[0]))
        second = asyncio.create_task(driver.post(input="The second question"))
        await driver.wait_for(lambda: "2 ● The second question" in tab_bar(driver))
        await driver.expect_text("F3: 2 served")
        await driver.pilot.press("f3")
        await driver.expect_text("http ❯ The first question")
        await driver.expect_text("One is thought.")
        assert "http ❯ The second question" not in screen_text(driver.app)
        await driver.pilot.press("f3")
        await driver.expect_text("http ❯ The second question")
        await driver.expect_text("Two is thought.")
        go.touch()
        await driver.expect_text("Two is said.")
        await asyncio.gather(first, second)
        await driver.wait_for(lambda: "1 ✓ The first" in tab_bar(driver))
        await driver.wait_for(lambda: "2 ✓ The second" in tab_bar(driver))
        await driver.pilot.press("f3")
        await driver.wait_for(lambda: "http ❯" not in screen_text(driver.app))


async def test_continued_conversation_stays_on_its_tab(served: Serve) -> None:
    """Whether its client names the response before, or sends all of it again."""
    async with served(*(SERVE.format(name) for name in ("One", "Two", "Three", "Four"))) as driver:
        first = await driver.post(input="A question")
        await driver.post(input="And then?", previous_response_id=first["id"])
        messages = [{"role": "user", "content": "A chat"}]
        answer = await driver.post("chat/completions", messages=messages)
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "More of it"}]
        await driver.post("chat/completions", messages=messages)
        await driver.wait_for(lambda: "1 ✓ A question  2 ✓ A chat" in tab_bar(driver))
        await driver.pilot.press("f3")
        await driver.expect_text("http ❯ And then?")
        await driver.pilot.press("pageup")
        await driver.expect_text("One is said.", "http ❯ A question")
        await driver.pilot.press("ctrl+pagedown")
        await driver.expect_text("http ❯ More of it")
        await driver.pilot.press("pageup")
        await driver.expect_text("Three is said.")
        await driver.pilot.press("ctrl+pageup")
        await driver.expect_text("http ❯ And then?")
        assert len(driver.app.served_tabs.tabs) == 2


async def test_stop_command_stops_served_turn(served: Serve) -> None:
    async with served(hold(SERVE.format("word " * 500), after=100)) as driver:
        request = asyncio.create_task(driver.post(input="Too long"))
        await driver.wait_for(lambda: "1 ● Too long" in tab_bar(driver))
        await driver.pilot.press("f3")
        await driver.expect_text("word word")
        await driver.pilot.press("escape")
        assert driver.app.served_tabs.running_turns == 1, "a stray key is no reason to stop it"
        await driver.pilot.press(*"/stop", "enter")
        assert (await request)["status"] == "cancelled"
        await driver.expect_text("Interrupted; the partial answer is kept.")
        await driver.wait_for(lambda: "1 ✗ Too long" in tab_bar(driver))


async def test_key_ends_the_reasoning_of_the_visible_turn(served: Serve) -> None:
    lines = hold(SERVE.format("Needle"), after=8), "It is so.<|return|>"
    async with served(*lines) as driver:
        request = asyncio.create_task(driver.post(input="A question"))
        await driver.wait_for(lambda: "1 ● A question" in tab_bar(driver))
        await driver.pilot.press("ctrl+n")
        await driver.expect_text("No turn is reasoning here.")
        await driver.pilot.press("f3")
        await driver.expect_text("Needle is thought.")
        await driver.pilot.press("ctrl+n")
        response = await request
        assert response["status"] == "completed"
        assert response["output"][-1]["content"][0]["text"] == "It is so."
        await driver.expect_text("It is so.")


async def test_view_keys_act_on_visible_tab(served: Serve) -> None:
    async with served(SERVE.format("Needle")) as driver:
        app = driver.app
        await driver.post(input="A question")
        await driver.wait_for(lambda: "1 ✓" in tab_bar(driver))
        await driver.pilot.press("f3")
        await driver.expect_text("Needle is said.")
        await driver.pilot.press("f2")
        await driver.expect_text("▸ Thought", gone="Needle is thought.")
        await driver.pilot.press("ctrl+o")
        await driver.expect_text("Needle is thought.")
        await driver.pilot.press("ctrl+f", *"needle")
        await driver.expect_text("2/2")
        await driver.pilot.press("f3")
        await driver.wait_for(lambda: not app.query(SearchBar))
        await driver.pilot.press("f3", "f8")
        await driver.expect_text("<|channel|>analysis<|message|>Needle")


async def test_client_tool_result_is_displayed_as_prompt(served: Serve) -> None:
    tool_call = (
        "<|channel|>commentary to=functions.shell <|constrain|>json<|message|>"
        '{"command":"ls"}<|call|>'
    )
    async with served(tool_call, SERVE.format("One file")) as driver:
        tool = {"type": "function", "name": "shell", "parameters": {"type": "object"}}
        first = await driver.post(input="What is here?", tools=[tool])
        call = next(item for item in first["output"] if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}
        await driver.post(input=[result], tools=[tool], previous_response_id=first["id"])
        await driver.wait_for(lambda: "1 ✓ What is here?" in tab_bar(driver))
        await driver.pilot.press("f3")
        await driver.expect_text("http ❯ shell → a.txt")


# --- with fake turns ---


def begin_turn(
    driver: AppDriver, prompt: str, conversation: Conversation | None = None
) -> FakeTurn:
    """Publish a turn as one that came over HTTP."""
    turn = FakeTurn(prompt, "http", conversation).start()
    driver.session.runtime.hub.publish(turn)
    return turn


async def test_hidden_tab_has_no_widgets_and_catches_up() -> None:
    async with drive_app() as driver:
        app = driver.app
        turn = begin_turn(driver, "A question")
        reasoning = emit_reasoning(turn, "a long thought")
        await driver.wait_for(lambda: "1 ●" in tab_bar(driver))
        assert list(app.query(Transcript)) == [app.transcript]
        await driver.pilot.press("f3")
        await driver.expect_text("a long thought")
        await driver.pilot.press("f3")
        reasoning.delta("and what came unseen")
        reasoning.close(True)
        emit_message(turn, "The answer.").close(True)
        turn.end()
        await driver.wait_for(lambda: "1 ✓" in tab_bar(driver))
        assert not any(
            "unseen" in str(pane) for pane in stream_texts(app.served_tabs.tabs[0].transcript)
        )
        await driver.pilot.press("f3")
        await driver.expect_text("▸ Thought", "The answer.")
        await driver.pilot.press("ctrl+o")
        await driver.expect_text("and what came unseen")


def stream_texts(transcript: Transcript) -> list[str]:
    from tui.widgets.text_stream import TextStream

    return [stream.text for stream in transcript.query(TextStream)]


async def test_tab_shows_all_turns_that_began_while_hidden() -> None:
    async with drive_app(size=(80, 40)) as driver:
        conversation = Conversation("conv_1")
        for number in range(12):
            turn = begin_turn(driver, f"Question {number}.", conversation)
            emit_message(turn, f"Answer {number}.").close(True)
            turn.end()
        await driver.wait_for(lambda: "1 ✓ Question 0." in tab_bar(driver))
        await driver.pilot.press("f3")
        await driver.expect_text("Answer 11.")
        assert len(driver.app.served_tabs.tabs) == 1
        await driver.pilot.press("ctrl+home")
        await driver.expect_text("http ❯ Question 0.")
        before = screen_text(driver.app)
        await driver.pilot.press("f3", "f3")
        await driver.wait_for(lambda: screen_text(driver.app) == before)


async def test_tabs_close_by_key_mouse_and_command() -> None:
    async with drive_app(size=(100, 24)) as driver:
        app = driver.app
        for name in "ABCD":
            begin_turn(driver, f"Question {name}").end()
        await driver.wait_for(lambda: "4 ✓ Question D" in tab_bar(driver))
        await driver.pilot.press(*"/served 2", "enter")
        await driver.expect_text("http ❯ Question B")
        await driver.pilot.press(*"two words", "ctrl+w")
        assert app.prompt.text == "two " and len(app.served_tabs.tabs) == 4
        await driver.pilot.press("ctrl+w", "ctrl+w")
        await driver.expect_text("http ❯ Question C")
        await driver.wait_for(lambda: "Question B" not in tab_bar(driver))
        await driver.pilot.click(TabBar, (tab_bar(driver).index("×"), 0))
        await driver.expect_text("http ❯ Question D")
        await driver.pilot.click(TabBar, (tab_bar(driver).index("A"), 0), button=2)
        await driver.wait_for(lambda: "1 ✓ Question D" in tab_bar(driver))
        await driver.pilot.press(*"/close", "enter")
        await driver.wait_for(lambda: not app.query_one(TabBar).display)
        assert list(app.query(Transcript)) == [app.transcript] and app.transcript.display


async def test_closed_tab_reopens_with_next_turn() -> None:
    async with drive_app() as driver:
        conversation = Conversation("conv_1")
        turn = begin_turn(driver, "Before.", conversation)
        await driver.wait_for(lambda: "1 ● Before." in tab_bar(driver))
        await driver.pilot.press("f3", "ctrl+w")
        await driver.wait_for(lambda: not driver.app.served_tabs.tabs)
        await driver.expect_text("F3: 1 served")
        turn.end()
        await driver.wait_for(lambda: not driver.app.served_tabs.running_turns)
        begin_turn(driver, "After.", conversation)
        await driver.wait_for(lambda: "1 ● After." in tab_bar(driver))


@pytest.mark.long
async def test_tabs_beyond_limits_are_evicted_oldest_first() -> None:
    async with drive_app(size=(200, 24)) as driver:
        app = driver.app
        app.served_tabs.max_tabs, app.served_tabs.max_turn_views = 4, 6

        def titles() -> list[str]:
            return [tab.title for tab in app.served_tabs.tabs]

        begin_turn(driver, "runs")
        for name in ("looked at", "oldest", "older"):
            begin_turn(driver, name).end()
            await driver.wait_for(
                lambda name=name: titles()[-1:] == [name] and app.served_tabs.running_turns == 1
            )
            driver.clock.now += 1
        await driver.pilot.press(*"/served 2", "enter")
        await driver.expect_text("http ❯ looked at")
        begin_turn(driver, "new")
        await driver.wait_for(lambda: titles() == ["runs", "looked at", "older", "new"])
        conversation = Conversation("conv_1")
        for number in range(7):
            begin_turn(driver, f"long {number}", conversation).end()
            await driver.wait_for(
                lambda number=number: (
                    app.served_tabs.tabs[-1].turn_views[-1].prompt == f"long {number}"
                )
            )
            await driver.wait_for(lambda: app.served_tabs.running_turns == 2)
        assert titles() == ["runs", "looked at", "new", "long 0"]
        assert sum(len(tab.turn_views) for tab in app.served_tabs.tabs) <= 6


async def test_events_of_ended_turns_are_dropped_beyond_limit() -> None:
    async with drive_app() as driver:
        driver.app.served_tabs.max_ended_events = 100
        tabs = driver.app.served_tabs.tabs
        for number in range(3):
            turn = begin_turn(driver, f"Question {number}.")
            emit_message(turn, "word " * 60).close(True)
            turn.end()
            await driver.wait_for(
                lambda number=number: len(tabs) > number and tabs[-1].state == "done"
            )
            await driver.wait_for(lambda: not driver.app.served_tabs.running_turns)
            driver.clock.now += 1
        assert [tab.turn is None for tab in tabs] == [True, True, False]
        await driver.pilot.press("f3")
        await driver.expect_text("word word")


async def test_prompt_sent_on_tab_goes_to_own_conversation() -> None:
    async with drive_app() as driver:
        begin_turn(driver, "A question").end()
        await driver.wait_for(lambda: "1 ✓" in tab_bar(driver))
        await driver.pilot.press("f3")
        await driver.expect_text("read only · what you send goes to Chat")
        await driver.pilot.press(*"/view", "enter")
        await driver.wait_for(lambda: "Reasoning" not in screen_text(driver.app))
        assert "http ❯ A question" in screen_text(driver.app)
        await driver.pilot.press(*"/served 7", "enter")
        await driver.expect_text("There is no tab 7")
        await driver.ask("mine")
        await driver.expect_text("❯ mine", gone="http ❯")
        await driver.expect_text(gone="read only")


@asynccontextmanager
async def constant_updates(served_tabs: ServedTabs) -> AsyncIterator[None]:
    """Update the tab bar at every await, as turns do that begin and end all the time."""

    async def update() -> None:
        while True:
            served_tabs.update_bar()
            await asyncio.sleep(0)

    task = asyncio.create_task(update())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_switching_and_closing_tabs_during_updates() -> None:
    async with drive_app() as driver:
        app = driver.app
        for name in "ABC":
            begin_turn(driver, f"Question {name}").end()
        await driver.wait_for(lambda: "3 ✓ Question C" in tab_bar(driver))
        await driver.pilot.press("f3", "ctrl+f", *"question")
        await driver.expect_text("1/1")
        closed = app.served_tabs.tabs[1]
        async with constant_updates(app.served_tabs):
            await asyncio.gather(app.served_tabs.show_tab(closed), app.served_tabs.close(closed))
        await driver.expect_text("http ❯ Question C")
        assert not app.query(SearchBar) and closed not in app.served_tabs.tabs
        await driver.pilot.press("ctrl+f", *"question")
        await driver.expect_text("1/1")
        async with constant_updates(app.served_tabs):
            await app.served_tabs.close()
        await driver.expect_text("http ❯ Question A")
        assert not app.query(SearchBar) and len(app.served_tabs.tabs) == 1


@pytest.mark.long
async def test_conversation_beyond_limit_restarts_its_tab() -> None:
    async with drive_app() as driver:
        driver.app.served_tabs.max_turn_views = 3
        conversation = Conversation("conv_1")
        for number in range(3):
            begin_turn(driver, f"Question {number}", conversation).end()
        await driver.wait_for(lambda: "1 ✓ Question 0" in tab_bar(driver))
        await driver.pilot.press("f3")
        await driver.expect_text("http ❯ Question 2")
        async with constant_updates(driver.app.served_tabs):
            begin_turn(driver, "Question 3", conversation).end()
            await driver.expect_text("http ❯ Question 3", gone="http ❯ Question 2")
        await driver.pilot.press("f3")
        for number in range(4, 7):
            begin_turn(driver, f"Question {number}", conversation).end()
        await driver.wait_for(
            lambda: driver.app.served_tabs.tabs[0].turn_views[0].prompt == "Question 6"
        )
        await driver.pilot.press("f3")
        await driver.expect_text("http ❯ Question 6", gone="http ❯ Question 5")


async def test_f3_without_tabs_notifies() -> None:
    async with drive_app() as driver:
        await driver.pilot.press("f3")
        await driver.expect_text("No API client has connected")


@pytest.mark.long
@pytest.mark.parametrize(("size", "count"), [((60, 15), 8), ((80, 24), 8), ((200, 50), 18)])
async def test_tab_bar_keeps_visible_tab_in_sight(size: tuple[int, int], count: int) -> None:
    async with drive_app(size=size) as driver:
        for number in range(1, count + 1):
            begin_turn(driver, f"いろは\n\x1b[31mquestion\x1b[0m {number}")
        await driver.wait_for(lambda: len(driver.app.served_tabs.tabs) == count)
        assert "›" in tab_bar(driver)
        for number in range(1, count + 1):
            await driver.pilot.press("f3")
            await driver.wait_for(lambda number=number: f" {number} ● " in tab_bar(driver))
            assert "×" in tab_bar(driver) and "Chat" in tab_bar(driver)
            assert cell_len(tab_bar(driver)) <= size[0] and "\x1b" not in tab_bar(driver)
        await driver.pilot.press("f3")
        while "›" in tab_bar(driver):
            before = driver.app.live.tab
            await driver.pilot.click(TabBar, (cell_len(tab_bar(driver)) - 1, 0))
            await driver.wait_for(lambda before=before: driver.app.live.tab is not before)
        assert f"{count} ●" in tab_bar(driver)


def test_fit_tabs_uses_available_columns() -> None:
    tabs = [
        TabLabel(0, None, "Chat", False),
        *(TabLabel(n, "done", "a" * 60, n == 2) for n in range(1, 4)),
    ]
    for columns in range(40, 200):
        title_columns, fitting = fit_tabs(tabs, columns)
        widths = [tabs[n].width(title_columns) for n in (0, *fitting)]
        assert 2 in fitting and sum(widths) <= columns
        assert title_columns == MAX_TITLE_COLUMNS or len(fitting) < 3 or columns - sum(widths) < 3
