"""Rules for commands: what one covers, and that no trick gets a command under another's rule."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import HANG_SECONDS
from tools.policy.commands import command_requirements
from tools.policy.rules import OnceOnlyError, explain_rule

GRANTED = frozenset(
    ("run git status …", "run git log …", "run git diff …", "run find …", "run cat …", "run echo …",
     "run sort …", "run ls …", "run wc …", "run grep …", "run printf …", "run test …", "run true …",
     "run sed -n …", "run uniq …", "run cd …", "run env …", "run xargs …", "run xargs touch …")
)  # fmt: skip


def rules(script: str, folder: Path) -> list[str]:
    requirements = command_requirements(["bash", "-lc", script], folder, folder)
    return [requirement.rule for requirement in requirements]


def is_allowed(words: list[str], root: Path) -> bool:
    try:
        requirements = command_requirements(words, root, root)
    except OnceOnlyError:
        return False
    return all(requirement.is_met(GRANTED) for requirement in requirements)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("git status -s", ["run git status …"]),
        ("git status && rm -rf x; ls | wc -l", ["run git status …", "run rm -rf x", "run ls …",
                                                "run wc …"]),
        ("cd src && git log --oneline", ["run git log …"]),
        ("bash -c 'git status; sh -c \"ls -l\"'", ["run git status …", "run ls …"]),
        ("cat <<'EOF'\n$(rm x)\nEOF\nls", ["run cat …", "run ls …"]),
        ("echo \"$(git log)\" '$(rm x)'", ["run git log …"]),
        ("diff <(ls a) b", None),
        ("for f in *.py; do wc -l \"$f\"; done", ["run wc …"]),
        ("[ -f x ] && cat x || (true; ! grep -q a b)", ["run cat …", "run grep …"]),
        ("LANG=C timeout 5 git status 2>/dev/null", ["run git status …"]),
        ("FOO=1 git status", ["run FOO=1 git status"]),
        ("find . -name '*.py' | xargs grep -n foo", ["run find …", "run grep …"]),
        ("find . -name x -exec rm {} \\;", ["run find . -name x -exec rm '{{}}' ';'"]),
        ("sed -n '1,50p' a.txt", ["run sed -n …"]),
        ("sed -n '1w b' a.txt", ["run sed -n '1w b' a.txt"]),
        ("python3 -m pytest -q", ["run python3 -m pytest …"]),
        ("./x.sh a", ["run {root}/x.sh a"]),
        ("echo hi > src/a.txt 2>&1", ["write {root}/src/…"]),
        ("set -euo pipefail\nls -la # all of it\n", ["run ls …"]),
        ("git status \\\n  -s", ["run git status …"]),
    ],
)  # fmt: skip
def test_command_rules_per_command(script: str, expected: list[str] | None, tmp_path: Path) -> None:
    if expected is None:
        with pytest.raises(OnceOnlyError):
            rules(script, tmp_path)
    else:
        assert rules(script, tmp_path) == [rule.format(root=tmp_path) for rule in expected]


ATTACKS = [
    "git status; touch pwned",
    "git status\ntouch pwned",
    "git status & touch pwned",
    "git diff --no-such-option || touch pwned",
    "echo $(touch pwned)",
    "echo `touch pwned`",
    'echo "a `touch pwned`"',
    "cat <<EOF\n`touch pwned`\nEOF",
    "cat <<EOF\n$(touch pwned)\nEOF",
    "cat <<'EOF'\nEOF\ntouch pwned",
    "cat <<'E F'\nx\nE F\ntouch pwned",
    "cat <<-EOF\n\tEOF\ntouch pwned",
    "ls <(touch pwned)",
    "echo ${x:-$(touch pwned)}",
    "x='$(touch pwned)'; echo ${x@P}",
    "echo $((a[$(touch pwned)]))",
    "test -v 'a[$(touch pwned)]'",
    "x='a[$(touch pwned)]'; [[ $x -eq 1 ]]",
    "git() { touch pwned; }; git status",
    "function ls { touch pwned; }; ls",
    "eval touch pwned",
    "bash -c 'touch pwned'",
    "env touch pwned",
    "env -S 'touch pwned'",
    "command touch pwned",
    "exec touch pwned",
    "trap 'touch pwned' EXIT; ls",
    "echo 'touch pwned' | sh",
    "echo pwned | xargs touch",
    "sh <<< 'touch pwned'",
    "true && { touch pwned; }",
    "(touch pwned)",
    "if true; then touch pwned; fi",
    "x=touch; $x pwned",
    "PATH=$PWD/b:$PATH; ls",
    "PATH=$PWD/b:$PATH ls",
    "env PATH=$PWD/b:$PATH ls",
    "for PATH in $PWD/b; do ls; done",
    "printf -v PATH '%s' $PWD/b; ls",
    "read PATH <<< $PWD/b; ls",
    "cd b && ./ls",
    "hash -p $PWD/b/ls ls; ls",
    "sleep 0 & wait -n -p 'a[$(touch pwned)]'; ls",
    "echo {a['$(touch pwned)']}>/dev/null; ls",
    "echo {a['$(touch pwned)']}>&1",
    "echo {a['$(touch pwned)']}<<<x",
    "echo x >&'out$(touch pwned)'",
    "printf 'b%n' PATH; ls",
    "echo {PATH}>/dev/null; ls",
    "x='a[$(touch pwned)]'; ((x)); ls",
    "echo $[a[$(touch pwned)]]",
    "mapfile -C 'touch pwned; :' -c 1 <<< x; ls",
    "compgen -C 'touch pwned' >/dev/null; ls",
    "command -- eval touch pwned; ls",
    "export PATH=$PWD/b:$PATH; ls",
    "declare -i x='a[$(touch pwned)]'; ls",
    "let 'a[$(touch pwned)]'; ls",
    "x='b[$(touch pwned)]'; echo ${!x}",
    "env 'BASH_FUNC_ls%%=() { touch pwned; }' bash -c ls",
    "find . -maxdepth 0 <b/ls -exec touch pwned ';'",
    "find . -maxdepth 0 <<E -exec touch pwned ';'\nE",
    """x=' -fprint pwned '; find . a"$(echo '"')"$x"$(echo '"')" -maxdepth 0""",
    "shopt -s expand_aliases\nalias ls='touch pwned'\nls",
    "find . -maxdepth 0 -exec touch pwned ';'",
    "find . -maxdepth 0 -fprint pwned",
    "x='-fprint pwned'; find . -maxdepth 0 $x",
    "echo a | sort -o pwned",
    "echo a | sort -uo pwned",
    "echo a | sort --outp=pwned",
    "echo a | uniq - pwned",
    "echo a | sed -n 'w pwned'",
    "git -c core.fsmonitor='touch pwned; false' status",
    "git -c alias.status='!touch pwned' -c alias.x='!touch pwned' x",
    "git diff --no-index --output=pwned /dev/null /etc/hostname",
    "GIT_EXTERNAL_DIFF='touch pwned; true' git diff --no-index --ext-diff /dev/null /etc/hostname",
    "echo a > pwned",
    "ls >pwned",
    "ls &> pwned",
    "ls >| pwned",
    "ls 2>&1 >> pwned",
    "to\\\nuch pwned",
    "'touch' pwned",
    "$'touch' pwned",
    "t''ouch pwned",
]  # fmt: skip
"""Scripts that all make a file although nobody allowed that."""


@pytest.mark.parametrize("script", ATTACKS)
def test_command_attack_not_covered_by_rules(script: str, tmp_path: Path) -> None:
    """Each is run by the real shell too: an attack that does nothing would prove nothing."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=env, check=True)
    subprocess.run([*git, "commit", "-qm", "a", "--allow-empty"], cwd=tmp_path, env=env, check=True)
    for folder in ("b", "1", "10"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ls").write_text(f"#!/bin/sh\n: > {tmp_path}/pwned")
        (tmp_path / folder / "ls").chmod(0o755)
    assert not is_allowed(["bash", "-lc", script], tmp_path)
    subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=HANG_SECONDS
    )
    assert (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "script",
    ["", "ls 'a", "ls &&", "ls )", "case x in x) ls;; esac", "ls\r", "ls\u00a0-l", "ls \u202e",
     "ls \ud800", "(" * 300 + "ls" + ")" * 300, "ls " + "x" * 30_000, "a=(1 2); ls",
     "cd x && ./run.sh", "cd x && echo > f", "echo > /etc/passwd", "echo > .git/config",
     "echo > $x", "find . *", "find . $x", "sort *.txt",
     "export PATH=x", "coproc ls", "ls <> f", "tee f < x", "99999999999999999999>f ls",
     "for http_proxy in x; do git log; done", "select x in a; do ls; done", "jobs -x ls; ls",
     "PATH=b :; ls", "ls 2>&1 5", "cat < f -n", "[[ -v a ]]", "test -v a", "echo 1>&a$x", "x=1 cd b",
     'uniq x=1 "{a["\\`p0\\`"]}"'],
)  # fmt: skip
def test_command_unclear_script_once_only(script: str, tmp_path: Path) -> None:
    with pytest.raises(OnceOnlyError):
        rules(script, tmp_path)


