"""DOCX and XLSX are read as Markdown; those that attack their reader are refused in a sentence."""

import io
import time
import zipfile
from pathlib import Path

import pytest

from agent.conversation.attachments import read_attachment
from agent.errors import UserError
from tests.support.office import WORD, docx, paragraph, table, text_cell, xlsx, zipped
from tools.builtin.browser.extract import MAX_DOCUMENT_CHARS, MAX_ROWS
from tools.builtin.browser.extraction import DOCUMENT_TIMEOUT_SECONDS, read_document

ENTITIES = "".join(
    f'<!ENTITY e{number} "{f"&e{number - 1};" * 10 if number else "x" * 100}">'
    for number in range(10)
)
CHANGED = (
    "<w:p><w:r><w:t>It is </w:t></w:r>"
    '<w:ins w:id="1" w:author="a"><w:r><w:t>new</w:t></w:r></w:ins>'
    '<w:del w:id="2" w:author="a"><w:r><w:delText>old</w:delText></w:r></w:del></w:p>'
)
NOTED = "<w:p><w:r><w:t>Noted</w:t></w:r><w:r><w:footnoteReference w:id='2'/></w:r></w:p>"
MERGED = (
    "<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr><w:p><w:r><w:t>wide</w:t></w:r>"
    f"</w:p></w:tc><w:tc>{paragraph('end')}</w:tc></w:tr></w:tbl>"
)


async def text_of(data: bytes) -> str:
    read = await read_document(data)
    assert not read.problem
    return read.text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (paragraph("A") + paragraph("B"), "A\n\nB"),
        (paragraph("Report", "Title") + paragraph("Part", "heading2"), "# Report\n\n## Part"),
        (
            paragraph("one", listed=(1, 0))
            + paragraph("inner", listed=(1, 1))
            + paragraph("two", listed=(1, 0)),
            "- one\n   - inner\n- two",
        ),
        (
            paragraph("a", listed=(2, 0)) + paragraph("b", listed=(2, 0)) + paragraph("End"),
            "1. a\n2. b\n\nEnd",
        ),
        (table(["a|b", "c"], ["d", ""]), "| a\\|b | c |\n| --- | --- |\n| d |  |"),
        ("<w:tbl></w:tbl><w:tbl><w:tr></w:tr></w:tbl>" + paragraph("End"), "End"),
        (table(["a"], [""], ["b"]), "| a |\n| --- |\n| b |"),
        (MERGED, "| wide |  | end |\n| --- | --- | --- |"),
        (CHANGED, "It is new"),
        (NOTED, "Noted[1]\n\n[1] See the annex."),
    ],
    ids=[
        "paragraphs", "headings", "bullets", "numbers", "table", "no rows", "blank row", "merged",
        "changes", "notes",
    ],
)  # fmt: skip
async def test_docx_is_read_as_markdown(body: str, text: str) -> None:
    assert await text_of(docx(body)) == text


async def test_sheets_are_read_as_tables_below_their_names() -> None:
    first = (
        f"<row>{text_cell('when')}{text_cell('sum')}{text_cell('a|b')}</row>"
        '<row><c s="1"><v>45418</v></c><c><f>1+2</f><v>3</v></c><c><v>1.5</v></c></row>'
    )
    second = f"<row>{text_cell('secret')}</row>"
    data = xlsx(("Sales", "visible", first), ("Notes", "hidden", second), ("None", "visible", ""))
    assert await text_of(data) == (
        "## Sales\n\n| when | sum | a\\|b |\n| --- | --- | --- |\n| 2024-05-06 | 3 | 1.5 |\n\n"
        "## Notes (hidden)\n\n| secret |\n| --- |"
    )


async def test_million_rows_are_cut_with_a_note() -> None:
    started = time.monotonic()
    text = await text_of(xlsx(("Long", "visible", "<row><c><v>7</v></c></row>" * 1_000_000)))
    assert time.monotonic() - started < 2 * DOCUMENT_TIMEOUT_SECONDS
    assert text.endswith(f"\n[the first {MAX_ROWS:,} of 1,000,000 rows]")
    assert text.count("| 7 |") == MAX_ROWS


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("7", "7"), ("-0.5", "-0.5"), ("0.30000000000000004", "0.3"), ("1e300", "1e+300"),
        ("123456789012345", "123456789012345"),
    ],
)  # fmt: skip
async def test_number_of_a_sheet_has_the_digits_that_sheets_keep(number: str, text: str) -> None:
    data = xlsx(("A", "visible", f"<row><c><v>{number}</v></c></row>"))
    assert await text_of(data) == f"## A\n\n| {text} |\n| --- |"


