"""What the tools answer in the training data."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING

from agent.tiny.train import excerpts, phrases, words
from agent.tiny.train.words import Split

if TYPE_CHECKING:
    from agent.tiny.train.tools import DialogueTool

ERRORS: dict[str, list[str]] = phrases.WORDS["errors"]
"""By family; `{0}` is the first argument, `{n}` a number, `{w}` and `{w2}` words."""
SKY = phrases.word_list("sky")
DAYS = phrases.word_list("days")
TOPICS = phrases.word_list("topics")


def is_error(result: str) -> bool:
    """Whether a result tells a failure, as the program's tools and python word it."""
    return result.startswith("Error") or re.match(r"[A-Z]\w*Error\b", result) is not None


def moment(result: str) -> str | None:
    """The date and time in an mcp-server-time result."""
    found = re.search(r'"datetime": "([^"]+)"', result)
    return found.group(1) if found else None


def sentence(rng: random.Random, split: Split, most: int = 8) -> str:
    """A sentence of words."""
    common = rng.choice([0.0, 0.5, 0.95, 0.95])
    text = " ".join(
        words.word(rng, split, common) + rng.choice(["", "", "", "", "", "", ",", ":"])
        for _ in range(rng.randint(2, most))
    ).rstrip(",:")
    if rng.random() < 0.2:
        text += f" {rng.randrange(1, 3000)}"
    return text[:1].upper() + text[1:] + rng.choice([".", ".", "", "!"])


def file_text(rng: random.Random, split: Split) -> str:
    """A file's content; in half of the cases lines of a real one."""
    if rng.random() < 0.5:
        return excerpts.excerpt(rng, split) + rng.choice(["", "\n"])
    lines: list[str] = []
    for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12])):
        kind = rng.random()
        w = words.word(rng, split, 0.4)
        if kind < 0.2:
            lines.append(code(rng, split))
        elif kind < 0.5:
            lines.append(sentence(rng, split))
        elif kind < 0.6:
            lines.append(f"{rng.randint(1, 9)}. {words.phrase(rng, split)}")
        elif kind < 0.68:
            lines.append(f"{w} = {rng.randrange(1, 9999)}")
        elif kind < 0.75:
            lines.append(f"- {words.phrase(rng, split)}")
        elif kind < 0.8:
            lines.append(f"# {words.phrase(rng, split, 2).title()}")
        elif kind < 0.85:
            lines.append(f"[{w}]")
        elif kind < 0.9:
            lines.append(f"def {w}({words.word(rng, split)}):")
        elif kind < 0.94:
            lines.append(f"{w},{words.word(rng, split)},{rng.randint(1, 99)}")
        elif kind < 0.97:
            lines.append(f'{{"{w}": {rng.randint(1, 99)}}}')
        else:
            lines.append("")
    text = "\n".join(lines).strip("\n") or sentence(rng, split)
    return text + rng.choice(["", "\n"])


CODE = phrases.word_list("code")


def code(rng: random.Random, split: Split) -> str:
    """A line full of punctuation, which must be copied like words."""
    return rng.choice(CODE).format(
        w=words.word(rng, split, 0.4), v=words.word(rng, split, 0.4), n=rng.randint(0, 9999)
    )


def time_json(rng: random.Random, split: Split, zone: str) -> str:
    """The time tool's JSON."""
    offset = rng.choice(
        ["+00:00", "+01:00", "+02:00", "-05:00", "+09:00", "-08:00", "+05:30", "+11:00"]
    )
    day = f"{rng.randint(2024, 2029)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    hour, minute, second = rng.randint(0, 23), rng.randint(0, 59), rng.randint(0, 59)
    if split == "train" and rng.random() < 0.25:  # parts that are alike are hard to copy
        minute = rng.choice([hour, minute])
        second = rng.choice([hour, minute])
    stamp = f"{day}T{hour:02}:{minute:02}:{second:02}{offset}"
    data = {
        "timezone": zone,
        "datetime": stamp,
        "day_of_week": rng.choice(DAYS),
        "is_dst": rng.random() < 0.5,
    }
    return json.dumps(data, indent=rng.choice([2, 2, 2, None]), ensure_ascii=False)


