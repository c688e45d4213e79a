"""Which programs a rule may cover whatever their arguments are, and which options it never covers: who
allows ``find . -name x`` does not mean ``find . -exec rm {} +``. Others are allowed word for word.
After OpenAI Codex's safe commands (codex-rs, ``is_safe_command.rs``) and the programs' manuals; unlike
there, abbreviated (``--outp``) and clustered (``-no``) options count too."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command as far as it is known before a shell expands it."""

    value: str | None
    """None: it depends on a variable, a pattern or another command's output."""
    maybe_option: bool = False
    """Whether an unknown word may begin with a dash, or become several words."""


@dataclass(frozen=True, slots=True)
class Risks:
    """The arguments of a program with which it runs or writes something that its rule hides."""

    letters: str = ""
    """Short options, alone or in a cluster; ``@``: files of further arguments, as in ``@file``."""
    names: tuple[str, ...] = ()
    """Long options, also abbreviated; with a single dash where the program writes them so."""
    operands: bool = False
    """Whether any operand is one (``uniq IN OUT`` writes OUT)."""
    any_dashes: bool = False
    """Whether ``-name`` and ``---name`` are the same as ``--name``."""

    def apply_to(self, word: Word) -> bool:
        """Return whether the word is, or may be, such an argument."""
        text = word.value
        if text is None:
            return self.operands or (word.maybe_option and bool(self.letters or self.names))
        if not text.startswith("-") or text == "-":
            return self.operands or (text.startswith("@") and "@" in self.letters)
        name = text.partition("=")[0]
        if self.any_dashes and len(bare := name.lstrip("-")) > 1:
            name = f"--{bare}"
        if name != "--" and any(
            risk == name or (name.startswith("--") and risk.startswith(name)) for risk in self.names
        ):
            return True
        return not text.startswith("--") and any(letter in text for letter in self.letters)


_NONE = Risks()
_GIT = Risks("O", ("--output", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager",
                   "--exec", "--no-index", "--help"))  # fmt: skip
_GIT_BRANCH = Risks("dDmMcCfu", ("--delete", "--move", "--copy", "--force", "--edit-description",
                                 "--set-upstream-to", "--unset-upstream", "--help"))  # fmt: skip
_GO = Risks(names=tuple(
    dash + name
    for name in ("exec", "toolexec", "vettool", "fix", "http", "o", "C", "c", "overlay", "modfile",
                 "ldflags", "gcflags", "asmflags", "gccgoflags", "coverprofile", "cpuprofile",
                 "memprofile", "blockprofile", "mutexprofile", "outputdir", "trace", "pkgdir", "work",
                 "fuzz")
    for dash in ("-", "--")
))  # fmt: skip
_CARGO = Risks("ZC", ("--config", "--target-dir", "--out-dir", "--artifact-dir", "--manifest-path",
                      "--lockfile-path", "--fix", "--open"))  # fmt: skip
_NPM = Risks("C", ("--prefix", "--script-shell", "--node-options", "--userconfig",
                   "--globalconfig", "--cache", "--logs-dir"), any_dashes=True)  # fmt: skip
_PYTEST = Risks("pco@", ("--basetemp", "--junitxml", "--junit-xml", "--log-file", "--rootdir",
                        "--pdbcls", "--override-ini", "--pastebin", "--debug", "--cov-report",
                        "--cov-config", "--confcutdir", "--config-file", "--report-log",
                        "--html", "--snapshot-update"))  # fmt: skip
_TEST = Risks("vR")

PROGRAMS: Mapping[str, Risks] = {
    **dict.fromkeys(
        [
            "basename", "cat", "cmp", "column", "comm", "cut", "df", "dirname", "du", "echo",
            "egrep", "exit", "expand", "false", "fgrep", "fold", "grep", "head", "hexdump", "id",
            "join", "jq", "ls", "md5sum", "mkdir", "nl", "nproc", "od", "paste", "printenv", "printf",
            "pwd", "readlink", "realpath", "rev", "seq", "sha1sum", "sha256sum", "sha512sum", "sleep",
            "stat", "strings", "tac", "tail", "test", "touch", "tr", "true", "type", "uname", "wait",
            "wc", "which", "whoami", ":"
        ],
        _NONE,
    ),
    "base64": Risks("o", ("--output",)),
    "cd": _NONE,
    "date": Risks("sf", ("--set", "--file")),
    "diff": Risks("l", ("--paginate",)),
    "fd": Risks("xX", ("--exec", "--exec-batch")),
    "file": Risks("CzZ", ("--compile", "--uncompress", "--uncompress-noreport")),
    "find": Risks(names=("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint",
                         "-fprint0", "-fprintf")),
    "mypy": Risks("@", ("--python-executable", "--config-file", "--install-types", "--cache-dir",
                         "--junit-xml", "--any-exprs-report", "--cobertura-xml-report",
                         "--html-report", "--linecount-report", "--linecoverage-report",
                         "--lineprecision-report", "--txt-report", "--xml-report",
                         "--xslt-html-report", "--xslt-txt-report", "--timing-stats",
                         "--line-checking-stats")),
    "pytest": _PYTEST,
    "rg": Risks("z", ("--pre", "--hostname-bin", "--search-zip")),
    "sort": Risks("oT", ("--output", "--compress-program", "--temporary-directory")),
    "tree": Risks("oR"),
    "uniq": Risks(operands=True),
}  # fmt: skip
"""Programs whose name alone may be a rule."""

