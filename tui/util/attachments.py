"""Attaches files to a prompt: ``@path`` stays where it was written, the file's text is appended.

``explain @a.py`` is sent as::

    explain @a.py

    <file path="a.py" lines="2">
    …
    </file>
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from agent.conversation.attachments import format_attachment, read_attachment, split_attachments

_PUNCTUATION = ".,;:!?)]}'\""
"""May follow a path."""
_MENTION = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<path>\S+))')


def attach_files(text: str, root: Path) -> str:
    """Append the files that the text mentions. Raises UserError: too large, unreadable, or no text."""
    files = dict(_mentioned_files(text, root)).items()
    return text + "".join(
        format_attachment(path, read_attachment(file, f"@{path}")) for path, file in files
    )


def mentioned_resources(text: str, servers: Collection[str]) -> list[tuple[str, str]]:
    """Return server and URI of each ``@server:uri``, where ``servers`` has that one."""
    names = (
        match["quoted"] or match["path"].rstrip(_PUNCTUATION) for match in _MENTION.finditer(text)
    )
    parts = (name.partition(":") for name in names)
    return list(dict.fromkeys((name, uri) for name, _, uri in parts if uri and name in servers))


def missing_files(text: str, root: Path, servers: Collection[str] = ()) -> list[str]:
    """Return mentions that read like paths, but name neither a file nor a resource of ``servers``."""
    missing = []
    for match in _MENTION.finditer(text):
        path = match["quoted"] or match["path"].rstrip(_PUNCTUATION)
        if path.partition(":")[0] in servers:
            continue
        # A bracket: it is a decorator, in code.
        like_path = match["quoted"] or (re.search(r"[./]", path) and "(" not in path)
        if like_path and not any(_find_path(root, each) for each in _path_candidates(match)):
            missing.append(path)
    return list(dict.fromkeys(missing))


def without_attachments(text: str) -> str:
    return split_attachments(text)[0]


def attached_files(text: str) -> list[tuple[str, int]]:
    """Return source (a file's path, ``!command``) and lines of each text attached to a prompt."""
    return [
        (f"!{attached.source}" if attached.kind == "command" else attached.source, attached.lines)
        for attached in split_attachments(text)[1]
    ]


def command_outputs(text: str) -> str:
    return "".join(
        format_attachment(attached.source, attached.text, attached.kind)
        for attached in split_attachments(text)[1]
        if attached.kind == "command"
    )


def format_mention(path: str) -> str | None:
    """Write a path as ``@path``, quoted if need be; None: that would be read as something else."""
    text = f'@"{path}"' if re.search(r"\s", path) else f"@{path}"
    return text if _MENTION.fullmatch(text) and path.isprintable() and '"' not in path else None


def _mentioned_files(text: str, root: Path) -> Iterator[tuple[str, Path]]:
    for match in _MENTION.finditer(text):
        for path in _path_candidates(match):
            if (file := _find_path(root, path)) is not None and file.is_file():
                yield path, file
                break


def _find_path(root: Path, path: str) -> Path | None:
    """Return what a mention names; None where nothing is, or no path can be so."""
    try:
        file = root / Path(path).expanduser()
        return file if file.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long; ~ of an unknown user
        return None


def _path_candidates(mention: re.Match[str]) -> Iterator[str]:
    path = mention["quoted"] or mention["path"]
    yield path
    while mention["path"] and path and path[-1] in _PUNCTUATION:
        path = path[:-1]
        yield path
