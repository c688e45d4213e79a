"""The one table of names whose files decide what runs later, outside of any sandbox: commands cannot
change them, and the files tools ask. After Anthropic's sandbox-runtime (its README), and the manuals of
Mercurial, Jujutsu, husky, direnv and Codex."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePath

PROJECT_FILES = (".mcp.json", "mcp.json")
"""This program's in the working folder: the first that is there counts."""
NAMES = frozenset(
    (".hg", ".jj", ".husky", ".gitmodules", ".gitconfig", ".envrc", ".ripgreprc", ".mcp.json")
    + (".vscode", ".idea", ".devcontainer", ".claude", ".codex", ".cursor", ".agents")
    + (".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile")
    + (".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc")
)
"""In folders up to MAX_DEPTH."""
ROOT_NAMES = NAMES | {*PROJECT_FILES, "agents.md", ".agent"}
"""In the root: also what this program reads at its next start."""
MAX_DEPTH = 3
"""Number of path components below the root up to which NAMES count, as in sandbox-runtime."""
HOME_PATHS = (
    *(".local/bin", ".local/lib", ".local/share/applications", ".local/share/systemd", "bin"),
    *(".config/autostart", ".config/environment.d", ".config/fish", ".config/git"),
    *(".config/systemd", ".config/nvim", ".config/hypr", ".config/i3", ".config/sway"),
    *(".pam_environment", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".inputrc"),
    *(".vimrc", ".vim", ".emacs", ".emacs.d", ".tmux.conf", ".npmrc", ".pypirc", ".pythonrc"),
    *(".cargo/bin", ".cargo/config.toml", ".nvm", ".pyenv", ".asdf", ".bun/bin", ".deno/bin"),
    "Library/LaunchAgents",
)
"""Below the home folder, where the root holds it."""
KEY_PATHS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials"),
    *(".config/gh", ".config/gcloud", ".password-store", ".local/share/keyrings", ".config/op"),
    *("Library/Keychains", ".vault-token"),
)
"""The same: with keys, which cannot be read either."""


def is_run_later(name: str, depth: int) -> bool:
    """Return whether a name counts in a folder that is ``depth`` names below the root."""
    return name.casefold() in (ROOT_NAMES if depth == 0 else NAMES if depth < MAX_DEPTH else ())


def names_run_later(path: PurePath) -> bool:
    """Return whether a path, relative to the root, is or leads through what counts at any depth."""
    folded = [part.casefold() for part in path.parts]
    return not NAMES.isdisjoint(folded) or (folded[:1] != [] and folded[0] in ROOT_NAMES)


def root_paths(root: Path) -> Iterator[Path]:
    """Yield what counts wherever it is, existing or not: PATH's folders, and files of a home below."""
    yield from (root / name for name in ROOT_NAMES if name != "agents.md")
    yield root / "AGENTS.md"
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        if entry.startswith("/") and Path(entry) != root:
            yield Path(entry)
    if holds_home(root):
        yield from (Path.home() / name for name in (*HOME_PATHS, *NAMES))
        yield from key_paths(root)


def key_paths(root: Path) -> list[Path]:
    """Return the files and folders with keys below a root that holds the home folder."""
    return [Path.home() / name for name in KEY_PATHS] if holds_home(root) else []


def holds_home(root: Path) -> bool:
    """Return whether a root without links is the home folder, or holds it."""
    return Path(os.path.realpath(Path.home())).is_relative_to(root)  # also of a loop