async def test_text_that_is_too_long_ends_with_a_note() -> None:
    cell = text_cell("x" * 30_000)
    text = await text_of(
        xlsx(*[(f"S{number}", "visible", f"<row>{cell}</row>" * 20) for number in range(6)])
    )
    assert text.endswith(f"\n\n[the first {MAX_DOCUMENT_CHARS:,} characters]")
    assert len(text) < MAX_DOCUMENT_CHARS + 40 and "## S3" in text and "## S4" not in text


def bomb() -> bytes:
    """A third of a GB of zeros, in a file a thousandth as long."""
    out = io.BytesIO(docx(""))
    block = bytes(16 << 20)
    with (
        zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("word/zeros.xml", "w", force_zip64=True) as stream,
    ):
        for _ in range(20):
            stream.write(block)
    return out.getvalue()


def lying_bomb() -> bytes:
    """The same where the archive says that the file is small."""
    data = docx("<!--" + " " * (400 << 20) + "-->")
    size = 400 << 20
    at = data.rindex(b"word/document.xml") - 46 + 24
    # The directory's size of the last file; the reader of ZIP files stops there.
    assert int.from_bytes(data[at : at + 4], "little") > size
    return data[:at] + (1000).to_bytes(4, "little") + data[at + 4 :]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (docx(paragraph("x" * 5000))[:-300], "The document is damaged"),
        (b"PK\x03\x04", "The document is damaged"),
        (docx(paragraph(""))[:200] + docx(paragraph("x"))[200:-40] + b"\0" * 40, "is damaged"),
        (docx(paragraph(" ")), "The document has no text"),
        (xlsx(("A", "visible", "")), "The document has no text"),
        (zipped({"a.txt": "x"}), "The file is an archive, and no DOCX or XLSX"),
        (zipped({"[Content_Types].xml": "x"}), "The file is an archive, and no DOCX or XLSX"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "has a password or an old format"),
        (docx(paragraph("&e9;"), head=f"<!DOCTYPE x [{ENTITIES}]>"), "The document is damaged"),
        (docx("<w:p>" * 100_000), "The document is damaged"),
        (
            xlsx(("Far", "visible", '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>' 
                  + '<row r="1"><c r="A1"><v>1</v></c></row>')),
            "too much time or memory",
        ),
        (bomb(), "too much time or memory"),
        (lying_bomb(), "The document is damaged"),
    ],
    ids=[
        "cut", "magic", "directory", "blank", "no rows", "archive", "no types", "ole", "entities",
        "open tags", "far cell", "bomb", "lying bomb",
    ],
)  # fmt: skip
async def test_document_that_cannot_be_read_is_refused_in_a_sentence(
    data: bytes, problem: str
) -> None:
    read = await read_document(data)
    assert problem in read.problem and read.problem.endswith(".") and not read.text


async def test_files_outside_a_document_are_not_read() -> None:
    head = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    assert "root" not in (await read_document(docx(paragraph("A &e; B"), head=head))).text
    link = f'<w:altChunk xmlns:w="{WORD}" r:id="../../../etc/passwd"/>'
    further: dict[str, str | bytes] = {"../../../../tmp/evil.xml": "evil"}
    assert await text_of(docx(paragraph("Good") + link, further=further)) == "Good"


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"plain", "plain"), (b"", ""), (docx(paragraph("Hello")), "Hello")],
    ids=["text", "empty", "docx"],
)
@pytest.mark.parametrize("name", ["x.docx", "x.txt"])
def test_file_is_read_by_its_content_and_not_its_name(
    tmp_path: Path, name: str, data: bytes, text: str
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    assert read_attachment(file, f"@{name}") == text


def test_old_document_cannot_be_attached(tmp_path: Path) -> None:
    file = tmp_path / "x.doc"
    file.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))
    with pytest.raises(UserError, match=r"@x\.doc cannot be attached\. The file has a password or"):
        read_attachment(file, "@x.doc")
