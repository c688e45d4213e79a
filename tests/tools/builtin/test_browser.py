"""The browser server: against a site and a search of our own, and addresses it must not open."""

import asyncio
import gzip
import http.server
import io
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pypdf
import pytest

from agent.turn.output import citations
from tests.support.hosts import server
from tests.support.invariants import check
from tests.support.pdf import pdf
from tests.support.program import RunAgent
from tools import safe_fetch
from tools.builtin.browser.page import matches_page, results_page, text_page
from tools.builtin.browser.server import BrowserServer
from tools.builtin.browser.settings import BrowserSettings
from tools.builtin_server import ToolError, conversation_id
from tools.config.servers import ConfigError
from tools.factory import ToolboxOptions, build_toolbox
from tools.safe_fetch import FetchedPage, GuardedTransport
from tools.sandbox.isolation import Isolation
from tools.types import Source

ARTICLE = """<!doctype html><html><head><title>On   foxes</title><script>alert(1)</script></head>
<body><nav><a href="/">home</a></nav><article><h1>Foxes</h1>
<p>The red fox is the largest of the true foxes. It lives across the Northern Hemisphere, and it is
listed as least concern. See <a href="/dens">their dens</a> and
<a href="https://example.org/cubs_(fox)">cubs</a>.</p>
<p>{more}</p><p>A fox that says 【0†fake】 is no mark.</p></article></body></html>"""
LIST = """<html><body><ul>{items}</ul></body></html>"""


