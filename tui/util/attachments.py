"""Files in a prompt: ``@path`` stands where the person wrote it, the file's text behind the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from agent.errors import UserError

LARGEST = 256 * 1024
"""Bytes of one file."""
_MENTION = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<path>\S+))')
_ATTACHED = re.compile(
    r'\n\n<(?P<tag>file_*) path="(?P<path>[^"\n]*)" lines="(?P<lines>\d+)">\n'
    r".*?\n</(?P=tag)>(?=\n\n<|\Z)",
    re.DOTALL,
)


def attach(text: str, root: Path) -> str:
    """The prompt with the files that it mentions. Raises UserError where one cannot be attached.

    What is no file below ``root`` (or as an absolute path) is a word like any other.
    """
    found = dict(_files(text, root)).items()
    return text + "".join(_block(path, _text(path, file)) for path, file in found)


def folded(text: str) -> str:
    """The prompt as the person wrote it, without the files' texts."""
    return _ATTACHED.sub("", text)


def attached(text: str) -> list[tuple[str, int]]:
    """Path and lines of each file in a prompt."""
    return [(found["path"], int(found["lines"])) for found in _ATTACHED.finditer(text)]


def mention(path: str) -> str:
    """How a path is written in a prompt."""
    return f'@"{path}"' if re.search(r"\s", path) else f"@{path}"


def _files(text: str, root: Path) -> Iterator[tuple[str, Path]]:
    for found in _MENTION.finditer(text):
        # What ends a sentence may stand behind a path.
        for path in (found["quoted"],) if found["quoted"] else _endings(found["path"]):
            file = root / Path(path).expanduser()
            if file.is_file():
                yield path, file
                break


def _endings(path: str) -> Iterator[str]:
    yield path
    while path and path[-1] in ".,;:!?)]}'\"":
        path = path[:-1]
        yield path


def _text(path: str, file: Path) -> str:
    try:
        size = file.stat().st_size
        if size > LARGEST:
            raise UserError(f"@{path} is too long to attach: {size:,} bytes, at most {LARGEST:,}.")
        text = file.read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"@{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError(f"@{path} cannot be attached: it is no text.")
    return text


def _block(path: str, text: str) -> str:
    tag = "file"
    while f"</{tag}>" in text:
        tag += "_"
    name = path.replace('"', "'")
    text = text.rstrip("\n")
    return f'\n\n<{tag} path="{name}" lines="{text.count(chr(10)) + 1}">\n{text}\n</{tag}>'
