"""Random shell scripts, run by bash and sh: nothing may run or be written that no rule of theirs names.

All programs are stubs that write down their names and arguments: the rules that `command_requirements`
gives for a script are held against what it did.
"""

import random
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path

from tests.attack.measure import Attempt
from tools.policy.commands import command_requirements
from tools.policy.programs import NEUTRAL_PROGRAMS, Word, rule_words
from tools.policy.rules import OnceOnlyError, command_rule

BATCH = 1000
"""Scripts of one attempt; some 400 of them are taken apart, and run in one bash."""
NAMES = [f"random scripts {number}" for number in range(200)]

_DRIVER = r"""
cd "$1"
__files=(*)
__count=${#__files[@]}
while IFS= read -r -d '' __script; do
    # What it starts has the pipe too, so `read` waits until all of it has ended.
    (if [ "$3" = bash ]; then eval "$__script"; else "/bin/$3" -c "$__script"; fi) \
        9>&1 <f >/dev/null 2>&1 | read -r -d ''
    __files=(*)
    printf '\0%s' files "${__files[@]}" >>"$2"
    printf '\0\1' >>"$2"
    if [ ${#__files[@]} != $__count ]; then /bin/rm -rf "$1"; /bin/cp -a "$1".new "$1"; cd "$1"; fi
done
"""
_STUB = (
    '#!/bin/sh\nprintf \'\\0%s\' run "${{0##*/}}{mark}" "$@" >>{log}\n[ "${{0##*/}}" != grep ]\n'
)
_LISTED = ("ls", "cat", "grep", "find", "sleep", "sort", "wc", "date", "touch", "uniq")
_PAYLOADS = ("p0", "p1", "p2", "p3", "p4", "p5")
_PLAIN = (
    "echo",
    "printf",
    "test",
    "wait",
    "cd",
    ":",
    "true",
    "false",
    "pwd",
    "type",
    "exit",
    *_LISTED,
)
_STATE = (
    "read", "mapfile", "declare", "typeset", "local", "export", "readonly", "let", "eval", "exec",
    "trap", "source", ".", "unset", "getopts", "set", "shift", "builtin", "command", "enable",
    "hash", "alias", "coproc", "time", "select", "jobs", "compgen", "pushd",
)  # fmt: skip
_NAMES = (
    "x",
    "y",
    "PATH",
    "IFS",
    "BASH_ENV",
    "ENV",
    "LD_PRELOAD",
    "PROMPT_COMMAND",
    "PS4",
    "http_proxy",
)
_OPTIONS = ("-v", "-p", "-n", "-a", "-f", "-e", "-C", "--", "-delete", "-o", "-r", "-d")


ELSEWHERE = " of another folder"
_WRAPPERS = ("env", "timeout", "nice", "xargs")


