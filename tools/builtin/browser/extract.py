"""Extracts the text of a page or document; run as a script in the sandbox: it may attack its parser.
Reads from stdin a line of JSON (``{"url", "kind", "charset", "source": bool, "confined": bool}``) and
the page's bytes; unconfined, it refuses HTML and documents. Writes ``{"title", "text"}`` (links are
``[text](address)``) or ``{"error"}``. Imports nothing of ours."""

import io
import json
import re
import sys
import zipfile
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

MAX_PDF_PAGES = 200
MAX_ROWS = 10_000
"""Rows that are read of a table or sheet."""
MAX_SPAN = 100
"""Columns of a merged cell that are kept."""
MAX_UNPACKED_BYTES, MAX_TYPES_BYTES = 256 << 20, 1 << 20
"""Sizes of a document's files, and of the one that says which document it is."""
WORD_TYPE = re.compile(rb"(wordprocessingml\.\w+|ms-word\.[\w.]+)\.main\+xml")
EXCEL_TYPE = re.compile(
    rb"(spreadsheetml\.(sheet|template)|ms-excel\.(sheet|template)[\w.]+)\.main"
)
HEADING_TAGS = ("h1", "h2", "h3", "h4", "h5", "h6")
MAX_TEXT_CHARS = 2_100_000
"""More than a page can have for the model (``page.MAX_PAGE_CHARS``)."""
MAX_DOCUMENT_CHARS = 2_000_000
"""Longest text of a DOCX or XLSX; a note says where it ends."""
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
    if kind == "application/zip":
        return extract_office(data) if about["confined"] else {"error": UNCONFINED_ERROR}
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


def extract_office(data: bytes) -> dict[str, str]:
    """Return the text of a DOCX or XLSX as Markdown, or an error for any other archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > MAX_UNPACKED_BYTES:
            raise MemoryError
        try:
            with archive.open("[Content_Types].xml") as stream:
                types = stream.read(MAX_TYPES_BYTES)
        except KeyError:
            types = b""
    if WORD_TYPE.search(types):
        text = extract_docx(data)
    elif EXCEL_TYPE.search(types):
        text = extract_xlsx(data)
    else:
        return {"error": "UnknownArchive"}
    if len(text) > MAX_DOCUMENT_CHARS:
        text = f"{text[:MAX_DOCUMENT_CHARS]}\n\n[the first {MAX_DOCUMENT_CHARS:,} characters]"
    return {"title": "", "text": text}


def extract_docx(data: bytes) -> str:
    import mammoth

    page = mammoth.convert_to_html(
        io.BytesIO(data),
        style_map="p[style-name='Title'] => h1:fresh",
        convert_image=mammoth.images.img_element(lambda image: {}),
    )
    parser = MarkdownParser()
    parser.feed(page.value)
    parser.close()
    parser.end_block()
    return "\n".join(parser.lines).strip()


def extract_xlsx(data: bytes) -> str:
    import python_calamine

    book = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    parts: list[str] = []
    size = 0
    for about in book.sheets_metadata:
        if about.typ != python_calamine.SheetTypeEnum.WorkSheet:
            continue
        sheet = book.get_sheet_by_name(about.name)
        rows = [[cell_text(cell) for cell in row] for row in sheet.to_python(nrows=MAX_ROWS)]
        if table := markdown_table(rows, sheet.height):
            is_visible = about.visible == python_calamine.SheetVisibleEnum.Visible
            name = " ".join(about.name.split()) + ("" if is_visible else " (hidden)")
            parts.append(f"## {name}\n\n{table}")
            size += len(table)
        if size > MAX_DOCUMENT_CHARS:
            break
    return "\n\n".join(parts)


def cell_text(cell: object) -> str:
    """The text of a sheet's cell; every number in a sheet is a float, of 15 digits at most."""
    return f"{cell:.15g}" if isinstance(cell, float) else str(cell)


def markdown_table(rows: list[list[str]], count: int) -> str:
    """Format rows, of ``count``, as a Markdown table with a head; blank rows are left out."""
    rows = [row for row in rows[:MAX_ROWS] if any(map(str.strip, row))]
    width = max(map(len, rows), default=0)
    lines = []
    for row in rows:
        cells = (" ".join(cell.split()).replace("|", "\\|") for cell in row)
        lines.append(f"| {' | '.join(cells)}{' |' * (width - len(row))} |")
    if lines:
        lines.insert(1, "|" + " --- |" * width)
    if count > MAX_ROWS:
        lines.append(f"\n[the first {MAX_ROWS:,} of {count:,} rows]")
    return "\n".join(lines)


class MarkdownParser(HTMLParser):
    """Turns the HTML that mammoth writes into Markdown: headings, lists, tables, links, footnotes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._text: list[str] = []
        self._prefix = ""
        self._lists: list[int | None] = []
        """Numbers of the last items; None in a list without numbers."""
        self._rows: list[list[str]] = []
        self._tables = 0
        """Depth; a table in a table's cell is text of the cell."""
        self._further = 0
        """Columns of a table's cell beyond its first."""
        self._address = ""

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        names = {name: value or "" for name, value in attrs}
        self._text += [" "] if tag in {"br", "p", "li", "tr", "td", "th"} else []
        if tag == "a":
            self._address = names.get("href", "")
        elif tag == "table":
            self.end_block()
            self._tables += 1
        elif tag == "tr" and self._tables == 1:
            self._rows.append([])
        elif tag in {"td", "th"} and self._tables == 1:
            self._text = []
            span = names.get("colspan", "")
            self._further = min(int(span), MAX_SPAN) - 1 if span.isdecimal() else 0
        elif self._tables:
            return
        elif tag in HEADING_TAGS:
            self._prefix = "#" * int(tag[1]) + " "
        elif tag in {"ul", "ol"}:
            self.end_block()
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            mark = "-"
            if (number := self._lists[-1]) is not None:
                self._lists[-1] = number = number + 1
                is_note = names.get("id", "").startswith(("footnote-", "endnote-"))
                mark = f"[{number}]" if is_note else f"{number}."
            self._prefix = "   " * (len(self._lists) - 1) + mark + " "

    def handle_data(self, data: str) -> None:
        if not self._address.startswith(("#footnote-ref", "#endnote-ref")):
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            if self._address.startswith(("http://", "https://", "mailto:")):
                self._text.append(f" (<{self._address}>)")
            self._address = ""
        elif tag in {"td", "th"} and self._tables == 1:
            self._rows[-1] += ["".join(self._text), *[""] * self._further]
            self._text = []
        elif tag == "table":
            self._tables -= 1
            if not self._tables:
                rows, self._rows = self._rows, []
                self.lines += [markdown_table(rows, len(rows)), ""]
        elif tag in {"p", "li", *HEADING_TAGS} and not self._tables:
            self.end_block()
        elif tag in {"ul", "ol"} and not self._tables:
            self._lists.pop()
            self.lines += [] if self._lists else [""]

    def end_block(self) -> None:
        """Add the block that ends here; in a table, its text is the cell's."""
        if self._tables:
            return
        if text := " ".join("".join(self._text).split()):
            self.lines.append(self._prefix + text)
            self.lines += [] if self._lists else [""]
            self._prefix = ""
        self._text = []


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
