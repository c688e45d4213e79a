"""The page's files: who gets them, and what protects them."""

import re

from agent.server.page.routes import FILES, FOLDER
from tests.support.endpoint import API_KEY, Serve
from tests.support.scripts import HELLO

BROWSER = {"accept": "text/html,*/*;q=0.8"}


async def test_browser_gets_the_page_and_a_program_the_endpoints(serve: Serve) -> None:
    served = await serve(HELLO, api_key=API_KEY, tools="python")
    page = await served.get("/", headers=BROWSER)
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"<script>|style=|\son\w+=|https?://", page.text)
    assert (await served.get("/")).json()["status"] == "ok"
    for path, kind in FILES.items():
        answer = await served.get(path)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
    assert (await served.get("/page/servers")).status_code == 401
    key = {"authorization": f"Bearer {API_KEY}"}
    assert (await served.get("/page/servers", headers=key)).json() == {"data": ["code_interpreter"]}


async def test_no_page_leaves_the_endpoints(serve: Serve) -> None:
    served = await serve(HELLO, server={"page": False})
    assert (await served.get("/", headers=BROWSER)).json()["status"] == "ok"
    assert (await served.get("/page/app.js")).status_code == 404


def test_scripts_make_no_markup_of_text() -> None:
    script = (FOLDER / "app.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)