@pytest.mark.parametrize("script", ["./loop", "loop/x -a", "ls > loop"])
def test_command_through_a_loop_of_links_once_only(script: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OnceOnlyError, match="is not a path"):
        rules(script, tmp_path)


def test_command_exact_rule_is_for_what_bash_makes_of_the_quotes(tmp_path: Path) -> None:
    """Bash takes a backslash before `$` and a backquote away in double quotes, not in single ones."""
    single, double = (rules(f"sed -i {text} f", tmp_path) for text in (r"'s/\$//'", r'"s/\$//"'))
    assert single == [r"run sed -i 's/\$//' f"] and double == ["run sed -i 's/$//' f"]
    assert rules(r'make "X=\`a\`\\\a\""', tmp_path) == [r"""run make 'X=`a`\\a"'"""]
    assert rules("make 'X=~/y'", tmp_path) == ["run make 'X=~/y'"]
    with pytest.raises(OnceOnlyError):
        rules("make X=~/y", tmp_path)


@pytest.mark.parametrize(
    "line",
    ["ruff check --fix-only .", "ruff check --fix .", "date 010112002030", "date -s x", "date -f f",
     "go doc -http", "go vet -fix ./...", "pip list --log-file x", "npm test -script-shell x",
     "npm test ---script-shell=x", "npm test -script-sh x", "mypy @a m.py", "ruff check @a",
     "pytest @a", "python3 -m pytest @a", "file --uncompress-noreport f", "mypy --timing-stats f a.py"],
)  # fmt: skip
def test_command_option_that_does_more_has_its_own_rule(line: str, tmp_path: Path) -> None:
    assert rules(line, tmp_path) == [f"run {line}"]


