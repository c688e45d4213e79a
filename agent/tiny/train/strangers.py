"""Asks the embedded model what strangers wrote, through ``agent serve``, and counts what is right.

    python -m agent.tiny.train.strangers LIST … [--temperature 0] [--misses]

A list has a ``fixture`` (files by path, the root of the files tool) and ``cases`` with ``kind`` and
``turns``; a turn has ``user``, ``expect_any`` (of each group one substring is in the answer, apart
from case and commas), and for functions ``call`` or ``calls`` with ``args`` (a list means any of its
values), ``optional`` and ``result``; their case has the ``tools``. Never train on such a list.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from agent.tiny.train import phrases

HANDS = [
    {
        "type": "mcp", "server_label": "code_interpreter", "server_url": "IGNORED",
        "require_approval": "never",
    },
    {
        "type": "mcp", "server_label": "files", "server_url": "IGNORED",
        "require_approval": "never", "allowed_tools": ["read", "list", "search"],
    },
]  # fmt: skip
MAX_TOKENS = 600
"""Tokens after which a response is cut off."""
MAX_ROUND_TOKENS = 300
"""Tokens of a response that ended by itself in good time."""
MAX_ROUNDS = 4
"""Requests of one case with functions."""
UNCERTAIN = re.compile(
    r"cannot|not sure|did not understand|did not work|no matches|nothing was found", re.I
)
"""An answer that claims nothing."""
HEDGE = phrases.HEDGE.partition(":")[0]
"""How the program's doubts of an answer and of a call begin."""

Json = dict[str, Any]


class Asker:
    """Asks cases of one server."""

    def __init__(self, url: str, temperature: float) -> None:
        self._http = httpx2.Client(base_url=url, timeout=120)
        self._temperature = temperature
        self.hedged = False
        """Whether a response of the case had a doubt."""

    def ask(self, body: Json) -> Json:
        """Make a response; one that is refused has the status ``refused``."""
        defaults = {"max_output_tokens": MAX_TOKENS, "temperature": self._temperature}
        answer = self._http.post("/responses", json={"model": "default", **defaults, **body})
        if answer.status_code != 200:
            return {"id": None, "status": "refused", "output": [], "usage": {"output_tokens": 0}}
        response: Json = answer.json()
        self.hedged = self.hedged or HEDGE in text_of(response)
        return response

    def ask_turns(self, case: Json) -> tuple[bool, Json]:
        """Whether every turn of a case without functions is right; the last response."""
        previous: str | None = None
        response: Json = {}
        for turn in case["turns"]:
            link = {"previous_response_id": previous} if previous else {}
            response = self.ask({"input": turn["user"], "tools": HANDS, **link})
            previous = response["id"]
            right = ends_in_time(response) and has_all(text_of(response), turn.get("expect_any"))
            if case["kind"] in ("chat", "decline"):
                right = right and not calls_of(response)
            if not right:
                return False, response
        return True, response

    def ask_functions(self, case: Json) -> tuple[bool, Json]:
        """Whether the functions of a case are called as they should be; the last response."""
        response: Json = {}
        for turn in case["turns"]:
            right, response = self._ask_turn(turn, case["tools"], response.get("id"))
            if not right:
                return False, response
        return True, response

    def _ask_turn(self, turn: Json, tools: list[Json], previous: str | None) -> tuple[bool, Json]:
        """Whether one turn makes its calls and answers; the last response."""
        wanted = list(turn.get("calls") or ([turn["call"]] if "call" in turn else []))
        response = self.ask(
            {"input": turn["user"], "tools": tools}
            | ({"previous_response_id": previous} if previous else {})
        )
        for _ in range(MAX_ROUNDS):
            made = [item for item in response["output"] if item["type"] == "function_call"]
            if not made:
                break
            outputs = []
            for call in made:
                fitting = next((one for one in wanted if fits(one, call)), None)
                if fitting is None:
                    return False, response
                wanted.remove(fitting)
                result = str(fitting.get("result", turn.get("result", "done")))
                outputs.append(
                    {"type": "function_call_output", "call_id": call["call_id"], "output": result}
                )
            response = self.ask(
                {"previous_response_id": response["id"], "tools": tools, "input": outputs}
            )
        right = not wanted and has_all(text_of(response), turn.get("expect_any"))
        return right and response["status"] == "completed", response


def text_of(response: Json) -> str:
    """The text of a response."""
    messages = (item for item in response["output"] if item["type"] == "message")
    return "".join(part.get("text", "") for item in messages for part in item["content"])


