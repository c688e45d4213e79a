"""Finds the compilers and interpreters that the user has installed below the home folder, where rustup,
nvm, pyenv and others put them. Commands in the sandbox read these folders, and nothing else there."""

import os
from dataclasses import dataclass
from pathlib import Path

FOLDERS = (
    *(".cargo/bin", ".rustup", ".nvm/versions", ".local/share/fnm", ".volta/bin", ".volta/tools"),
    *(".pyenv", ".local/share/uv/python", ".local/share/uv/tools", ".local/bin", ".rbenv"),
    *(
        ".local/share/mise/installs",
        ".asdf",
        ".sdkman/candidates",
        ".bun/bin",
        ".deno/bin",
        "go/bin",
    ),
)
"""Folders of programs, relative to the home folder. None of them holds credentials; the folders
around some of them do."""
VARIABLES = {
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "RBENV_ROOT": ".rbenv",
    "VOLTA_HOME": ".volta",
    "ASDF_DATA_DIR": ".asdf",
}
"""Variables by which programs find their folder where HOME is another one."""


@dataclass(frozen=True, slots=True)
class Toolchains:
    """The paths and variables with which commands run the compilers and interpreters of the user."""

    readable: tuple[str, ...]
    """Folders, absolute; of those that are links also what they lead to."""
    path: tuple[str, ...]
    """The entries of PATH that are in them."""
    variables: dict[str, str]


def find_toolchains() -> Toolchains:
    try:
        home = Path.home()
    except RuntimeError:  # no home folder
        return Toolchains((), (), {})
    folders = [home / name for name in FOLDERS if (home / name).is_dir()]
    readable = dict.fromkeys(
        path for each in folders for path in (str(each), os.path.realpath(each))
    )
    path = [
        entry
        for entry in os.environ.get("PATH", "").split(os.pathsep)
        if any(Path(entry).is_relative_to(folder) for folder in readable) and Path(entry).is_dir()
    ]
    variables = {
        name: os.environ.get(name, str(home / folder))
        for name, folder in VARIABLES.items()
        if (home / folder).is_dir()
    }
    return Toolchains(tuple(readable), tuple(path), variables)
