"""The page of `agent serve` in a browser, on scripted replies."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Page, open_browser
from tests.support.scripts import HELLO, final, hold, python, thought
from tests.support.serve_program import serve_program

pytestmark = pytest.mark.slow
CODE = "total = 6 * 7\nprint(total)"
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\n\n"
    "[click](javascript:document.title='owned') [fine](https://example.org/)\n\n"
    '```html\n<b onclick="x()">bold</b>\n```\n\n| a | b |\n|---|---|\n| <i>1</i> | **2** |\n'
)
Serve = Callable[..., str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with open_browser() as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """A tab that has stored nothing, of a size of its own."""
    browser.problems.clear()
    browser.size(1280, 800)
    yield browser
    assert browser.problems == []
    browser.evaluate("localStorage.clear(), sessionStorage.clear()")


@pytest.fixture
def serve(tmp_path: Path, home: Path) -> Iterator[Serve]:
    """Start a server with scripted replies; its address without a path."""
    with ExitStack() as stack:

        def start(*replies: str | dict[str, Any], options: tuple[str, ...] = ()) -> str:
            script = tmp_path / "script.jsonl"
            lines = [{"markup": each} if isinstance(each, str) else each for each in replies]
            script.write_text("".join(json.dumps(line) + "\n" for line in lines))
            served = serve_program(home, "--engine", f"script:{script}", *options)
            return stack.enter_context(served)[0].removesuffix("v1")

        yield start


def ask(page: Page, text: str) -> None:
    page.wait("document.activeElement.id == 'prompt'")
    page.type(text)
    page.press("Enter")


def wait_done(page: Page) -> None:
    page.wait("document.getElementById('log').getAttribute('aria-busy') == 'false'")


def test_tool_turn_is_watched_live(page: Page, serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    call = hold(thought("I compute it.") + python(CODE), after=21, until=go)
    page.goto(serve(call, final("It is **42**."), options=("--tools", "python")))
    page.wait("document.querySelectorAll('#tools input').length")
    ask(page, "What is 6*7?")
    page.wait_text("I compute it.")
    page.wait("document.querySelector('.pane.running pre')?.textContent.startsWith('total')")
    assert page.evaluate("document.querySelector('.pane.running pre').textContent") != CODE
    go.touch()
    page.wait("document.querySelector('.answer strong')?.textContent == '42'")
    wait_done(page)
    panes = page.evaluate("[...document.querySelectorAll('.pane pre')].map(p => p.textContent)")
    assert panes[0] == CODE and "42" in panes[1]
    assert page.evaluate("document.getElementById('spoken').textContent") == "Answer: It is 42."
    assert page.evaluate("document.activeElement.id") == "prompt"


def test_reload_in_mid_stream_resumes(page: Page, serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    page.goto(serve(hold(thought("Slowly.") + final("one two three"), after=14, until=go)))
    ask(page, "Count")
    page.wait_text("one")
    page.call("Page.reload")
    page.wait("performance.getEntriesByType('navigation')[0].type == 'reload'")
    page.wait("document.querySelector('.answer')?.textContent.startsWith('one')")
    assert (
        "Slowly." in page.text()
        and page.evaluate("document.querySelector('.mine').textContent") == "Count"
    )
    go.touch()
    page.wait("document.querySelector('.answer').textContent == 'one two three'")
    wait_done(page)
    page.call("Page.reload")
    page.wait("!performance.getEntriesByType('navigation')[0].loadEventEnd == false")
    page.wait("document.querySelector('.answer')?.textContent == 'one two three'")
    assert page.evaluate("document.querySelectorAll('.mine').length") == 1


def test_hostile_answer_stays_text(page: Page, serve: Serve) -> None:
    page.goto(serve(thought(HOSTILE) + final(HOSTILE)))
    ask(page, HOSTILE.replace("\n", " "))
    page.wait("document.querySelector('.answer table')")
    wait_done(page)
    text = page.text()
    assert "<img src=x onerror" in text and "<script>" in text and '<b onclick="x()">' in text
    assert "[click](javascript:" in text
    inside = "#log img, #log script, #log b, #log i"
    assert page.evaluate(f"document.querySelectorAll('{inside}').length") == 0
    links = page.evaluate("[...document.querySelectorAll('#log a')].map(a => a.href)")
    assert links == ["https://example.org/"] and page.evaluate("document.title") == "agent"
    assert page.evaluate("document.querySelector('.answer td').textContent") == "<i>1</i>"


def test_keyboard_alone_stops_retries_and_deletes(page: Page, serve: Serve) -> None:
    long = hold(thought("It is long.") + final("word " * 200), after=20)
    page.goto(serve(long, HELLO))
    ask(page, "Talk")
    page.wait_text("word")
    page.press("Escape")
    page.wait_text("Stopped.")
    for wanted in ("retry",):
        while page.evaluate("document.activeElement.id") != wanted:
            page.press("Tab")
    page.press(" ")
    page.wait_text("Hello there!")
    wait_done(page)
    assert page.evaluate("document.querySelectorAll('.mine').length") == 1
    page.evaluate("document.getElementById('new').focus()")
    page.press("Tab")
    page.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "Delete Talk"
    page.press("Enter")
    page.wait("!document.querySelector('#conversations li')")
    page.wait_text("What would you like to know?")


def test_conversations_are_listed_and_continued(page: Page, serve: Serve) -> None:
    page.goto(serve(HELLO, final("Second."), final("Third.")))
    ask(page, "First question")
    page.wait_text("Hello there!")
    wait_done(page)
    page.evaluate("document.getElementById('new').click()")
    ask(page, "Other question")
    page.wait_text("Second.")
    wait_done(page)
    assert "Hello there!" not in page.text()
    page.evaluate("document.querySelectorAll('#conversations .open')[1].click()")
    page.wait_text("Hello there!")
    ask(page, "And now?")
    page.wait_text("Third.")
    assert page.evaluate("document.querySelectorAll('.mine').length") == 2


def test_approved_call_runs(page: Page, serve: Serve) -> None:
    call = thought("I write it.") + python("print('ran')")
    served = serve(call, final("Done."), options=("--tools", "python"))
    page.goto(served)
    page.wait("document.querySelectorAll('#tools input').length")
    # The operator's rules let python run; a request may ask for more.
    page.evaluate(
        "{ const fetched = window.fetch; window.fetch = (url, options) => fetched(url, options?.body"
        " ? {...options, body: options.body.replace('\"server_label\"',"
        ' \'"require_approval":"always","server_label"\')} : options); }'
    )
    ask(page, "Write")
    page.wait_text("May this run?")
    page.wait("document.activeElement.textContent == 'Approve'")
    page.press("Enter")
    page.wait_text("Done.")
    wait_done(page)
    assert "ran" in page.text()


def test_key_stays_in_the_tab(page: Page, serve: Serve) -> None:
    page.goto(serve(HELLO, options=("--api-key", "secret")))
    page.wait("document.getElementById('keys').open")
    for key in ("wrong", "secret"):
        page.wait("document.activeElement.id == 'key'")
        page.type(key)
        page.press("Enter")
    ask(page, "Hi")
    page.wait_text("Hello there!")
    assert page.evaluate("sessionStorage.getItem('agent.key')") == "secret"
    assert "secret" not in page.evaluate("JSON.stringify(localStorage)")
    page.problems = [each for each in page.problems if "401" not in each]


def test_phone_has_no_sideways_scroll(page: Page, serve: Serve) -> None:
    page.size(360, 740)
    page.goto(
        serve(thought("x" * 300) + final("`" + "y" * 200 + "`\n\n```\n" + "z" * 200 + "\n```"))
    )
    ask(page, "w" * 200)
    page.wait("document.querySelector('.answer pre')")
    wait_done(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("document.getElementById('log').scrollWidth") == 360
    page.evaluate("document.getElementById('menu').click()")
    assert page.evaluate("document.activeElement.id") == "new"
    page.press("Escape")
    assert page.evaluate("document.activeElement.id") == "menu"