@pytest.mark.parametrize(
    "script", ["ls $'\\'; touch pwned #'", "x+=./p; ls", 'ls $"a"', "a[0]=./p; ls"]
)
def test_command_script_that_sh_reads_otherwise_is_once_only(script: str, tmp_path: Path) -> None:
    """dash has no ``$'…'``: the quote ends at ``\\'``, and ``touch`` is a command."""
    for shell in ("sh", "dash", "/bin/sh"):
        assert not is_allowed([shell, "-c", script], tmp_path)
        assert not is_allowed(["bash", "-c", f"{shell} -c {shlex.quote(script)}"], tmp_path)


def test_command_script_of_an_interpreter_has_rules_in_the_root_only(tmp_path: Path) -> None:
    (folder := tmp_path / "sub").mkdir()
    script = ["python3", "x.py"]
    assert command_requirements(script, tmp_path, tmp_path)[0].rule == "run python3 x.py"
    for words in (script, ["node", "--no-warnings", "x.js"]):
        with pytest.raises(OnceOnlyError, match="depends on its folder"):
            command_requirements(words, folder, tmp_path)
    with pytest.raises(OnceOnlyError, match="depends on its folder"):
        rules("cd sub && python3 x.py", tmp_path)
    absolute = command_requirements(["python3", f"{tmp_path}/x.py"], folder, tmp_path)
    assert absolute[0].rule == f"run python3 {tmp_path}/x.py"


def test_command_arguments_without_shell_are_words(tmp_path: Path) -> None:
    assert is_allowed(["echo", "a; touch pwned", "$(touch pwned)"], tmp_path)
    assert not is_allowed(["/tmp/git", "status"], tmp_path)
    assert not is_allowed(["./git", "status"], tmp_path)
    assert not is_allowed(["git status"], tmp_path)
    assert not is_allowed(["bash", "-c", "ls", "x"], tmp_path)


def test_command_write_rule_covers_folders_below(tmp_path: Path) -> None:
    (needed,) = command_requirements(["sh", "-c", "echo x > a/b/c.txt"], tmp_path, tmp_path)
    assert needed.rule == f"write {tmp_path}/a/b/…"
    assert needed.is_met({f"write {tmp_path}/…"}) and needed.is_met({f"write {tmp_path}/a/…"})
    assert not needed.is_met({f"write {tmp_path}/a/b/c/…", f"write {tmp_path.parent}/…"})
    (tmp_path / "away").symlink_to("/etc")
    with pytest.raises(OnceOnlyError, match="outside"):
        command_requirements(["sh", "-c", "echo x > away/x"], tmp_path, tmp_path)


def test_explain_rule_every_kind() -> None:
    kinds = ("run git status …", "run make", "write /x/…", "open example.org", "fly home")
    assert len({explain_rule(rule) for rule in kinds}) == len(kinds)