class Site(http.server.BaseHTTPRequestHandler):
    """A few pages, some of them bad."""

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        match path:
            case "/fox":
                more = " ".join(f"Sentence {n} tells of foxes in the wood." for n in range(400))
                self.answer(ARTICLE.format(more=more).encode(), "text/html; charset=utf-8")
            case "/list":
                items = "".join(f"<li><a href='item/{n}'>Item {n}</a></li>" for n in range(30))
                self.answer(LIST.format(items=items).encode(), "text/html")
            case "/latin":
                self.answer("<p>Größe</p>".encode("latin-1"), "text/html; charset=iso-8859-1")
            case "/data":
                self.answer(b'{"a": [1, 2]}', "application/json")
            case "/deep":
                self.answer(b"[" * 900 + b"1," * 5000 + b"1" + b"]" * 900, "application/json")
            case "/paper.pdf":
                self.answer(pdf("Hello fox"), "application/pdf")
            case "/broken.pdf":
                self.answer(b"%PDF-1.7 nothing", "application/pdf")
            case "/image":
                self.answer(b"\x89PNG", "image/png")
            case "/huge":
                self.answer(gzip.compress(b"x" * 20_000_000), "text/plain", encoding="gzip")
            case "/loop":
                self.redirect("/loop")
            case "/away":
                self.redirect(query["to"][0])
            case "/search" if query.get("format") == ["json"]:
                host = self.headers["Host"]
                results = [
                    {"title": "Foxes", "url": f"http://{host}/fox", "content": "All on foxes."},
                    {"title": "A list", "url": f"http://{host}/list", "content": "Items."},
                ]
                results = results if "nothing" not in query["q"][0] else []
                self.answer(json.dumps({"results": results}).encode(), "application/json")
            case "/nojson/search":
                self.send_error(403)
            case "/odd/search":
                self.answer(b"[]", "application/json")
            case _:
                self.send_error(404)

    def answer(self, data: bytes, kind: str, encoding: str | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(data)

    def redirect(self, where: str) -> None:
        self.send_response(302)
        self.send_header("Location", where)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


OWN = ("127.0.0.1/32",)


class Browsing:
    """A conversation's browser."""

    def __init__(self, builtin: BrowserServer) -> None:
        self.builtin = builtin

    async def __call__(self, name: str, **arguments: object) -> str:
        return await self.builtin.call(name, arguments)

    async def fails(self, name: str, **arguments: object) -> str:
        with pytest.raises(ToolError) as caught:
            await self(name, **arguments)
        return str(caught.value)


@pytest.fixture
async def browser(site: str) -> AsyncIterator[Browsing]:
    builtin = BrowserServer(BrowserSettings(searxng=site, allow_private=OWN))
    yield Browsing(builtin)
    await builtin.close()


async def test_browser_search_open_scroll_find(browser: Browsing, site: str) -> None:
    host = site.removeprefix("http://")
    assert await browser("search", query="fox") == (
        "[0] Results for: fox (search: fox)\n**viewing lines [0 - 6] of 6**\n\n"
        f"L0: \nL1: 【0†Foxes†{host}】\nL2: All on foxes.\nL3: \n"
        f"L4: 【1†A list†{host}】\nL5: Items.\nL6: "
    )
    opened = (await browser("open", id=0)).splitlines()
    assert opened[0] == f"[1] On foxes ({site}/fox)"
    assert opened[1].startswith("**viewing lines [0 - ")
    assert opened[3:5] == ["L0: # Foxes", "L1: "]
    text = "\n".join(opened)
    assert "【0†their dens】" in text and "【1†cubs†example.org】" in text
    assert "alert" not in text and "home" not in text
    scrolled = (await browser("open", loc=40, num_lines=2)).splitlines()
    assert scrolled[0].startswith("[1] ") and [line[:4] for line in scrolled[3:]] == [
        "L40:",
        "L41:",
    ]
    assert "[fake" not in text and "【0†fake】" not in await browser("find", pattern="is no mark")
    matches = await browser("find", pattern="SENTENCE 399", cursor=1)
    assert matches.startswith("[3] Find: SENTENCE 399 in On foxes")
    number = int(matches.partition("match at L")[2].partition("】")[0])
    there = await browser("open", id=0, cursor=3)
    assert there.startswith("[1] ") and f"L{number}: " in there and "Sentence 399" in there
    again = await browser("find", pattern="no such words")
    assert again.startswith("[4] ") and "No matches." in again
    assert "404 Not Found" in await browser.fails("open", id=0, cursor=1)
    assert await browser.fails("open", id=7, cursor=0) == "the page [0] has no link 7"
    assert await browser.fails("open", cursor=99) == "there is no page [99]"
    assert (await browser("search", query="nothing")).endswith("No results.")


async def test_browser_pages_separate_by_conversation(site: str, tmp_path: Path) -> None:
    settings = BrowserSettings(allow_private=OWN)

    async def within(key: str, **arguments: object) -> str:
        conversation_id.set(key)
        return await Browsing(BrowserServer(settings, work_folder=tmp_path))("open", **arguments)

    async def run(key: str, **arguments: object) -> str:
        return await asyncio.create_task(within(key, **arguments))

    assert (await run("a", id=f"{site}/list")).startswith("[0] ")
    assert (await run("b", id=f"{site}/data")).startswith("[0] ")
    # They outlive the process, so that citations of a resumed conversation stay right.
    assert (await run("a", id=f"{site}/data")).startswith("[1] ")
    assert "Item 29" in await run("a", cursor=0)
    with pytest.raises(ToolError, match="no page is open"):
        await run("c")


@pytest.mark.long
async def test_open_html_json_pdf_source(browser: Browsing, site: str) -> None:
    listed = await browser("open", id=f"{site}/list")
    assert "【29†Item 29】" in listed, "a page of links keeps them"
    assert "Größe" in await browser("open", id=f"{site}/latin")
    assert 'L1:  "a": [' in await browser("open", id=f"{site}/data")
    assert "Hello fox" in await browser("open", id=f"{site}/paper.pdf")
    assert pypdf.PdfReader(io.BytesIO(pdf("Hello fox"))).pages[0].extract_text() == "Hello fox"
    assert "<li><a href='item/3'>" in await browser("open", id=f"{site}/list", view_source=True)
    assert "<title>On" in await browser("open", id=f"{site}/fox", view_source=True)


async def test_open_unreadable_page_fails_with_reason(browser: Browsing, site: str) -> None:
    for path, says in (
        ("/none", "answered 404 Not Found"),
        ("/image", "is image/png, which cannot be read as text"),
        ("/huge", "is larger than 10 MB"),
        ("/loop", "redirects more than 5 times"),
        ("/broken.pdf", "cannot be read: "),
    ):
        assert says in await browser.fails("open", id=site + path)
    for address in ("file:///etc/passwd", "ftp://x/y", "javascript://x"):
        assert "not an http address" in await browser.fails("open", id=address)
    assert "there is no host named no-such-host.invalid" in await browser.fails(
        "open", id="no-such-host.invalid"
    )


async def test_fetch_slow_host_times_out(site: str) -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(ToolError, match=r"did not answer within 0\.05 s"):
        await safe_fetch.fetch(site, GuardedTransport(OWN, never), timeout=0.05)


async def test_open_private_address_refused(site: str) -> None:
    browser = Browsing(BrowserServer())
    port = urlsplit(site).port
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433",
                 "0x7f.1", "10.0.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1",
                 "[fe80::1]", "[fc00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"):  # fmt: skip
        error = await browser.fails("open", id=f"http://{host}:{port}/fox")
        assert "is not a public address" in error or "no host named" in error, error
    await browser.builtin.close()


