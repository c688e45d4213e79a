"""Extracts the text of a page; run as a script in the sandbox, since a page may attack its parser.
Reads from stdin a line of JSON (``{"url", "kind", "charset", "source": bool, "confined": bool}``) and
the page's bytes; unconfined, it refuses HTML and PDF. Writes ``{"title", "text"}`` (links are
``[text](address)``) or ``{"error"}``. Imports nothing of ours."""

import io
import json
import sys
from typing import Any

MAX_PDF_PAGES = 200
MAX_TEXT_CHARS = 2_100_000
"""More than a page can have for the model (``page.MAX_PAGE_CHARS``)."""
UNCONFINED_ERROR = "no isolation works on this machine, and HTML and PDF are read only within one"
SHORT_TEXT_CHARS = 500
"""With less main text than this the page may have none, such as a page of links."""
BLOCK_TAGS = """address article aside blockquote br dd div dl dt footer form h1 h2 h3 h4 h5 h6
header hr li main nav ol p pre section table td th tr ul"""


def main() -> None:
    about = json.loads(sys.stdin.buffer.readline())
    try:
        result = extract(about, sys.stdin.buffer.read())
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"[:300]}
    result = {key: text[:MAX_TEXT_CHARS] for key, text in result.items()}
    sys.stdout.buffer.write(json.dumps(result, ensure_ascii=False).encode("utf-8", "replace"))


def extract(about: dict[str, Any], data: bytes) -> dict[str, str]:
    """Return ``title`` and ``text`` of a page, or ``error``."""
    kind = about["kind"]
    if kind == "application/pdf":
        return extract_pdf(data) if about["confined"] else {"error": UNCONFINED_ERROR}
    text = decode(data, about["charset"])
    is_html = "html" in kind or text.lstrip()[:200].lower().startswith("<!doctype h")
    if about["source"] or not is_html:
        if "json" in kind and not about["source"]:
            text = indent_json(text)
        return {"title": "", "text": text}
    if not about["confined"]:
        return {"error": UNCONFINED_ERROR}
    return extract_html(data if about["charset"] is None else text, about["url"])


def indent_json(text: str) -> str:
    """Indent JSON; returns the text unchanged if it is not JSON or would become too large."""
    parts: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(json.loads(text)):
            parts.append(part)
            size += len(part)
            if size > MAX_TEXT_CHARS:
                return text
    except (ValueError, RecursionError):
        return text
    return "".join(parts)


def decode(data: bytes, charset: str | None) -> str:
    """Decode bytes; as UTF-8 if the charset is missing or unknown."""
    try:
        return data.decode(charset or "utf-8", "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def extract_pdf(data: bytes) -> dict[str, str]:
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(data))
    title = str((reader.metadata and reader.metadata.title) or "")
    count = len(reader.pages)
    parts: list[str] = []
    size = 0
    for number in range(1, min(count, MAX_PDF_PAGES) + 1):
        parts.append(f"[page {number} of {count}]\n{reader.pages[number - 1].extract_text()}")
        size += len(parts[-1])
        if size > MAX_TEXT_CHARS:
            break
    return {"title": title, "text": "\n\n".join(parts)}


def extract_html(page: str | bytes, url: str) -> dict[str, str]:
    """Extract a page's main text as Markdown; all of its text if it has hardly any main text."""
    import lxml.html
    import trafilatura

    options: dict[str, Any] = {"include_links": True, "include_tables": True, "favor_recall": True}
    text = trafilatura.extract(page, url=url, output_format="markdown", **options) or ""
    tree = lxml.html.fromstring(page)
    title = " ".join((tree.findtext(".//title") or "").split())
    if len(text) < SHORT_TEXT_CHARS and len(all_text := extract_all(tree, url)) > 2 * len(text):
        text = all_text
    return {"title": title, "text": text}


def extract_all(tree: Any, url: str) -> str:
    """Return all the text that a page shows, for a page that is mostly links."""
    tree.make_links_absolute(url, resolve_base_href=True, handle_failures="ignore")
    for element in list(tree.iter("script", "style", "noscript", "template", "svg", "head")):
        element.drop_tree()
    for link in tree.iter("a"):
        words = " ".join(link.text_content().split()).replace("[", "(").replace("]", ")")
        address = link.get("href", "")
        if words and address.startswith(("http://", "https://")):
            for child in list(link):
                link.remove(child)
            link.text = f"[{words}](<{address}>)"
    for block in tree.iter(*BLOCK_TAGS.split()):
        block.tail = "\n" + (block.tail or "")
        block.text = "\n" + (block.text or "")
    lines = (" ".join(line.split()) for line in tree.text_content().splitlines())
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    main()