class Grammar:
    """Makes scripts of constructs that evaluate a word twice, set a variable or are plain."""

    def __init__(self, seed: str) -> None:
        self._rng, self._payload = random.Random(seed), 0

    def script(self) -> str:
        self._payload = 0
        return self._list(0) if self._chance(0.5) else self._oddity()

    def _pick(self, *choices: str) -> str:
        return self._rng.choice(choices)

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _hidden(self) -> str:
        """Return a program that runs only if what stands around it is evaluated."""
        name = _PAYLOADS[self._payload % len(_PAYLOADS)]
        self._payload += 1
        return name

    def _substitution(self) -> str:
        return self._pick("$({})", "`{}`", r"\$({})", r"\`{}\`", r"\\\$({})").format(self._hidden())

    def _subscript(self) -> str:
        inner = self._substitution()
        return self._pick("a[{}]", "a['{}']", 'a["{}"]', "{}", "a[0{}]").format(inner)

    def _text(self) -> str:
        """Return a text that is dangerous in some place."""
        name = self._pick(*_NAMES)
        return self._pick(
            self._subscript(), self._substitution(), name, f"{name}=b", "%n", "%s", f"%s {name}", "-v",
            "n", f"${{{name}@P}}", f"${{!{name}}}", f"$(({self._subscript()}))",
            f"$[{self._subscript()}]", f"${{x:{self._subscript()}}}", f"${{x:={self._subscript()}}}",
            f"${name}", f"${{{name}%b}}", f"{{{name}}}", f"{{{self._subscript()}}}", "~", "*", "{a,b}",
            "a'b", 'a"b', "a\\", "$'a'", "#", "!", "1", "b",
        )  # fmt: skip

    def _word(self) -> str:
        if self._chance(0.65):
            return self._pick(
                "a", "b", "f", "1", "0", "%s", "=", "'a b'", '"a b"', "$x", '"$x"', "x=1"
            )
        if self._chance(0.15):
            return self._pick(*_OPTIONS)
        if self._chance(0.2):
            name = self._pick(*_NAMES, shlex.quote(self._subscript()))
            return f"{self._pick(*_OPTIONS, 'ab%n', '-n -p', '%s -v')} {name}"
        text = self._text()
        match self._rng.randrange(8):
            case 0 | 1:
                return "'" + text.replace("'", "") + "'"
            case 2 | 3:
                return f'"{text}"'
            case 4:
                return f"a{text}" if self._chance(0.5) else f"{text}b"
            case 5:
                bare, quoted = self._pick("a", "$x", "*"), self._pick("a", '"')
                return f"\"{text}\"{bare}'{quoted}'"
            case 6:
                return shlex.quote(text)
        return text

    def _oddity(self) -> str:
        """Return a plain script but for one command."""
        name = self._pick("x", "PATH", "'a[$({})]'", "a['$({})']", r"'a[\$({})]'", r'"a[\$({})]"')
        name = name.format(self._hidden())
        command = self._pick("find .", "uniq", "sort", "date", "touch")
        texts = ("'\\$x'", '"\\$x"', '"\\`x"', "~", "x=~", "$x", '"$x"')
        risk = self._pick("-delete", "b", "-oout", "0101", "-s", *texts)
        target = self._pick("/dev/null", "1", "f")
        builtin = self._pick(*_PLAIN, *_STATE)
        odd = self._pick(
            f"{builtin} {self._pick(*_OPTIONS, '-n -p', 'a%n', '-- a%n')} {name}",
            f"{builtin} {name}", f"{builtin} {name}=b", f"{command} {self._redirect()} {risk}",
            f"{self._redirect()} {command} {risk}", f"{command} <<E {risk}\nE",
            f"echo {{{name}}}{self._pick('>', '<', '>&')}{target}",
            f"echo {self._pick('>&', '&>', '<&', '>')}{name}",
            f"x={name}; (({self._pick('x', 'x+1')}))", f"{builtin} $x",
            f"{command} {self._word()}{self._word()}{self._word()}", f"{command} {risk}",
        )  # fmt: skip
        before = self._pick("", "", "sleep 0 & ", "x=' -delete'; ", "x=-vPATH; ")
        return f"{before}{odd}; {self._pick('ls', 'cat f', 'ls; wc f')}"

    def _redirect(self) -> str:
        operator = self._pick(">", ">>", "<", ">&", "<&", "&>", ">|", "<<<", "<>", "&>>")
        head = self._pick(
            "", "", "", "", "2", "1", "{x}", "{PATH}", f"{{{self._subscript()}}}", "99999999999"
        )
        target = self._pick("/dev/null", "1", "2", "-", "out", "f", '"out b"')
        return f"{head}{operator}{target if self._chance(0.7) else self._word()}"

    def _command(self) -> str:
        parts = []
        if self._chance(0.1):
            sign = self._pick("=", "=", "+=", "[0]=", f"[{self._subscript()}]=")
            parts.append(self._pick(*_NAMES) + sign + self._word())
        if self._chance(0.1):
            parts += self._pick(
                "env", "env x=1", "command", "timeout 5", "nice", "env --", "xargs"
            ).split()
        parts.append(self._pick(*(_PLAIN if self._chance(0.9) else _STATE)))
        parts += [self._word() for _ in range(self._rng.choice((0, 1, 1, 2, 2, 3)))]
        if self._chance(0.3):
            parts.insert(self._rng.randint(0, len(parts)), self._redirect())
        if self._chance(0.1):
            parts += [self._redirect(), self._word()]
        if self._chance(0.05):
            parts.insert(self._rng.randint(0, len(parts)), self._pick("\\\n", "#", "# a\n"))
        return " ".join(parts)

    def _compound(self, depth: int) -> str:
        body = self._list(depth + 1)
        match self._rng.randrange(16):
            case 0:
                return f"({body})"
            case 1:
                return f"{{ {body}; }}"
            case 2:
                return f"if {body}; then {self._command()}; fi"
            case 3:
                return (
                    f"for {self._pick(*_NAMES)} in {self._word()} {self._word()}; do {body}; done"
                )
            case 4:
                return f"while false; do {body}; done"
            case 5:
                end = self._pick("E", "'E'", '"E"', "\\E")
                return f"cat <<{end}\n{self._text()}\n{self._word()}\nE\n{self._command()}"
            case 6:
                return f"(({self._subscript()}))"
            case 7:
                return f"[[ {self._word()} {self._pick('-eq', '=', '-v')} {self._word()} ]]"
            case 8:
                return f"[ {self._pick('', '-v', '!')} {self._word()} ]"
            case 9:
                return f"{self._pick('ls', 'f')}() {{ {self._hidden()}; }}; ls"
            case 10:
                return f"case {self._word()} in {self._word()}) {body};; esac"
            case 11:
                return f"bash -c {shlex.quote(body)}"
            case 12:
                return f"! {self._command()}"
        return f"{self._pick('x=', 'sleep 0 & x=')}{self._word()}; {self._command()}"

    def _list(self, depth: int) -> str:
        parts = [
            self._compound(depth) if depth < 3 and self._chance(0.25) else self._command()
            for _ in range(self._rng.choice((1, 1, 2, 2, 3)))
        ]
        joint = self._pick("; ", " && ", " || ", " | ", " & ", "\n")
        return joint.join(parts)