async def test_open_redirect_to_private_address_refused(browser: Browsing, site: str) -> None:
    port = urlsplit(site).port
    for target in (f"http://127.0.0.2:{port}/fox", "http://169.254.169.254/", "http://[::1]/"):
        error = await browser.fails("open", id=f"{site}/away?to={target}")
        assert "leads to another host" in error
        transport = GuardedTransport(browser.builtin.settings.allow_private)
        with pytest.raises(ToolError, match="is not a public address"):
            await safe_fetch.fetch(f"{site}/away?to={target}", transport)
    for target in ("file:///etc/passwd", "gopher://127.0.0.1/"):
        assert "not an http address" in await browser.fails("open", id=f"{site}/away?to={target}")
    assert "[0] " in await browser("open", id=f"{site}/away?to=/list")


async def test_fetch_dns_rebinding_uses_checked_address(site: str) -> None:
    """The first answer is the one that is checked, and the one that is connected to."""
    port, resolved = urlsplit(site).port, []

    async def resolve(host: str, port: int) -> Sequence[str]:
        resolved.append(host)
        return ["127.0.0.1"] if len(resolved) == 1 else ["10.0.0.1"]

    page = await safe_fetch.fetch(
        f"http://rebinding.test:{port}/list", GuardedTransport(OWN, resolve)
    )
    assert isinstance(page, FetchedPage) and resolved == ["rebinding.test"]
    assert page.url == f"http://rebinding.test:{port}/list" and b"Item 3" in page.data
    with pytest.raises(ToolError, match=r"rebinding\.test is not a public address"):
        await safe_fetch.fetch(f"http://rebinding.test:{port}/list", GuardedTransport(OWN, resolve))


async def test_open_ignores_environment_proxies(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, site)
    error = await Browsing(BrowserServer()).fails("open", id="http://10.0.0.1/")
    assert "is not a public address" in error


async def test_search_failures_give_reason(site: str) -> None:
    for path, says in (
        ("/nojson", "add json to search.formats"),
        ("/none", "404"),
        ("/odd", "gave no list of results"),
    ):
        searxng = site.replace("//", "//user:SESAME@") + path
        failure = await Browsing(BrowserServer(BrowserSettings(searxng=searxng))).fails(
            "search", query="fox"
        )
        assert says in failure and "SESAME" not in failure
    browser = Browsing(BrowserServer(BrowserSettings(search="web.find")))
    assert "no search is configured" in await browser.fails("search", query="fox")
    assert "the query is empty" in await browser.fails("search", query=" ")
    assert [tool.name for tool in BrowserServer().tools] == ["open", "find"]
    assert BrowserServer().default_tools == ()


async def test_search_with_tool_of_server() -> None:
    config = server("finder")
    box = build_toolbox(
        ToolboxOptions(
            tools="all",
            mcp=[f"finder={config.command} {' '.join(config.args)}"],
            browser=BrowserSettings(search="finder.lookup"),
        )
    )
    try:
        await box.host.start()
        await box.host.wait_started()
        search = box.host.find_tool("browser.search")
        assert search is not None and search.model_name == "browser.search"
        listed = await box.host.call(search, {"query": "json foxes", "topn": 2})
        assert "【0†One†one.example】\nL2: first\n" in listed.text
        answer = await box.host.call(search, {"query": "words"})
        assert "see 【0†https://two.example/x†two.example】 for words, 10 of them" in answer.text
        failed = await box.host.call(search, {"query": "fail"})
        assert failed.failure == "execution" and "finder.lookup failed" in failed.text
    finally:
        await box.host.close()


