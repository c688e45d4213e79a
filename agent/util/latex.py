"""LaTeX formulas as Unicode text, for terminals: ``\\frac{1}{2} x^2`` is ``1/2 x²``; and the rules by
which markdown-it-py reads them in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

MAX_CHARS, MAX_BRACES = 4_000, 200
"""A longer or deeper formula stays as it is."""
_SMALL = "0123456789+-=()abcdefghijklmnoprstuvwxyz βγδθφχ"
_SCRIPTS = {
    "^": str.maketrans(_SMALL, "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ ᵝᵞᵟᶿᵠᵡ"),
    "_": str.maketrans(
        "0123456789+-=()aehijklmnoprstuvx βγρφχ", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ ᵦᵧᵨᵩᵪ"
    ),
}
"""The characters that Unicode has above and below the line."""
_CLOSINGS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_SIGN = re.compile(r"\\[A-Za-z{},;:!% ]|(?<!\A)[\^_]|[=<>+]")
"""A sign of a formula; Markdown escapes brackets and other signs, too."""
_SHORT = re.compile(r"\s*[A-Za-z]\w?\s*")
"""One or two letters, which are a formula in brackets or dollars, but not in square brackets."""
_NAMES = re.compile(r"\\(?:text|math|operatorname|begin|end)\w*\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3}|`|\n\s*\n")
"""Never in a formula between single dollars, but for `_NAMES`: ``$HOME and $PATH``."""
_LINE_END = re.compile(r"[ \t]*[.,;]?[ \t]*$", re.MULTILINE)
_SIMPLE = re.compile(r"[^\W_]*[^\w\s]?|\(.*\)|[√∛∜][^\W_]+")
_PERCENT = re.compile(r"(?<!\\)%")
_NO_BRACKET = re.compile(r"\\(?:left|right)\s*\.")
_ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}


def formula_text(latex: str) -> str | None:
    """The formula as text; None where it cannot be read."""
    if len(latex) > MAX_CHARS or latex.count("{") > MAX_BRACES:
        return None
    from pylatexenc.latexwalker import LatexWalker, LatexWalkerError

    try:
        text = _PERCENT.sub(r"\\%", _NO_BRACKET.sub("", latex))  # no comment is meant
        walker = LatexWalker(text, latex_context=_macros(), tolerant_parsing=False)
        nodes, _, _ = walker.get_latex_nodes()
        text = _writer().nodelist_to_text(nodes)
    except (LatexWalkerError, RecursionError, ValueError):
        return None
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(filter(None, lines)) or None


@cache
def _macros() -> Any:
    """The macros that are read, with their arguments."""
    from pylatexenc.latexwalker import get_default_latex_context_db
    from pylatexenc.macrospec import std_macro

    context = get_default_latex_context_db()
    two = ("binom", "dbinom", "tbinom", "frac", "dfrac", "tfrac", "cfrac")
    one = ("pmod", "boxed", "operatorname", "tag", "ce", "boldsymbol", "bm")
    taking = {"{": one, "{{": (*two, "overset"), "[{": ("xrightarrow",)}
    macros = [std_macro(name, form) for form, names in taking.items() for name in names]
    context.add_context_category("formulas", macros=macros, prepend=True)
    return context


@cache
def _writer() -> Any:
    from pylatexenc import latex2text
    from pylatexenc.latexwalker import LatexCharsNode, LatexMacroNode

    class Writer(latex2text.LatexNodes2Text):  # type: ignore[misc]  # it has no types
        """Writes scripts and roots in Unicode, and macros that it does not know as they are."""

        def nodelist_to_text(self, nodelist: Sequence[Any]) -> str:
            text, script = "", ""
            for node in nodelist:
                if isinstance(node, LatexCharsNode):
                    pieces = list(node.chars)
                elif (
                    isinstance(node, LatexMacroNode)
                    and self.latex_context.get_macro_spec(node.macroname) is None
                ):
                    pieces = [f"\\{node.macroname} "]
                else:
                    pieces = [
                        self.node_to_text(node) + (getattr(node, "macro_post_space", "") and " ")
                    ]
                for piece in pieces:
                    if piece in ("^", "_"):
                        text, script = text + script, piece
                    elif script and piece.strip():
                        text, script = text.rstrip() + _script(piece.strip(), script), ""
                        text += " " if piece.endswith(" ") else ""
                    elif not script:
                        text += piece
            return text + script

    def arguments(node: Any, writer: Any) -> list[str]:
        given = node.nodeargd.argnlist if node.nodeargd else ()
        return [writer.nodelist_to_text([part]).strip() if part else "" for part in given]

    def fraction(node: Any, l2tobj: Any) -> str:
        above, below = arguments(node, l2tobj)[-2:]
        return f"{_in_parentheses(above)}/{_in_parentheses(below)}"

    def root(node: Any, l2tobj: Any) -> str:
        index, inner = arguments(node, l2tobj)[-2:]
        sign = _ROOTS.get(index) or f"{_script(index, '^')}√"
        return sign + _in_parentheses(inner)

    def binomial(node: Any, l2tobj: Any) -> str:
        return "C({}, {})".format(*arguments(node, l2tobj)[-2:])

    def modulus(node: Any, l2tobj: Any) -> str:
        return f"(mod {arguments(node, l2tobj)[-1]})"

    known: dict[str, Any] = {"sqrt": root, "pmod": modulus}
    known |= dict.fromkeys(("frac", "dfrac", "tfrac", "cfrac"), fraction)
    known |= dict.fromkeys(("binom", "dbinom", "tbinom"), binomial)
    known |= dict.fromkeys((",", ";", ":", " ", "quad", "qquad"), " ")
    known |= {"implies": "⟹", "iff": "⟺", "ne": "≠", "degree": "°", "neg": "¬", "land": "∧"}
    known |= {
        "lor": "∨",
        "det": "det",
        "|": "‖",
        "xrightarrow": "→",
        "tag": "(%s)",
        "overset": "%(2)s",
    }
    known |= dict.fromkeys(("boxed", "operatorname", "boldsymbol", "bm", "ce"), "%s")
    layout = (
        "! left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle textstyle limits nolimits"
    )
    known |= dict.fromkeys(layout.split(), "")
    context = latex2text.get_default_latex_context_db()
    specs = [latex2text.MacroTextSpec(name, simplify_repl=text) for name, text in known.items()]
    context.add_context_category("formulas", macros=specs, prepend=True)
    return Writer(latex_context=context, math_mode="text")


def _script(text: str, sign: str) -> str:
    table = _SCRIPTS[sign]
    if text == "∘" and sign == "^":
        return "°"
    if text in ("'", "′", "*", "†"):
        return text
    if all(ord(char) in table for char in text):
        return text.translate(table)
    return sign + (text if len(text) == 1 else f"({text})")


def _in_parentheses(text: str) -> str:
    return text if _SIMPLE.fullmatch(text) else f"({text})"


def read_formulas(parser: MarkdownIt) -> MarkdownIt:
    """Have the parser read formulas as text, but not in code. Prices, variables of a shell and escaped
    brackets have no sign of a formula: they are left to it."""
    parser.inline.ruler.before("escape", "formula", _read_inline)
    parser.block.ruler.before("fence", "formula", _read_block, {"alt": ["paragraph", "list"]})
    return parser


def _read_inline(state: StateInline, silent: bool) -> bool:
    source, start = state.src, state.pos
    opening = source[start : start + 2]
    if opening not in _CLOSINGS:
        opening = opening[:1]
        if opening != "$":
            return False
    begin = start + len(opening)
    end = source.find(closing := _CLOSINGS.get(opening, "$"), begin, begin + MAX_CHARS)
    latex = source[begin:end]
    is_short = opening != "\\[" and _SHORT.fullmatch(latex)
    if end < 0 or not (is_short or _SIGN.search(latex)):
        return False
    behind, before = end + len(closing), source[max(0, start - 1) : start]
    if before.isalnum() or before in ("'", '"', "$"):
        return False
    if opening == "$":
        is_prose = _WORD.search(_NAMES.sub("", latex)) or latex != latex.strip()
        next_char = source[behind : behind + 1]
        if is_prose or latex[-1] == "\\" or next_char.isalnum() or next_char == "$":
            return False
    if not silent:
        text = formula_text(latex) or source[start:behind]
        for number, line in enumerate(text.split("\n")):
            if number:
                state.push("hardbreak", "br", 0)
            state.push("text", "", 0).content = line
    state.pos = behind
    return True


def _read_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    source, begin = state.src, state.bMarks[first] + state.tShift[first]
    closing = _CLOSINGS.get(source[begin : begin + 2])
    if closing is None or closing == "\\)" or state.is_code_block(first):
        return False
    if silent and state.level:  # a paragraph of a list, which HTML does not separate from another
        return False
    end = source.find(closing, begin + 2, min(state.eMarks[last - 1], begin + MAX_CHARS))
    latex = source[begin + 2 : end]
    behind = _LINE_END.match(source, end + 2)
    if end < 0 or "\n\n" in latex or not _SIGN.search(latex) or behind is None:
        return False
    from markdown_it.token import Token

    if not silent:
        state.line = first + latex.count("\n") + 1
        state.push("paragraph_open", "p", 1).map = [first, state.line]
        inline = state.push("inline", "", 0)
        inline.map, inline.children = [first, state.line], []
        text = (formula_text(latex) or source[begin : end + 2]) + behind[0].strip()
        for number, line in enumerate(text.split("\n")):
            if number:
                inline.children.append(Token("hardbreak", "br", 0))
            inline.children.append(Token("text", "", 0, content=line))
        state.push("paragraph_close", "p", -1)
    return True
