"""Calls the commands with arguments, files and surroundings that nobody would think of.

Each call follows from its seed and number alone: a home of its own is made for it, so that one that
fails can be repeated.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

from agent.cli.main import app
from tests.support import forks
from tests.support.program import ROOT
from tests.support.scripts import HELLO

EXIT_CODES = {0, 1, 2, 3, 4}
"""Those of the documentation, but those of signals and of readers that are gone."""
SECONDS = 120
"""After which a call counts as one that hangs."""
WITHOUT_END = {"serve", "mcp serve", "chat", "config edit"}
"""Commands that serve, or wait for a person."""
LONG_OPTIONS = {"--bench", "--help"}
NOWHERE = "http://127.0.0.1:9"
"""Nothing listens there."""
TEXTS = (
    "", " ", "-", "--", "-1", "0", "1", "99999999999999999999", "1e999", "nan", "-inf", "0.5",
    "true", "x", "a" * 300, "a/" * 2100, "~", "~nobody-here/x", "~nobody-here", "/", ".", "..",
    "./x", "/dev/null", "/dev/full", "/dev/null/x", "loop", "loop/x", "folder", "folder/x",
    "missing/x", "file.txt", "locked/x", "empty", "binary", "ok.jsonl", "deep.json", "list.json",
    "requests.jsonl", "\u202e", "İ\u0301", "\ud800", "\udcff", "\x1b[2J", "a\nb", "'", '"', "%",
    "%s", "{}", "[]", '{"a":1}', "null", "=", "a=b", "=b", ":", "a:b", "a,b", ",", "@", "@file.txt",
    "@missing", "@loop", "@folder", "script:", "script:ok.jsonl", "script:loop", "script:folder",
    "script:binary", "http://", "http://[", NOWHERE, "file:///x", "a/b", "a/b:c", "../x", "tiny",
    "TINY", "gpt-oss-20b", "mine", "wrong", "all", "none", "python", "files", "shell.exec", "time",
    "high", "theme", "effort", "keys.view", "model", "browser.searxng", "md", "openai", "cancel",
    "decline",
)  # fmt: skip
CONFIGS = (
    None, b"", b'effort = "high"\n', b"\xef\xbb\xbftop_k = 3\r\n", b"effort = \n", b"\xff\xfe",
    b"\x00", b"a = 1", b"top_k = 1e400", b"keep_alive = inf", b"keep_alive = 1" + b"0" * 400,
    b'model = "~nobody-here/x"', b'model = "' + b"a" * 300 + b'"', b'model = "a\\u0000b"',
    b'theme = "nosuch"', b"[browser]\nsearxng = 1", b'[browser]\nsearxng = "http://["\n',
    b"[keys]\nview = 1", b"[[keys]]", b"a = " + b"[" * 3000,
    b"responses_max = 99999999999999999999", b"prefix_cache = 1e8", b"temperature = 1000001",
)  # fmt: skip
MODELS = (
    None, b"", b"[", b"\xff", b"mine = 1", b'[mine]\npath = "~nobody-here/x"',
    b'[mine]\npath = "loop"', b"[x]\nsampling = { logit_bias = [[inf, 1]] }", b"a = " + b"[" * 3000,
    b'[mine]\npath = "' + b"a" * 300 + b'"', b'[mine]\npath = "a\\u0000b"',
    b'[mine]\npath = "folder"', b'[mine]\nrepo = "a/b"\nfile = "x.gguf"',
    b'[mine]\nrepo = "a/b"\nfile = "' + b"a" * 300 + b'"',
    b'[wrong]\nengine = "vllm"\nurl = "http://["',
    b'[mine]\nengine = "vllm"\nurl = "http://127.0.0.1:9"\nwait = 0',
    b"[mine]\ncontext = 1" + b"0" * 30, b'[tiny]\npath = "missing.gguf"', b'[tiny]\ndraft = "tiny"',
    b"[mine]\nkeep_alive = inf",
)  # fmt: skip
SERVERS = (
    None, b"", b"{", b"[]", b"\xff", b"null", b'{"mcpServers": 1}', b'{"mcpServers": {"x": 1}}',
    b'{"mcpServers": {"time": {"command": "true"}}}', b'{"mcpServers": {"time": {"command": ""}}}',
    b'{"mcpServers": {"time": {"command": "/nowhere/x"}}}',
    b'{"mcpServers": {"time": {"url": "http://["}}}',
    b'{"mcpServers": {"time": {"url": "http://127.0.0.1:9/"}}}', b"[" * 100000,
    b'{"mcpServers": {"": {"command": "true"}}}',
    b'{"mcpServers": {"time": {"command": "true", "cwd": "~nobody-here/x"}}}',
    b'{"approve": {"x": "y"}}', b'{"mcpServers": {"time": {"command": "a\\u0000b"}}}',
    b'{"mcpServers": {"time": {"command": "\\ud800"}}}',
    b'{"mcpServers": {"time": {"command": "true", "env": {"a=b": "c"}}}}',
    b'{"mcpServers": {"time": {"command": "true", "env": {"A": "a\\u0000b"}}}}',
)  # fmt: skip
APPROVALS = (
    None,
    b"",
    b"[]",
    b'{"folders": 1}',
    b'{"folders": {"/": 1, "/x": {"rules": ["run ls \\u2026"]}}}',
)
ENVIRONMENTS: tuple[dict[str, str | None], ...] = (
    *({},) * 6, {"HOME": None}, {"HOME": "/dev/null"}, {"HOME": "loop"}, {"TMPDIR": "/nowhere"},
    {"TERM": "dumb"}, {"COLUMNS": "-1"}, {"COLUMNS": "0"}, {"COLUMNS": "x"}, {"LC_ALL": "C"},
    {"AGENT_SEARXNG": "http://["}, {"HF_ENDPOINT": "x"}, {"HF_ENDPOINT": "http://["},
    {"AGENT_MCP_REGISTRY": "x"}, {"OLLAMA_MODELS": "~nobody-here"}, {"LLAMA_CACHE": "loop"},
    {"HF_HUB_CACHE": "a" * 300}, {"AGENT_HOME": "~nobody-here"}, {"AGENT_HOME": "loop"},
    {"AGENT_HOME": "/dev/null"}, {"AGENT_HOME": "file.txt"}, {"AGENT_HOME": "/proc/1/x"},
    {"AGENT_HOME": "a" * 300}, {"AGENT_HOME": None, "HOME": "/proc/1"}, {"AGENT_API_KEY": "\udcff"},
    {"HTTPS_PROXY": "http://["}, {"PATH": ""},
)  # fmt: skip
INPUTS = (
    None,
    None,
    b"",
    b"hello",
    b"\xff\xfe\x00",
    b"[1,2]\n{}\nx\n",
    b"\x89PNG\r\n\x1a\n",
    b"[" * 100000,
)


@dataclass
class Call:
    """A call of the program, and how it ended."""

    number: int
    words: list[str]
    files: dict[str, str]
    """The variants of the files in the home that are not there or in order."""
    environment: dict[str, str | None]
    stdin: bytes | None
    code: int = 0
    stderr: str = ""
    log: str = ""
    """What the program wrote into its log."""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ascii(self.words)[:600]
        return (
            f"{self.number}: {', '.join(self.faults)}: {shown} {self.files} {self.environment}"
            f" stdin={self.stdin if self.stdin is None else self.stdin[:20]!r} -> {self.code}\n"
            f"{self.stderr[-600:]}{_end_of(self.log)}"
        )


class CommandMonkey:
    """Makes up calls, and looks at how they end."""

    def __init__(self, folder: Path, cache: Path, seed: int, *, quick: bool = False) -> None:
        """``folder``: where the homes are made; ``cache``: has the embedded model; ``seed``: of all;
        ``quick``: leaves out commands that measure this machine or start a server."""
        self._folder, self._cache, self._seed = folder, cache, seed
        self._commands = dict(_leaves(get_command(app), ""))
        self._full_disks = 0.0 if quick else 0.08
        if quick:
            del self._commands["doctor"]
        self._template = folder / "template"
        self._make_files(self._template)
        self._store = self._template_store()
        self._texts = (*TEXTS, self._id, self._id[5:13], self._id[5:9])

    def call(self, number: int) -> Call:
        """Make the call with this number, in a home that is removed afterwards."""
        chance = random.Random(f"{self._seed}.{number}")
        home = self._folder / f"{number}"
        work = home / "work"
        shutil.copytree(self._template, work, symlinks=True)
        (work / "locked").mkdir(mode=0)  # not in the template: only root could copy it
        call = Call(
            number,
            self._words(chance),
            self._fill(home, chance),
            dict(chance.choice(ENVIRONMENTS)),
            chance.choice(INPUTS),
        )
        try:
            self._run(call, home, work, full_disk=chance.random() < self._full_disks)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        return call

    def _run(self, call: Call, home: Path, work: Path, full_disk: bool) -> None:
        environment: dict[str, str | None] = {
            **os.environ, "AGENT_HOME": str(home), "HOME": str(home / "person"), "HF_ENDPOINT": NOWHERE,
            "AGENT_MCP_REGISTRY": NOWHERE, **call.environment,
        }  # fmt: skip
        present = {name: value for name, value in environment.items() if value is not None}
        command = forks.relay()
        if full_disk:
            call.files["disk"] = "full"
            call.stdin = call.stdin or b""
            line = 'ulimit -f 0; exec "$0" -P -m agent "$@"'
            command = ["bash", "-c", line, sys.executable]
            present["PATH"] = os.environ["PATH"]
        try:
            done = subprocess.run(
                [*command, *(word.encode("utf-8", "surrogatepass") for word in call.words)],
                cwd=work, env=present, input=call.stdin, capture_output=True, timeout=SECONDS,
                stdin=subprocess.DEVNULL if call.stdin is None else None,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            call.faults.append("hangs")
            return
        call.code, call.stderr = done.returncode, done.stderr.decode("utf-8", "replace")
        log = home / "state" / "agent.log"
        call.log = log.read_text(errors="replace") if log.is_file() else ""
        call.faults += _faults(call)

    def _words(self, chance: random.Random) -> list[str]:
        """A command with arguments, many of which are wrong."""
        name = chance.choice(list(self._commands))
        words = name.split()
        parameters = [p for p in self._commands[name] if not LONG_OPTIONS & {*p.opts}]
        options = [p for p in parameters if p.param_type_name == "option"]
        chosen = chance.sample(options, min(len(options), chance.choice((0, 0, 1, 1, 2, 3))))
        for parameter in parameters:
            if parameter in options:
                if parameter not in chosen:
                    continue
            elif chance.random() > (0.97 if parameter.required else 0.5):
                continue
            count = parameter.nargs if parameter.nargs > 0 else chance.choice((1, 1, 1, 2, 3))
            if parameter in options:
                words.append(chance.choice([*parameter.opts, *parameter.secondary_opts]))
                count = 0 if parameter.is_flag else count
            words += [self._value(parameter, chance) for _ in range(count)]
        if name == "run" and chance.random() < 0.9:
            words += ["--engine", "script:ok.jsonl", "--no-project-instructions"]
        return words

    def _value(self, parameter: Any, chance: random.Random) -> str:
        """A value, in half of the cases one that fits."""
        kind = parameter.bare_type
        fitting: Sequence[object] = get_args(kind) or ()
        if kind in (int, float):
            fitting = (0, 1, 2, 0.5, 300, -1, 10**20)
        elif parameter.name in ("session", "sessions", "resume"):
            fitting = (self._id, self._id[5:13])
        elif parameter.name == "name":
            fitting = ("tiny", "mine", "time", "theme", "effort", "model")
        return str(chance.choice(fitting if fitting and chance.random() < 0.5 else self._texts))

    def _fill(self, home: Path, chance: random.Random) -> dict[str, str]:
        """Make the files of a home; returns those that are not as they should be."""
        for folder in ("config", "state", "person"):
            (home / folder).mkdir()
        (home / "cache").mkdir()
        for each in self._cache.iterdir():
            if each.name != "prefixes":
                (home / "cache" / each.name).symlink_to(each)
        odd: dict[str, str] = {}
        for name, contents in (
            ("config/config.toml", CONFIGS),
            ("config/models.toml", MODELS),
            ("config/mcp.json", SERVERS),
            ("work/.mcp.json", SERVERS),
            ("state/approvals.json", APPROVALS),
            ("state/tokens.json", APPROVALS),
        ):
            if chance.random() < 0.75:
                continue
            path, kind = home / name, chance.random()
            if kind < 0.1:
                path.symlink_to(path.name)
            elif kind < 0.2:
                path.mkdir()
            elif (content := chance.choice(contents)) is not None:
                path.write_bytes(content)
                kind = 0
            odd[name] = "loop or folder" if kind else repr(content[:80] if content else content)
        store, kind = home / "state/store.sqlite", chance.random()
        if kind < 0.7:
            shutil.copy(self._store, store)
            return odd
        if kind < 0.75:
            store.mkdir()
        elif kind < 0.8:
            store.write_bytes(b"no database " * 1000)
        elif kind < 0.85:
            store.write_bytes(self._store.read_bytes()[: chance.randrange(1, 60000)])
        elif kind < 0.9:
            store.symlink_to(store.name)
        odd["store"] = f"{kind:.2f}"
        return odd

    def _make_files(self, folder: Path) -> None:
        """The folder that the commands run in."""
        (folder / "folder").mkdir(parents=True)
        (folder / "loop").symlink_to("loop")
        (folder / "empty").touch()
        (folder / "file.txt").write_text("a text\n")
        (folder / "binary").write_bytes(bytes(range(256)))
        (folder / "ok.jsonl").write_text(json.dumps({"markup": HELLO}) + "\n")
        (folder / "deep.json").write_text("[" * 100_000)
        (folder / "list.json").write_text("[1]")
        body = {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": {"input": "hi"}}
        (folder / "requests.jsonl").write_text(f"{json.dumps(body)}\nx\n")

    def _template_store(self) -> Path:
        """A store with one conversation."""
        home = self._folder / "first"
        environment = {**os.environ, "AGENT_HOME": str(home)}
        words = ["run", "hello", "--engine", f"script:{self._template / 'ok.jsonl'}", "-q"]
        subprocess.run(
            [*forks.relay(), *words],
            env=environment,
            cwd=ROOT,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        listed = subprocess.run(
            [*forks.relay(), "sessions", "list", "--all", "--json"],
            env=environment, capture_output=True, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._id: str = json.loads(listed.stdout)[0]["id"]
        return home / "state/store.sqlite"


def _leaves(command: Any, name: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the commands that do something, by name, with their parameters."""
    commands = getattr(command, "commands", None)
    if commands is None and name not in WITHOUT_END:
        yield name, command.params
    for inner, each in (commands or {}).items():
        yield from _leaves(each, f"{name} {inner}".strip())


def _end_of(log: str) -> str:
    """The last traceback of a log: where it is in this program, and the error."""
    frames = re.findall(rf'  File "{ROOT}/(?!.venv)(.+), in .+', log.rpartition("Traceback")[2])
    return "".join(f"  {frame}\n" for frame in frames[-4:]) + "".join(log.splitlines()[-1:])


def _faults(call: Call) -> Iterator[str]:
    """Yield what is wrong with the end of a call."""
    if call.code not in EXIT_CODES:
        yield f"exit code {call.code}"
    for text in ("Traceback", "went wrong inside", "Exception in"):
        if text in call.stderr:
            yield text
    if "Traceback" in call.log and not call.stderr.startswith("agent: The store"):
        yield "traceback in the log"
    lines = call.stderr.strip().splitlines()
    said = any(re.match(r"agent: .+|Usage: ", line) for line in lines)
    if call.code == 2 and not said and call.words[0] != "doctor":
        yield "no sentence"
