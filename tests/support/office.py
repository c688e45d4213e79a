"""Small DOCX and XLSX files, written by hand."""

import io
import zipfile

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPES = "application/vnd.openxmlformats-officedocument"


def zipped(files: dict[str, str | bytes]) -> bytes:
    """A ZIP file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def relations(*targets: tuple[str, str]) -> str:
    """A file of relations; ``targets``: types and files, numbered from r1."""
    links = "".join(
        f'<Relationship Id="r{number}" Type="{RELATIONS}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>'


def _types(**parts: str) -> str:
    overrides = "".join(
        f'<Override PartName="{name}" ContentType="{_TYPES}.{kind}+xml"/>'
        for kind, name in parts.items()
    ).replace("_", ".")
    return (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Default Extension="rels" ContentType="{_PACKAGE.replace("http", "x")}"/>'
        f"{overrides}</Types>"
    )


def docx(body: str, *, head: str = "", further: dict[str, str | bytes] | None = None) -> bytes:
    """A DOCX with paragraphs and tables in XML; ``head``: of its XML, such as a DOCTYPE."""
    return zipped(
        {
            "[Content_Types].xml": _types(
                wordprocessingml_document_main="/word/document.xml",
                wordprocessingml_styles="/word/styles.xml",
                wordprocessingml_footnotes="/word/footnotes.xml",
                wordprocessingml_numbering="/word/numbering.xml",
            ),
            "_rels/.rels": relations(("officeDocument", "word/document.xml")),
            "word/_rels/document.xml.rels": relations(
                ("styles", "styles.xml"),
                ("footnotes", "footnotes.xml"),
                ("numbering", "numbering.xml"),
            ),
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}">'
            + "".join(
                f'<w:style w:type="paragraph" w:styleId="{name.replace(" ", "")}">'
                f'<w:name w:val="{name}"/></w:style>'
                for name in ("Title", "heading 1", "heading 2")
            )
            + "</w:styles>",
            "word/footnotes.xml": f'<w:footnotes xmlns:w="{WORD}"><w:footnote w:id="2">'
            "<w:p><w:r><w:t>See the annex.</w:t></w:r></w:p></w:footnote></w:footnotes>",
            "word/numbering.xml": f'<w:numbering xmlns:w="{WORD}">'
            + "".join(
                f'<w:abstractNum w:abstractNumId="{number}">'
                + "".join(
                    f'<w:lvl w:ilvl="{level}"><w:numFmt w:val="{kind}"/></w:lvl>'
                    for level in (0, 1)
                )
                + "</w:abstractNum>"
                for number, kind in ((0, "bullet"), (1, "decimal"))
            )
            + "".join(
                f'<w:num w:numId="{number + 1}"><w:abstractNumId w:val="{number}"/></w:num>'
                for number in (0, 1)
            )
            + "</w:numbering>",
            "word/document.xml": f'{head}<w:document xmlns:w="{WORD}" xmlns:r="{RELATIONS}">'
            f"<w:body>{body}</w:body></w:document>",
            **(further or {}),
        }
    )


def paragraph(text: str, style: str = "", listed: tuple[int, int] | None = None) -> str:
    """A paragraph; ``listed``: the list (1 bullets, 2 numbers) and the level of an item."""
    about = f'<w:pStyle w:val="{style}"/>' if style else ""
    if listed:
        number, level = listed
        about += f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
    return f"<w:p><w:pPr>{about}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def table(*rows: list[str]) -> str:
    """A table of texts."""
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def text_cell(text: str) -> str:
    """A cell with a text."""
    return f'<c t="inlineStr"><is><t>{text}</t></is></c>'


def xlsx(*sheets: tuple[str, str, str], head: str = "") -> bytes:
    """An XLSX; ``sheets``: names, states (``visible`` or ``hidden``) and rows in XML."""
    names = "".join(
        f'<sheet name="{name}" sheetId="{number}" state="{state}" r:id="r{number}"/>'
        for number, (name, state, _) in enumerate(sheets, 1)
    )
    files = [f"worksheets/sheet{number}.xml" for number in range(1, len(sheets) + 1)]
    links = [*(("worksheet", file) for file in files), ("styles", "styles.xml")]
    return zipped(
        {
            "[Content_Types].xml": _types(spreadsheetml_sheet_main="/xl/workbook.xml"),
            "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
            "xl/_rels/workbook.xml.rels": relations(*links),
            "xl/workbook.xml": f'<workbook xmlns="{SHEET}" xmlns:r="{RELATIONS}">'
            f"<sheets>{names}</sheets></workbook>",
            # The second format is a date.
            "xl/styles.xml": f'<styleSheet xmlns="{SHEET}"><cellXfs><xf numFmtId="0"/>'
            '<xf numFmtId="14"/></cellXfs></styleSheet>',
            **{
                f"xl/{file}": f'{head}<worksheet xmlns="{SHEET}"><sheetData>{rows}</sheetData>'
                "</worksheet>"
                for file, (_, _, rows) in zip(files, sheets, strict=True)
            },
        }
    )
