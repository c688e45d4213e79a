"""Joins screenshots of the app to one animated picture, which runs wherever an SVG is shown."""

import re
from collections.abc import Sequence
from itertools import accumulate

_RULE = re.compile(r"^\s*\.terminal-\d+-(r\d+) \{ (.*?) \}$", re.MULTILINE)
_SCREEN = re.compile(r'(<g transform="[^"]*" clip-path="[^"]*">)(.*)(</g>\s*</svg>\s*)$', re.DOTALL)


def film(pictures: Sequence[str], seconds: Sequence[float]) -> str:
    """Return an SVG that shows each of the pictures for so many seconds, again and again.

    They are `App.export_screenshot`'s, all of one size. Where nothing moves (a printout, a reader who
    wants no motion), the last picture shows.
    """
    total = sum(seconds)
    styles: dict[str, str] = {}
    frames, motion = list[str](), list[str]()
    for number, (picture, end) in enumerate(zip(pictures, accumulate(seconds), strict=True)):
        start = end - seconds[number]
        names = {
            name: styles.setdefault(style, f"s{len(styles)}")
            for name, style in _RULE.findall(picture)
        }
        screen = _SCREEN.search(_unify_ids(picture))
        assert screen is not None, "this is no screenshot"
        text = re.sub(r"terminal-(r\d+)\b", lambda match, names=names: names[match[1]], screen[2])
        frames.append(f'<g class="frame frame{number}">{text}</g>')
        motion.append(
            f"@keyframes frame{number} {{ 0% {{ visibility: hidden }}"
            f" {100 * start / total:.3f}% {{ visibility: visible }}"
            f" {100 * end / total:.3f}% {{ visibility: hidden }} }}"
            f" .frame{number} {{ animation: frame{number} {total:g}s step-end infinite }}"
        )
    last = f".frame {{ visibility: hidden }} .frame{len(frames) - 1} {{ visibility: visible }}"
    moving = f"@media (prefers-reduced-motion: no-preference) {{ {' '.join(motion)} }}"
    rules = [f".{name} {{ {style} }}" for style, name in styles.items()]
    whole = _SCREEN.sub(
        lambda match: match[1] + "".join(frames) + match[3], _unify_ids(pictures[0])
    )
    return whole.replace("</style>", "\n".join([*rules, last, moving, "</style>"]), 1)


def _unify_ids(picture: str) -> str:
    """Each screenshot has names of its own, made of its contents."""
    return re.sub(r"terminal-\d+-", "terminal-", _RULE.sub("", picture))
