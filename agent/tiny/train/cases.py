"""What the evaluation asks: generated cases of held-out values, and the handwritten lists."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.tiny.train import data, dialogues, results
from agent.tiny.train.tools import FIXED, HANDS, Param, Tool, fixed
from agent.tiny.train.turns import Turn
from agent.tiny.train.words import Split

PROMPTS = Path(__file__).with_name("prompts")
COUNTS = {
    "python": 150, "read": 50, "list": 45, "search": 45, "weather": 45, "time": 45, "echo": 40,
    "sum": 40, "note": 40, "define": 40, "error": 60, "two": 120, "follow": 120, "unseen": 150,
    "chat": 70, "decline": 100, "row": 120,
}  # fmt: skip


@dataclass
class Expected:
    """A call that should come: a tool's name and arguments, or python code with this result."""

    name: str
    arguments: dict[str, Any]
    result: str


@dataclass
class Step:
    user: str
    calls: list[Expected] = field(default_factory=list)
    answer: list[str] = field(default_factory=list)


@dataclass
class Case:
    kind: str
    prefix: list[int]
    steps: list[Step]


def step_of(turn: Turn) -> Step:
    """What a generated turn expects."""
    calls: list[Expected] = []
    answer: list[str] = []
    for call in turn.calls:
        arguments: dict[str, Any] = {} if call.tool else {"code": call.code}
        if call.tool:
            for param, value in zip(call.tool.params, call.values, strict=False):
                arguments[param.name] = value if param.kind == "string" else json.loads(value)
        calls.append(Expected(call.tool.name if call.tool else "python", arguments, call.result))
        moment = results.moment(call.result) if call.family == "time" else None
        answer.append(moment or call.result.split("\n")[0])
    if not turn.calls:
        answer = [turn.reply]
    return Step(turn.user, calls, answer)


def one(rng: random.Random, kind: str) -> Case | None:
    """A case of a kind, or None when the random prefix has no use for it."""
    split: Split = "eval"
    prefix = data.make_prefix(rng, split)
    talker = dialogues.Talker(rng, split, prefix.python, prefix.tools, data.clean, data.encode)
    by_family: dict[str, list[Tool]] = {}
    for tool in prefix.tools:
        by_family.setdefault(tool.family, []).append(tool)
    match kind:
        case "python":
            if not prefix.python:
                return None
            request = talker.of_python()
            turns = [Turn(request.text, [], [request.call])]
        case "chat":
            turns = [talker.chat()]
        case "decline":
            turns = [talker.declined()]
        case "two":
            turns = [talker.double()]
            if len(turns[0].calls) != 2:
                return None
        case "follow":
            turns = talker.follow()
            if len(turns) != 2:
                return None
        case "row":
            turns = talker.row()
            if not turns[-1].calls:
                return None
        case "error":
            turns = [talker.single()]
            if not turns[0].calls or not results.is_error(turns[0].calls[0].result):
                return None
        case _:
            if kind not in by_family:
                return None
            request = talker.of_tool(rng.choice(by_family[kind]))
            turns = [Turn(request.text, [], [request.call])]
    return Case(kind, prefix.ids, [step_of(turn) for turn in turns])


def generated(share: float = 1.0, seed: str = "evaluation") -> list[Case]:
    """`share` of COUNTS cases; their numbers, names, paths and words occur in no training data."""
    rng = random.Random(seed)
    out: list[Case] = []
    for kind, count in COUNTS.items():
        wanted = max(1, round(count * share))
        while wanted:
            case = one(rng, kind)
            if case and len(case.prefix) < 900:
                out.append(case)
                wanted -= 1
    return out


def canonical(family: str) -> Tool:
    """A family's tool as the program declares it."""
    names, descriptions, params = FIXED[family].values()
    tool = fixed(random.Random(0), family, 1.0)
    plain = tuple(Param(p.name, p.kind, p.required) for p in tool.params)
    assert plain[0].name == params[0]
    return Tool(family, names[0], descriptions[0], plain)


SERVERS = {
    "files": HANDS, "weather": ("weather",), "time": ("time",), "everything": ("echo", "sum"),
    "notes": ("note",), "dictionary": ("define",),
}  # fmt: skip


def declared(names: list[str]) -> tuple[bool, list[Tool]]:
    """Whether python is declared, and the tools of the named servers."""
    tools: list[Tool] = []
    for name in names:
        if name == "client":
            city = (Param("city"),)
            tools.append(Tool("weather", "get_weather", "Get the current weather.", city))
        elif name != "python":
            tools += [canonical(family) for family in SERVERS[name]]
    return "python" in names, tools


def handwritten(name: str) -> list[Case]:
    """The cases of a file in prompts/."""
    content = json.loads((PROMPTS / f"{name}.json").read_text(encoding="utf-8"))
    out: list[Case] = []
    for item in content["cases"]:
        python, tools = declared(item["tools"])
        prefix = data.render_prefix(random.Random(7), python, tools, None)
        steps = [
            Step(
                turn["user"],
                [Expected(c["name"], c.get("arguments", {}), c["result"]) for c in turn["calls"]],
                turn["answer"],
            )
            for turn in item["turns"]
        ]
        out.append(Case(name, prefix, steps))
    return out