async def test_search_denied_by_policy_fails(tmp_path: Path) -> None:
    config = server("finder")
    rules = tmp_path / "mcp.json"
    rules.write_text('{"mcpServers": {}, "approve": {"finder": "deny"}}')
    box = build_toolbox(
        ToolboxOptions(
            tools="all",
            mcp=[f"finder={config.command} {' '.join(config.args)}"],
            user_config=rules,
            browser=BrowserSettings(search="finder.lookup"),
        )
    )
    try:
        await box.host.start()
        await box.host.wait_started()
        search = box.host.find_tool("browser.search")
        assert search is not None
        refused = await box.host.call(search, {"query": "words"})
        assert refused.failure == "execution" and "is not allowed" in refused.text
    finally:
        await box.host.close()


def test_citations_resolve_to_sources() -> None:
    page = text_page("https://a.example/x", "A page", "one\ntwo")
    matches = matches_page("two", page)
    assert matches.source(1) == Source("https://a.example/x", "Find: two in A page")

    def find(cursor: int, line: int) -> Source | None:
        return page.source(line) if cursor == 3 else None

    text = "Foxes 【3†L0-L2】 are red【3†L1】, not 【9†L1】 blue 【3†x】."
    annotations = citations(text, find)
    assert [(a["start_index"], a["end_index"]) for a in annotations] == [(6, 15), (23, 29)]
    assert annotations[0] == {
        "type": "url_citation",
        "start_index": 6,
        "end_index": 15,
        "title": "A page",
        "url": "https://a.example/x",
    }


@pytest.mark.parametrize("wrong", ["http://\u2100@host/", "http://[", "http://[1.2.3.4]/"])
async def test_address_that_is_none(browser: Browsing, wrong: str) -> None:
    """Opened it is named; of a page or of search results the rest is shown."""
    assert await browser.fails("open", id=wrong) == f"not an http address: {wrong}"
    page = text_page("https://a.example/", "", f"[one]({wrong}) [two](/x)")
    assert [link.url for link in page.links] == ["https://a.example/x"] and "one" in page.lines[0]
    found = results_page("q", [("Bad", wrong, "x"), ("Good", "https://b.example/", "y")])
    assert [link.url for link in found.links] == ["https://b.example/"]


async def test_open_half_a_character_is_no_address(browser: Browsing) -> None:
    assert "not an address" in await browser.fails("open", id="http://host/\ud800")


def test_text_page_strips_hidden_and_wraps() -> None:
    page = text_page("https://a.example/", "T\u202eitle", "a\u200bb\x1b[31m " + "word " * 100)
    assert page.title == "Title" and page.lines[0].startswith("ab[31m word")
    assert len(page.lines) > 4 and max(map(len, page.lines)) <= 100
    assert len(text_page("https://a.example/", "", "x\n" * 50_000).lines) < 21_000