def calls_of(response: Json) -> list[Json]:
    """The calls of a response."""
    return [item for item in response["output"] if item["type"] in ("mcp_call", "function_call")]


def ends_in_time(response: Json) -> bool:
    """Whether a response ended by itself within `MAX_ROUND_TOKENS`."""
    count: int = response["usage"]["output_tokens"]
    return response["status"] == "completed" and count <= MAX_ROUND_TOKENS


def has_all(text: str, groups: list[list[str]] | None) -> bool:
    """Whether the text has one substring of each group, apart from case and commas."""

    def plain(some: object) -> str:
        return str(some).replace(",", "").lower()

    return all(any(plain(one) in plain(text) for one in group) for group in groups or [])


def fits(wanted: Json, call: Json) -> bool:
    """Whether a call is the one that is wanted."""
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return False
    optional = wanted.get("optional", [])
    required = {name: value for name, value in wanted["args"].items() if name not in optional}
    return (
        call["name"] == wanted["name"]
        and required.keys() <= arguments.keys()
        and arguments.keys() <= {*wanted["args"], *optional}
        and all(
            same(wanted["args"][name], value)
            for name, value in arguments.items()
            if name in wanted["args"]
        )
    )


def same(wanted: Any, value: Any) -> bool:
    """Whether an argument is one of those that are wanted, apart from case and blanks around it."""
    return any(
        str(one).strip().lower() == str(value).strip().lower()
        for one in (wanted if isinstance(wanted, list) else [wanted])
    )


@contextmanager
def serve(fixture: dict[str, str], model: str) -> Iterator[str]:
    """Run ``agent serve`` in a folder of its own with these files; yields its base URL."""
    with tempfile.TemporaryDirectory(prefix="strangers-") as folder:
        root = Path(folder, "root")
        for name, content in {"": "", **fixture}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name:
                path.write_text(content, encoding="utf-8")
        root.mkdir(exist_ok=True)
        command = [sys.executable, "-P", "-m", "agent", "serve", "--port", "0", "--model", model]
        command += ["--tools", "python,files", "--root", str(root)]
        process = subprocess.Popen(
            command,
            env={**os.environ, "AGENT_HOME": str(Path(folder, "home"))},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            url = re.search(r"http://\S+/v1", process.stdout.readline())
            if url is None:
                raise RuntimeError("agent serve did not start")
            yield url[0]
        finally:
            process.terminate()
            process.wait(20)


def measure(path: Path, model: str, temperature: float, *, show_misses: bool) -> list[str]:
    """Ask all cases of a list; lines of a Markdown table."""
    content = json.loads(path.read_text(encoding="utf-8"))
    right: Counter[str] = Counter()
    count: Counter[str] = Counter()
    hedged: Counter[str] = Counter()
    confident: Counter[str] = Counter()
    loops: Counter[str] = Counter()
    with serve(content.get("fixture", {}), model) as url:
        asker = Asker(url, temperature)
        for case in content["cases"]:
            case.setdefault("turns", [{**case}])
            kind = case["kind"]
            ask = asker.ask_functions if case.get("tools") else asker.ask_turns
            asker.hedged = False
            passed, response = ask(case)
            text = text_of(response)
            count[kind] += 1
            right[kind] += passed
            hedged[kind] += passed and asker.hedged
            ended = response["status"] == "completed"
            loops[kind] += not ended
            confident[kind] += not passed and ended and not UNCERTAIN.search(text)
            if show_misses and not passed:
                made = [(call["name"], call["arguments"]) for call in calls_of(response)]
                asked = " | ".join(turn["user"] for turn in case["turns"])
                print(f"{kind}: {asked!r} → {made} {text!r}\n", file=sys.stderr)
    counts = (count, right, hedged, confident, loops)
    for some in counts:
        some["**all**"] = some.total()
    table = [
        "| kind | cases | right % | right, but hedged % | confidently wrong % | not ended % |",
        "|---|---|---|---|---|---|",
    ]
    for kind, cases in count.items():
        shares = (100 * some[kind] / cases for some in counts[1:])
        table.append(
            f"| {kind} | {cases} | " + " | ".join(f"{share:.1f}" for share in shares) + " |"
        )
    return table


def main() -> None:
    """Ask the lists that are named and print a table of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lists", type=Path, nargs="+")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--misses", action="store_true", help="print them on stderr")
    options = parser.parse_args()
    for path, temperature in itertools.product(options.lists, options.temperature):
        print(f"{path.name}, temperature {temperature}\n")
        table = measure(path, options.model, temperature, show_misses=options.misses)
        print("\n".join(table) + "\n", flush=True)


if __name__ == "__main__":
    main()