def misses(scripts: Collection[str], shell: str = "bash") -> tuple[int, list[str]]:
    """Run the scripts that can be taken apart; return how many, and what their rules hid."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name).resolve()
        root, stubs, log = home / "root", home / "stubs", home / "log"
        _prepare(home)
        accepted: dict[str, list[str]] = {}
        for script in scripts:
            try:
                found = command_requirements([shell, "-c", script], root, root)
            except OnceOnlyError:
                continue
            accepted[script] = [requirement.rule for requirement in found]
        log.touch()
        subprocess.run(
            ["/bin/bash", "-c", _DRIVER, "bash", root, log, shell], env={"PATH": str(stubs)},
            input="".join(f"{script}\0" for script in accepted).encode(), check=True,
        )  # fmt: skip
        done = log.read_bytes().decode("utf-8", "replace").split("\0\1")[:-1]
        assert len(done) == len(accepted), "a script ended the shell that runs them"
        return len(done), [
            f"{script!r} with {rules}: {missed}"
            for (script, rules), record in zip(accepted.items(), done, strict=True)
            for missed in _unnamed(record, rules, root)
        ]


def _prepare(home: Path) -> None:
    new, stubs = home / "root.new", home / "stubs"
    for folder in (stubs, *(new / part for part in ("b", "0", "1", "2", "3", "10"))):
        folder.mkdir(parents=True)
    for name in (*_LISTED, *_PAYLOADS):
        for folder, mark in ((stubs, ""), (new / "b", ELSEWHERE)):
            (folder / name).write_text(_STUB.format(mark=mark, log=home / "log"))
            (folder / name).chmod(0o755)
    for name in ("env", "timeout", "nice", "xargs", "bash"):
        (stubs / name).symlink_to(shutil.which(name) or name)
    for name in ("0", "1", "2", "3", "10"):
        shutil.copytree(new / "b", new / name, dirs_exist_ok=True)
    (new / "f").write_text("a\n")
    shutil.copytree(new, home / "root", symlinks=True)


def _unnamed(record: str, rules: Collection[str], root: Path) -> Iterator[str]:
    """What a script did that no rule names."""
    before = {path.name for path in Path(f"{root}.new").iterdir()}
    done, _, listed = record.partition("\0files\0")
    for run in done.split("\0run\0")[1:]:
        words = run.split("\0")
        if any(rule.startswith("run PATH=") for rule in rules):
            words[0] = words[0].removesuffix(ELSEWHERE)  # so the rule says
        begin = rule_words([*map(Word, words)])
        try:
            named = (
                words[0] in NEUTRAL_PROGRAMS
                or (begin is not None and command_rule(begin, prefix=True) in rules)
                or (command_rule(words, prefix=False) in set(map(_started, rules)))
            )
        except OnceOnlyError:
            named = False
        if not named:
            yield f"runs {words}"
    for created in set(listed.split("\0")) - before - {""}:
        if not any(rule == f"write {root}/…" for rule in rules):
            yield f"writes {created}"


def _started(rule: str) -> str:
    """Return the rule for the program that runs in the end, of variables and of ``env --``."""
    words = shlex.split(rule.removeprefix("run "))
    while len(words) > 1 and ("=" in words[0] or words[0] == "--" or words[0] in _WRAPPERS):
        words.pop(0)
    return f"run {shlex.join(words)}"


async def attempts(names: Collection[str], batch: int = BATCH) -> AsyncIterator[Attempt]:
    """Try so many scripts for each of these names."""
    for name in names:
        grammar = Grammar(name)
        ran, missed = misses({grammar.script(): None for _ in range(batch)})
        more, hidden = misses({grammar.script(): None for _ in range(batch // 4)}, "sh")
        ran, missed = min(ran, more), [*missed, *(f"sh: {each}" for each in hidden)]
        yield Attempt("rules for commands", name, ran > 0 and not missed, "; ".join(missed[:2]))
