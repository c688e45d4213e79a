"""What the evaluation asks: generated cases of held-out values, and the handwritten lists."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.tiny.train import data, dialogues, mixture, results
from agent.tiny.train.declared_functions import CORPUS_FAMILY
from agent.tiny.train.tools import FILE_TOOLS, FIXED, DialogueTool, Param, fixed
from agent.tiny.train.turns import TOO_LONG, DialogueTurn
from agent.tiny.train.words import Split

PROMPTS = Path(__file__).with_name("prompts")
COUNTS = {
    "python": 150, "read": 50, "list": 45, "search": 45, "weather": 45, "time": 45, "echo": 40,
    "sum": 40, "note": 40, "define": 40, "error": 60, "two": 120, "follow": 120, "unseen": 150,
    "chat": 70, "decline": 100, "row": 120,
    "intent": 200, "files": 80, "described": 60, "function": 150, "sequence": 60, "chain": 60,
    "corpus_follow": 60, "corpus_chat": 40, "corpus_decline": 60, "odd": 40,
}  # fmt: skip


CORPUS_KINDS = (
    "intent", "files", "described", "function", "sequence", "chain", "corpus_follow",
    "corpus_chat", "corpus_decline", "odd",
)  # fmt: skip
"""Kinds of the corpus's requests; the others are the generator's own."""


@dataclass
class Expected:
    """A call that should come: a tool's name and arguments, or python code with this result."""

    name: str
    arguments: dict[str, Any]
    result: str


@dataclass
class Step:
    """One turn of a case: the prompt, the calls that should come, and texts of the answer."""

    user: str
    calls: list[Expected] = field(default_factory=list)
    answer: list[str] = field(default_factory=list)


@dataclass
class Case:
    """A conversation to evaluate: its kind, the rendered prefix and its turns."""

    kind: str
    prefix: list[int]
    steps: list[Step]


def typed(kind: str, value: str) -> Any:
    """An argument's value by its parameter's type."""
    match kind:
        case "string":
            return value
        case "array":
            return [item.strip() for item in value.split(",")]
        case _:
            return json.loads(value)


def step_of(turn: DialogueTurn) -> Step:
    """What a generated turn expects."""
    calls: list[Expected] = []
    answer: list[str] = []
    for call in turn.calls:
        arguments: dict[str, Any] = {} if call.tool else {"code": call.code}
        if call.tool:
            kinds = {param.name: param.kind for param in call.tool.params}
            pairs = zip((name for name, _, _ in call.arguments), call.values, strict=True)
            arguments = {name: typed(kinds[name], value) for name, value in pairs}
        calls.append(Expected(call.tool.name if call.tool else "python", arguments, call.result))
        moment = results.moment(call.result) if call.family == "time" else None
        first_line = TOO_LONG if call.is_too_long(data.encode) else call.result.split("\n")[0]
        answer.append(moment or first_line)
    if turn.reported_calls is not None:
        answer = answer[-turn.reported_calls :]
    if not turn.calls:
        answer = [turn.reply]
    return Step(turn.user, calls, answer)


def _corpus_turns(made: mixture.Mixture, kind: str) -> list[DialogueTurn]:
    """Turns of the corpus's held-out requests; none if the prefix has no use for them."""
    makers: dict[str, mixture.TurnMaker] = {
        "intent": made.intent,
        "files": made.files,
        "described": made.corpus.by_description,
        "function": made.function,
        "sequence": made.corpus.sequence,
        "chain": made.corpus.chain,
        "corpus_chat": made.corpus.chat,
        "corpus_decline": made.decline,
        "odd": made.odd,
    }
    if kind == "corpus_follow":
        turns = made.follow()
        return turns if len(turns) == 2 else []
    if kind == "intent" and not made.talker.python:
        return []
    turn = makers[kind]()
    return [turn] if turn is not None else []


def make_case(rng: random.Random, kind: str) -> Case | None:
    """A case of a kind, or None when the random prefix has no use for it."""
    split: Split = "eval"
    prefix = data.make_prefix(rng, split)
    own = [tool for tool in prefix.tools if tool.family != CORPUS_FAMILY]
    talker = dialogues.Talker(rng, split, prefix.python, own, data.clean, data.encode)
    if kind in CORPUS_KINDS:
        turns = _corpus_turns(mixture.Mixture(talker, prefix.tools), kind)
        return Case(kind, prefix.ids, [step_of(turn) for turn in turns]) if turns else None
    by_family: dict[str, list[DialogueTool]] = {}
    for tool in own:
        by_family.setdefault(tool.family, []).append(tool)
    match kind:
        case "python":
            if not prefix.python:
                return None
            request = talker.of_python()
            turns = [DialogueTurn(request.text, [], [request.call])]
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
            turns = [DialogueTurn(request.text, [], [request.call])]
    return Case(kind, prefix.ids, [step_of(turn) for turn in turns])


def generated(share: float = 1.0, seed: str = "evaluation") -> list[Case]:
    """`share` of COUNTS cases; their numbers, names, paths and words occur in no training data."""
    rng = random.Random(seed)
    out: list[Case] = []
    for kind, count in COUNTS.items():
        wanted = max(1, round(count * share))
        while wanted:
            case = make_case(rng, kind)
            if case and len(case.prefix) < 900:
                out.append(case)
                wanted -= 1
    return out


def canonical(family: str) -> DialogueTool:
    """A family's tool as the program declares it."""
    names, descriptions, params = FIXED[family].values()
    tool = fixed(random.Random(0), family, 1.0)
    plain = tuple(Param(p.name, p.kind, p.required) for p in tool.params)
    assert plain[0].name == params[0]
    return DialogueTool(family, names[0], descriptions[0], plain)


SERVERS = {
    "files": FILE_TOOLS, "weather": ("weather",), "time": ("time",), "everything": ("echo", "sum"),
    "notes": ("note",), "dictionary": ("define",),
}  # fmt: skip


def declared(names: list[str]) -> tuple[bool, list[DialogueTool]]:
    """Whether python is declared, and the tools of the named servers."""
    tools: list[DialogueTool] = []
    for name in names:
        if name == "client":
            city = (Param("city"),)
            tools.append(DialogueTool("weather", "get_weather", "Get the current weather.", city))
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