SUBCOMMANDS: Mapping[str, Risks] = {
    **dict.fromkeys(
        (f"git {name}" for name in [
             "add", "blame", "cat-file", "commit", "describe", "diff", "grep", "log", "ls-files",
             "ls-tree", "merge-base", "rev-list", "rev-parse", "shortlog", "show", "show-ref",
             "status"
         ]),
        _GIT,
    ),
    "git branch": _GIT_BRANCH,
    **dict.fromkeys(("git stash list", "git stash show", "git worktree list"), _GIT),
    **dict.fromkeys(("cargo build", "cargo check", "cargo clippy", "cargo metadata", "cargo test",
                     "cargo tree"), _CARGO),
    **dict.fromkeys(("go build", "go doc", "go list", "go test", "go version", "go vet"), _GO),
    **dict.fromkeys((f"pip {name}" for name in ("freeze", "list", "show")),
                    Risks(names=("--log", "--log-file", "--local-log", "--python", "--cache-dir",
                                 "--proxy", "--keyring-provider"))),
    **dict.fromkeys((f"{python} -m pytest" for python in ("python", "python3")), _PYTEST),
    **dict.fromkeys((f"{python} -m unittest" for python in ("python", "python3")), _NONE),
    **dict.fromkeys(("npm ls", "npm test"), _NPM),
    "ruff check": Risks("o@", ("--output-file", "--config", "--cache-dir", "--fix", "--fix-only",
                              "--unsafe-fixes", "--add-noqa", "--add-ignore")),
}  # fmt: skip
"""Programs with their sub-commands: these words together may be a rule."""
MAX_SUBCOMMAND_WORDS = 3
_LINES = re.compile(r"\d+(?:,(?:\d+|\$))?p\Z")
_CLOCK = re.compile(r"\d+(?:\.\d+)?\Z")
_FORMAT = re.compile(r"(?:[^%]|%%|%[-+ #0]*(?:\d*|\*)(?:\.(?:\d*|\*))?[sdiouxXfFeEgGaAcbq])*\Z")
"""A format of printf that sets no variable."""
_JOB = re.compile(r"\d+\Z|-[nf]\Z")
_PROGRAM = re.compile(r"[\w.,/+:@%-]+\Z")

_SHELL_WORDS = frozenset(
    [".", "alias", "bg", "bind", "builtin", "caller", "case", "command", "compgen", "complete",
     "compopt", "coproc", "declare", "dirs", "disown", "do", "done", "elif", "else", "enable", "esac",
     "eval", "exec", "export", "fc", "fg", "fi", "for", "function", "getopts", "hash", "help",
     "history", "if", "in", "jobs", "let", "local", "logout", "mapfile", "popd", "pushd", "read",
     "readarray", "readonly", "select", "set", "shift", "shopt", "source", "suspend", "then", "time",
     "times", "trap", "typeset", "ulimit", "umask", "unalias", "unset", "until", "while"]
)  # fmt: skip
"""Shell builtins and keywords, except those that change nothing in any form."""

NEUTRAL_PROGRAMS = frozenset((":", "cd", "echo", "exit", "false", "printf", "pwd", "sleep", "test",
                              "true", "wait"))  # fmt: skip
"""Without effect of their own, so next to another command they need no rule."""


def changes_shell(words: Sequence[Word]) -> bool:
    """Whether later commands may mean something else after these words, or within them."""
    program, *rest = words
    if not _PROGRAM.match(program.value or ""):
        return True
    match [program.value, *(word.value for word in rest)]:
        case ["command", "-v" | "-V", *_]:
            return False
        case ["printf", "--", str(text), *_] | ["printf", str(text), *_]:
            return text.startswith("-") or not _FORMAT.match(text)
        case ["printf", *_]:
            return True
        case ["test", *_]:
            return any(map(_TEST.apply_to, rest))
        case ["wait", *_]:
            return any(w.maybe_option if w.value is None else not _JOB.match(w.value) for w in rest)
    return program.value in _SHELL_WORDS


def is_neutral(words: Sequence[Word]) -> bool:
    return words[0].value in NEUTRAL_PROGRAMS and rule_words(words) is not None


def rule_words(words: Sequence[Word]) -> tuple[str, ...] | None:
    """The first words of a command that may run with any others; None: there is no such rule."""
    match [word.value for word in words]:
        case ["sed", "-n", str(script), *files] if _LINES.match(script) and not any(
            file is None or file.startswith("-") for file in files
        ):
            return ("sed", "-n")  # it only prints lines
        case ["date", *times] if any(time is None or _CLOCK.match(time) for time in times):
            return None  # it may set the clock
    for count in range(min(MAX_SUBCOMMAND_WORDS, len(words)), 0, -1):
        begin = tuple(word.value for word in words[:count] if word.value is not None)
        risks = (SUBCOMMANDS if count > 1 else PROGRAMS).get(" ".join(begin))
        if risks is not None and len(begin) == count:
            return None if any(map(risks.apply_to, words[count:])) else begin
    return None