def listing(rng: random.Random, split: Split) -> list[str]:
    """The names in a folder, hidden ones among them, mostly sorted as the file tool sorts them; in
    60 % of the cases real names."""
    if rng.random() < 0.6:
        return excerpts.folder(rng, split)
    names = []
    for _ in range(rng.choice([1, 2, 2, 3, 3, 4, 5, 7, 9, 12, 15])):
        is_folder = rng.random() < 0.25
        name = words.stem(rng, split) if is_folder else words.path(rng, split).split("/")[-1]
        names.append("." * (rng.random() < 0.06) + name + "/" * is_folder)
    if rng.random() < 0.7:
        names.sort()
    return names


def of(rng: random.Random, split: Split, tool: DialogueTool, values: list[str]) -> str:
    """A result of a call, sometimes an error."""
    first = values[0] if values else "here"
    if rng.random() < 0.09:
        own = ERRORS.get(tool.family, ERRORS["common"])
        text = rng.choice(own if rng.random() < 0.6 else ERRORS["common"])
        text = text.replace("{0}", first).replace("{n}", str(rng.randint(1, 900)))
        return text.replace("{w2}", words.word(rng, split)).replace("{w}", words.word(rng, split))
    match tool.family:
        case "read":
            return file_text(rng, split)
        case "list":
            if rng.random() < 0.04:
                return "the folder is empty"
            return "\n".join(listing(rng, split))
        case "search":
            if rng.random() < 0.25:
                return "no matches"
            return "\n".join(
                f"{words.path(rng, split)}:{rng.randint(1, 400)}: "
                + rng.choice([words.phrase(rng, split, 3) + " ", "", "# ", "def ", "The "])
                + first
                + rng.choice(
                    ["", " " + words.word(rng, split), ".", " = 3", "(x):", " " + code(rng, split)]
                )
                for _ in range(rng.choice([1, 1, 1, 2, 3]))
            )
        case "weather":
            t, sky = (
                rng.randint(-20, 40),
                rng.choice(SKY) if rng.random() < 0.75 else words.word(rng, split),
            )
            return rng.choice(
                [
                    f"{t} °C, {sky}",
                    f"{t} °C, {sky}",
                    f"{t} °C, {sky}",
                    f"{sky.title()}, {t}°C",
                    f"{first}: {t} °C and {sky}",
                    f"It is {sky} and {t} degrees.",
                    f'{{"temperature": {t}, "condition": "{sky}"}}',
                    f"{t} degrees, {sky}",
                    f"{sky}",
                ]
            )
        case "time":
            if rng.random() < 0.12:
                return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}, {rng.choice(DAYS)}"
            return time_json(rng, split, first)
        case "echo":
            return f"Echo: {first}" if rng.random() < 0.9 else first
        case "sum":
            a, b = values
            total = repr(round(float(a) + float(b), 6)).removesuffix(".0")
            return rng.choice([f"The sum of {a} and {b} is {total}."] * 3 + [total])
        case "note":
            return rng.choice(
                [
                    "noted",
                    "noted",
                    "noted",
                    "saved",
                    "Note added.",
                    f"note {rng.randint(1, 99)} saved",
                    "ok",
                ]
            )
        case "define":
            meaning = words.phrase(rng, split, 6)
            return rng.choice(
                [
                    f"{first}: {meaning}.",
                    f"{first}: {meaning}",
                    sentence(rng, split),
                    f"{first} ({rng.choice(['noun', 'verb'])}): {meaning}.",
                ]
            )
        case _:
            w = words.word(rng, split)
            return rng.choice(
                [
                    "ok",
                    "done",
                    sentence(rng, split),
                    words.phrase(rng, split),
                    str(rng.randint(1, 99999)),
                    f"{first}: {w}",
                    f"{tool.noun} {first} {w}",
                    f'{{"{w}": {rng.randint(1, 999)}}}',
                    f"{w} = {rng.randint(1, 999)}",
                    sentence(rng, split),
                    f'{{"status": "{w}"}}',
                    f"{rng.randint(1, 999)} {w}",
                    "true",
                    file_text(rng, split),
                ]
            )
