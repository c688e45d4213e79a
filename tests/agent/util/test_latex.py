"""Formulas in Markdown as Unicode text; prose with currency signs stays as it is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agent.util.latex import MAX_CHARS, formula_text, read_formulas

PROSE = Path(__file__).parents[2] / "data" / "prose_with_dollars.txt"
"""Lines of prose, commands and tables with currency signs and variables; none has a formula."""
WITH_FORMULAS = PROSE.with_name("formulas_in_prose.txt")
"""Lines of answers with formulas; whoever wrote the two files had not seen the rules."""
FORMULAS = {
    r"\pi r^2": "π r²",
    r"\frac{12}{34} \times x^{2} = \sqrt{2}": "12/34 × x² = √2",
    r"\sum_{i=1}^{n} i^2 = \frac{n(n+1)(2n+1)}{6}": "∑ᵢ₌₁ⁿ i² = (n(n+1)(2n+1))/6",
    r"x_{1}, x_{2}, \dots, x_{n+1}": "x₁, x₂, …, xₙ₊₁",
    r"\alpha \leq \beta \neq \gamma": "α ≤ β ≠ γ",
    r"\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}": "∫₀^∞ e^(-x²) dx = √π/2",
    r"\mathbb{R}^n \to \mathbb{R}": "ℝⁿ → ℝ",
    r"\text{area} = 3 \cdot 4": "area = 3 · 4",
    r"\left(\frac{a+b}{c}\right)^{2}": "((a+b)/c)²",
    r"\lim_{x \to 0} \frac{\sin x}{x} = 1": "lim_(x → 0) (sin x)/x = 1",
    r"\boxed{42}": "42",
    r"a \equiv b \pmod{n}": "a ≡ b (mod n)",
    r"\binom{n}{k}": "C(n, k)",
    r"\sqrt[3]{x+1} + \sqrt[n]{2}": "∛(x+1) + ⁿ√2",
    r"90^\circ, 60^{\circ}": "90°, 60°",
    r"x' + A^T + x_{i}^{2}": "x' + A^T + xᵢ²",
    r"x \implies y \iff z \ne \infty": "x ⟹ y ⟺ z ≠ ∞",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}": "[ 1 2; 3 4 ]",
    r"\begin{aligned} a &= b \\ c &= d \end{aligned}": "a = b\nc = d",
    r"\tfrac12 + \frac{1}{2}": "1/2 + 1/2",
    r"50% + 10\% + \$5": "50% + 10% + $5",
    r"\unknown{x}": r"\unknown x",
    "a^": "a^",
    "a^^b": "a^ᵇ",
}


@pytest.mark.parametrize("latex", FORMULAS)
def test_formula_text(latex: str) -> None:
    assert formula_text(latex) == FORMULAS[latex]


@pytest.mark.parametrize(
    "latex", [r"\frac{1", "}", "{" * 201, "x" * (MAX_CHARS + 1), "", r"\left("]
)
def test_formula_that_cannot_be_read(latex: str) -> None:
    assert formula_text(latex) in (None, "(")


@given(st.text(alphabet="\\{}[]()^_$& abfrcsqt\n%12", max_size=60))
def test_formula_text_never_fails(latex: str) -> None:
    assert formula_text(latex) != ""


def html(text: str) -> str:
    return str(read_formulas(MarkdownIt("gfm-like", {"html": False})).render(text)).strip()


def plain(text: str) -> str:
    return str(MarkdownIt("gfm-like", {"html": False}).render(text)).strip()


@pytest.mark.parametrize(
    ("markdown", "rendered"),
    [
        (r"The area is \(\pi r^2\).", "<p>The area is π r².</p>"),
        (r"$E = mc^2$, $n$ and $$x^2$$", "<p>E = mc², n and x²</p>"),
        (r"\[ x^2 \]", "<p>x²</p>"),
        (
            "Then\n\\[\na\n- b\n= c\n\\]\nso",
            "<p>Then</p>\n<p>a<br />\n- b<br />\n= c</p>\n<p>so</p>",
        ),
        ("$$\n\\frac{1}{2}\n$$,\nso", "<p>1/2,</p>\n<p>so</p>"),
        ("- \\[ x^2 \\]\n- $y_1$", "<ul>\n<li>x²</li>\n<li>y₁</li>\n</ul>"),
        ("1. so\n   \\[\n   x^2\n   \\]", "<ol>\n<li>so\nx²</li>\n</ol>"),
        (r"**bold $a_1$**", "<p><strong>bold a₁</strong></p>"),
        (r"Unreadable: \( \frac{1 \)", r"<p>Unreadable: \( \frac{1 \)</p>"),
        (r"$a < b$ and \(<b>x^2\)", "<p>a &lt; b and &lt;b&gt;x²</p>"),
    ],
)
def test_formulas_in_markdown(markdown: str, rendered: str) -> None:
    assert html(markdown) == rendered


@pytest.mark.parametrize(
    "markdown",
    [
        "`$x^2$` and ``\\(x^2\\)``",
        "```\n$x^2$ \\(y^2\\)\n\\[ z^2 \\]\n```",
        "    \\[ x^2 \\]",
        r"see \(below\), array\[0\], \[1\](x) and \[a b\]",
        "$HOME/bin:$PATH, $FOO_BAR/$BAZ and ${A_B}/$C",
        "$5 = 4 EUR, 5$ = 6$ and US$5–US$10",
        r"an open \( x^2, an open $x^2 and \[ y",
        "```\nopen $x^2$",
        r"\\(x^2\\) is escaped twice",
    ],
)
def test_markdown_without_formulas_is_left_alone(markdown: str) -> None:
    assert html(markdown) == plain(markdown)


def test_prose_with_currency_signs_is_left_alone() -> None:
    lines = PROSE.read_text().splitlines()
    assert len(lines) >= 200
    assert [line for line in lines if html(line) != plain(line)] == []


def test_formulas_in_prose_are_read() -> None:
    lines = WITH_FORMULAS.read_text().splitlines()
    unread = [line for line in lines if "\\" in html(line) or "$" in html(line)]
    assert len(lines) == 120 and len(unread) <= 12, unread


def test_many_open_formulas_take_linear_time() -> None:
    text = "\\( $ \\[ " * 20_000
    assert html(text) == plain(text)
