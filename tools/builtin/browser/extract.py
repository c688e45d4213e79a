"""The text of what was fetched; run in the sandbox, since nobody knows what a page holds.

Reads from stdin a line of JSON (``{"url", "kind", "charset", "source": bool, "confined": bool}``) and
the bytes; what only a confined process may read is refused to any other. Writes
``{"title", "text"}`` or ``{"error"}`` as JSON. Links in the text are ``[text](address)``. Stands alone,
imports nothing of ours.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

PAGES = 200
"""Of a PDF."""
MAX_TEXT = 2_100_000
"""Characters; more than a page is shown with."""
UNCONFINED = "no isolation works on this machine, and HTML and PDF are read only within one"
SHORT = 500
"""Characters: so little main text may mean that the page is none of one main text."""
BLOCKS = (
    "address article aside blockquote br dd div dl dt footer form h1 h2 h3 h4 h5 h6 header hr li"
)
BLOCKS += " main nav ol p pre section table td th tr ul"


def main() -> None:
    about = json.loads(sys.stdin.buffer.readline())
    try:
        found = extract(about, sys.stdin.buffer.read())
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"[:300]}
    found = {key: text[:MAX_TEXT] for key, text in found.items()}
    sys.stdout.buffer.write(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))


def extract(about: dict[str, Any], data: bytes) -> dict[str, str]:
    kind = about["kind"]
    if kind == "application/pdf":
        return pdf(data) if about["confined"] else {"error": UNCONFINED}
    text = decoded(data, about["charset"])
    if about["source"] or not (
        "html" in kind or text.lstrip()[:200].lower().startswith("<!doctype h")
    ):
        if "json" in kind and not about["source"]:
            text = indented(text)
        return {"title": "", "text": text}
    if not about["confined"]:
        return {"error": UNCONFINED}
    return html(data if about["charset"] is None else text, about["url"])


def indented(text: str) -> str:
    """JSON in lines; as it is where it is none, or would become too large."""
    parts: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(json.loads(text)):
            parts.append(part)
            size += len(part)
            if size > MAX_TEXT:
                return text
    except (ValueError, RecursionError):
        return text
    return "".join(parts)


def decoded(data: bytes, charset: str | None) -> str:
    try:
        return data.decode(charset or "utf-8", "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def pdf(data: bytes) -> dict[str, str]:
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(data))
    title = str((reader.metadata and reader.metadata.title) or "")
    count = len(reader.pages)
    parts: list[str] = []
    size = 0
    for number in range(1, min(count, PAGES) + 1):
        parts.append(f"[page {number} of {count}]\n{reader.pages[number - 1].extract_text()}")
        size += len(parts[-1])
        if size > MAX_TEXT:
            break
    return {"title": title, "text": "\n\n".join(parts)}


def html(page: str | bytes, url: str) -> dict[str, str]:
    import lxml.html
    import trafilatura

    text = trafilatura.extract(
        page,
        url=url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        favor_recall=True,
    )
    tree = lxml.html.fromstring(page)
    title = " ".join((tree.findtext(".//title") or "").split())
    text = text or ""
    if len(text) < SHORT and len(whole := everything(tree, url)) > 2 * len(text):
        text = whole
    return {"title": title, "text": text}


def everything(tree: Any, url: str) -> str:
    """All that a page shows, for a page that is mostly links."""
    tree.make_links_absolute(url, resolve_base_href=True, handle_failures="ignore")
    for gone in list(tree.iter("script", "style", "noscript", "template", "svg", "head")):
        gone.drop_tree()
    for link in tree.iter("a"):
        words = " ".join(link.text_content().split()).replace("[", "(").replace("]", ")")
        address = link.get("href", "")
        if words and address.startswith(("http://", "https://")):
            for child in list(link):
                link.remove(child)
            link.text = f"[{words}](<{address}>)"
    for block in tree.iter(*BLOCKS.split()):
        block.tail = "\n" + (block.tail or "")
        block.text = "\n" + (block.text or "")
    lines = (" ".join(line.split()) for line in tree.text_content().splitlines())
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    main()