@pytest.mark.long
def test_text_page_takes_linear_time() -> None:
    for part in ("[", "[a](", "[a](<", '[a](b "', "\\[", "a", "[a](b(c)"):
        page = text_page("https://a.example/", "", part * (300_000 // len(part)))
        assert not page.links
    page = text_page("https://a.example/", "", "[x](y) " * 300_000)
    assert page.lines[-1] == "[the rest of the page is left out]" and len(page.links) > 200_000
    linked = text_page("https://a.example/", "", r'[a \[b\]](<c> "d") ![e](f) \[g](h) [i](j_(k))')
    assert linked.lines == [r"【0†a [b]】 [image: e] \[g](h) 【1†i】"]
    assert linked.links[1].url == "https://a.example/j_(k)"


async def test_extract_answer_size_is_bounded(browser: Browsing, site: str) -> None:
    deep = await browser("open", id=f"{site}/deep")
    assert "the rest of the page is left out" not in deep and "[[[[" in deep
    small = Browsing(BrowserServer(BrowserSettings(allow_private=OWN), max_extract_bytes=20))
    assert "too much text" in await small.fails("open", id=f"{site}/data")
    await small.builtin.close()


async def test_open_without_isolation_plain_text_only(site: str) -> None:
    settings = BrowserSettings(allow_private=OWN)
    browser = Browsing(BrowserServer(settings, isolation=Isolation("none", "", False)))
    for path in ("/list", "/paper.pdf"):
        assert "no isolation works" in await browser.fails("open", id=site + path)
    assert "<li>" in await browser("open", id=f"{site}/list", view_source=True)
    assert 'L1:  "a": [' in await browser("open", id=f"{site}/data")
    await browser.builtin.close()


def call(name: str, arguments: str) -> str:
    return f"<|channel|>analysis to=browser.{name} code<|message|>{arguments}<|call|>"


@pytest.mark.slow
def test_run_searches_reads_and_cites(
    agent: RunAgent, script: Callable[..., str], site: str, home: Path
) -> None:
    config = home / "config" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(f'[browser]\nsearxng = "{site}"\nallow_private = ["127.0.0.1/32"]\n')
    answer = "They live in the north 【1†L0-L3】 (see 【0†L4】), or so 【8†L1】."
    engine = script(
        call("search", '{"query":"fox"}'),
        call("open", '{"id":0}'),
        f"<|channel|>final<|message|>{answer}<|return|>",
    )
    ran = agent("run", "where do foxes live?", "--engine", engine, "--json-events")
    *calls, message = check(ran.events)["output"]
    assert [(call["server_label"], call["name"]) for call in calls] == [
        ("browser", "search"), ("browser", "open"),
    ]  # fmt: skip
    assert all(call["status"] == "completed" for call in calls)
    part = message["content"][0]
    assert part["text"] == answer
    assert [(a["title"], a["url"]) for a in part["annotations"]] == [
        ("On foxes", f"{site}/fox"), ("A list", f"{site}/list"),
    ]  # fmt: skip
    assert "browser.open" in ran.events[0]["tools"]


@pytest.mark.slow
def test_browser_offered_only_if_named_or_configured(
    agent: RunAgent, script: Callable[..., str], site: str
) -> None:
    engine = script(
        call("open", f'{{"id":"{site}/fox"}}'), "<|channel|>final<|message|>x<|return|>"
    )
    wrong = agent("run", "go", env={"AGENT_SEARXNG": "localhost:8888"})
    assert wrong.code == 2 and "browser.searxng must be an http address" in wrong.err
    ran = agent("run", "go", "--engine", engine, "--json-events")
    assert "not among those that --tools" in check(ran.events)["output"][0]["error"]["message"]
    ran = agent("run", "go", "--engine", engine, "--json-events", "--tools", "browser")
    error = check(ran.events)["output"][0]["error"]
    assert "127.0.0.1 is not a public address" in error["content"][0]["text"]
    engine = script(call("search", '{"query":"x"}'), "<|channel|>final<|message|>x<|return|>")
    ran = agent("run", "go", "--engine", engine, "--json-events", "--tools", "browser")
    error = check(ran.events)["output"][0]["error"]
    assert error["message"] == "no search is configured; open an address instead"


def test_browser_settings_parse_and_errors() -> None:
    read = BrowserSettings.parse
    assert read({}, {}) == BrowserSettings()
    assert read({"searxng": "http://a"}, {"AGENT_SEARXNG": "http://b"}).searxng == "http://b"
    for wrong, says in (
        ([], "must be a table"),
        ({"searx": "x"}, "no setting named searx"),
        ({"searxng": "localhost"}, "must be an http address"),
        ({"search": "finder"}, r"must be server\.tool"),
        ({"allow_private": "10.0.0.0/8"}, "must be a list"),
        ({"allow_private": ["10.0.0.1/8"]}, "is not a network"),
    ):
        with pytest.raises(ValueError, match=says):
            read(wrong, {})


def test_toolbox_does_not_import_browser_libraries() -> None:
    heavy = {"httpx2", "trafilatura", "pypdf", "lxml", "mcp"}
    code = "import sys, tools.factory; tools.factory.build_toolbox(); "
    code += f"print(*({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_browser_without_its_package_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    with pytest.raises(ConfigError, match=r"install it with: pipx inject agent-local trafilatura"):
        build_toolbox(ToolboxOptions(tools="all,browser"))
    build_toolbox(ToolboxOptions(tools="all"))
