"""Conversations as token ids: prefixes with their tools, and what is said after them.

    python -m agent.tiny.train.data OUT --shards 40

writes shards that train.py reads; every shard depends on its own number alone.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from openai_harmony import (
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    Message,
    ReasoningEffort,
    RenderConversationConfig,
    Role,
    SystemContent,
    ToolDescription,
    load_harmony_encoding,
)

from agent.tiny import vocabulary
from agent.tiny.train import dialogues, phrases, words
from agent.tiny.train.tools import Tool, choose_tools
from agent.tiny.train.turns import Call, Turn
from agent.tiny.train.words import Split, pool

PACKS = 3
"""Packs of one prefix: its conversations are sorted by length, so that little is padding."""
START, END, MESSAGE, CHANNEL = 200_006, 200_007, 200_008, 200_005
RETURN, CALL, CONSTRAIN = 200_002, 200_012, 200_003


@cache
def encoding() -> HarmonyEncoding:
    """openai-harmony's encoding, built offline from the shipped ranks."""
    folder = Path(tempfile.gettempdir()) / f"agent-tiny-ranks-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    target = folder / "o200k_base.tiktoken"
    if not target.exists():
        partial = target.with_suffix(f".{os.getpid()}")
        partial.write_bytes(vocabulary.ranks())
        partial.replace(target)
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    return load_harmony_encoding("HarmonyGptOss")


@cache
def encode(text: str) -> tuple[int, ...]:
    return tuple(encoding().encode(text, disallowed_special=()))


@cache
def _ids() -> dict[bytes, int]:
    return {token: index for index, token in enumerate(vocabulary.tokens())}


def clean(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens of " Paris" without their space, if the vocabulary has such a first token.

    An argument is what the prompt's tokens say, so that it is a copy: the rare word whose first
    token exists only with a space keeps it, and tools strip it.
    """
    first = vocabulary.tokens()[ids[0]]
    if first[:1] == b" " and len(first) > 1 and (bare := _ids().get(first[1:])) is not None:
        return (bare, *ids[1:])
    return ids


def name_ids(name: str) -> tuple[int, ...]:
    """A tool's name as the prefix has it, without the space before it."""
    ids = clean(encode(" " + name))
    return encode(name) if vocabulary.tokens()[ids[0]][:1] == b" " else ids


@dataclass
class Writer:
    """Collects a conversation's tokens with the weight of predicting each."""

    ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    learn: bool = True
    copies: list[int] = field(default_factory=list)
    """Where the tokens are that were copied from earlier ones."""

    def put(
        self,
        tokens: tuple[int, ...] | list[int],
        weight: float = 1.0,
        first: float = 0.0,
        copy: bool = False,
    ) -> None:
        """Adds tokens; the first one is a decision and weighs `first` if that is given."""
        if copy and self.learn:
            self.copies.extend(range(len(self.ids), len(self.ids) + len(tokens)))
        for index, token in enumerate(tokens):
            self.ids.append(token)
            value = first if first and index == 0 else weight
            self.weights.append(value if self.learn else 0.0)

    def given(self, tokens: tuple[int, ...] | list[int]) -> None:
        self.ids.extend(tokens)
        self.weights.extend([0.0] * len(tokens))


def render_prefix(
    rng: random.Random, python: bool, tools: list[Tool], instructions: str | None
) -> list[int]:
    """System and developer message, as the program renders them."""
    effort = rng.choice([ReasoningEffort.MEDIUM] * 4 + [ReasoningEffort.LOW, ReasoningEffort.HIGH])
    date = f"{rng.randint(2025, 2028)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    system = SystemContent.new().with_reasoning_effort(effort).with_conversation_start_date(date)
    system = system.with_required_channels(["analysis", "commentary", "final"])
    if python:
        system = system.with_python_tool()
    messages = [Message.from_role_and_content(Role.SYSTEM, system)]
    if tools or instructions:
        developer = DeveloperContent.new()
        if instructions:
            developer = developer.with_instructions(instructions)
        if tools:
            developer = developer.with_function_tools(
                [ToolDescription.new(t.name, t.description, parameters=t.schema()) for t in tools]
            )
        messages.append(Message.from_role_and_content(Role.DEVELOPER, developer))
    config = RenderConversationConfig(auto_drop_analysis=False)
    ids: list[int] = encoding().render_conversation(Conversation.from_messages(messages), config)
    return ids


ASSISTANT = (START, *encode("assistant"))


def write_user(out: Writer, text: str) -> None:
    out.given([START, *encode("user"), MESSAGE, *encode(text), END, *ASSISTANT])


def write_analysis(out: Writer, text: str) -> None:
    """A thought. What it says the request is decides all that follows, so that weighs most."""
    out.put((CHANNEL,), 0.2)
    out.put(encode("analysis"), 1.0, first=3.0)
    out.put((MESSAGE,), 2.0)
    space = ""
    for mark in ("First:", "second:"):
        if mark in text:
            head, _, text = text.partition(mark + " ")
            out.put(encode(head + mark), 0.5, first=6.0)
            space = " "
    what, _, rest = text.partition(". ")
    ids = encode(f"{space}{what}.")
    out.put(ids[:3], 6.0)
    out.put(ids[3:], 3.0 if ":" in what else 1.5)
    if rest.startswith("I call "):
        out.put(encode(" I call"), 0.3)
        out.put(encode(rest[6:-1]), 2.0, first=6.0)
        out.put(encode("."), 1.0)
    else:
        out.put(encode(f" {rest}"), 0.3)
    out.put((END,), 0.5)
    out.put(ASSISTANT, 0.1)


def write_call(out: Writer, call: Call) -> None:
    """A call in the form that the real model writes, and its result."""
    out.put((CHANNEL,), 0.2)
    if call.tool is None:
        out.put(encode("analysis"), 1.0, first=3.0)
        out.put(encode(" to"), 2.0)
        out.put(encode("=python code"), 0.5, first=0.5)
        out.put((MESSAGE,), 0.2)
        for index, token in enumerate(call.code_ids or encode(call.code)):
            operator = any(c in b"+-*/%()" for c in vocabulary.tokens()[token])
            out.put((token,), 5.0 if operator or index == 0 else 2.0, copy=True)
        out.put((CALL,), 4.0)
        author, channel = "python", "analysis"
    else:
        out.put(encode("commentary"), 0.5, first=3.0)
        out.put(encode(" to=functions"), 0.2)
        out.put(encode("."), 0.2)
        out.put(name_ids(call.tool.name), 2.0, first=5.0)
        out.put(encode(" "), 1.5)
        out.put((CONSTRAIN, *encode("json"), MESSAGE), 0.1)
        if not call.arguments:
            out.put(encode("{}"), 3.0)
        quoted = False
        for index, (name, kind, value) in enumerate(call.arguments):
            out.put(encode('{"' if index == 0 else ('","' if quoted else ',"')), 3.0)
            out.put(encode(name), 2.0, first=6.0)
            quoted = kind == "string"
            out.put(encode('":"' if quoted else '":'), 2.0)
            out.put(value, 1.5, first=5.0, copy=True)
        if call.arguments:
            out.put(encode('"}' if quoted else "}"), 2.5)
        out.put((CALL,), 0.5)
        author, channel = f"functions.{call.tool.name}", "commentary"
    out.given(
        [START, *encode(author), *encode(" to=assistant"), CHANNEL, *encode(channel), MESSAGE]
    )
    out.given([*call.result_ids(encode), END, *ASSISTANT])


def write_final(out: Writer, pieces: list[tuple[tuple[int, ...], ...]], last: bool) -> None:
    out.put((CHANNEL,), 0.2)
    out.put(encode("final"), 4.0)
    out.put((MESSAGE,), 0.5)
    for index, parts in enumerate(pieces):
        if index:
            out.put(encode("\n\n"), 3.0)
        for number, part in enumerate(parts):
            out.put(part, 1.3, first=4.0 if number == 0 else 3.0, copy=True)
    if last:
        out.put((RETURN,), 3.0)
    else:
        out.given((END,))


def write_turns(turns: list[Turn], learn_all: bool = False) -> Writer:
    """Finished turns lose their analysis and carry no loss; the last one is learned."""
    out = Writer()
    for index, turn in enumerate(turns):
        last = index == len(turns) - 1
        out.learn = last or learn_all
        write_user(out, turn.user)
        if last:
            write_analysis(out, turn.thoughts[0])
        for number, call in enumerate(turn.calls):
            if last and number:
                write_analysis(out, turn.thoughts[number])
            write_call(out, call)
        write_final(out, turn.answer(encode), last)
    return out


def write_copy(rng: random.Random) -> Writer:
    """Pure copying, which erodes if it is not kept in the mix."""
    out = Writer()
    lower, upper = pool("train")
    text = " ".join(rng.choice(lower if rng.random() < 0.7 else upper) for _ in range(5))
    text += f" {words.phrase(rng, 'train', 9)} {words.number(rng, 'train')}"
    ids = [*encode(text)[:20], *(rng.randrange(vocabulary.ORDINARY) for _ in range(6))]
    rng.shuffle(ids)
    out.given([START, *encode("user"), MESSAGE, *ids, END, START])
    out.given(ids[:2])
    out.put(ids[2:], 0.6)
    return out


@dataclass
class Prefix:
    ids: list[int]
    python: bool
    tools: list[Tool]


def make_prefix(rng: random.Random, split: Split) -> Prefix:
    python = rng.random() < 0.75
    tools = choose_tools(rng, split)
    instructions = rng.choice(phrases.INSTRUCTIONS) if rng.random() < 0.35 else None
    return Prefix(render_prefix(rng, python, tools, instructions), python, tools)


def make_segments(rng: random.Random, prefix: Prefix, count: int) -> list[Writer]:
    out: list[Writer] = []
    while len(out) < count:
        if rng.random() < 0.05:
            out.append(write_copy(rng))
            continue
        written = write_turns(
            dialogues.conversation(rng, "train", prefix.python, prefix.tools, clean, encode)
        )
        if len(written.ids) <= 330:
            out.append(written)
    return out


def stress(prefix: list[int], out: Writer, weight: float = 5.0) -> None:
    """Gives `weight` to copies at a fork: the two tokens before went on differently elsewhere.

    There induction finds the wrong place; they are most of what goes wrong in copying.
    """
    ids = [*prefix, *out.ids]
    found: dict[tuple[int, int], set[int]] = {}
    copies = {at + len(prefix) for at in out.copies}
    for at in range(2, len(ids)):
        seen = found.setdefault((ids[at - 2], ids[at - 1]), set())
        if at in copies and seen - {ids[at]}:
            place = at - len(prefix)
            out.weights[place] = max(out.weights[place], weight)
        seen.add(ids[at])


def write_shard(path: Path, number: int, prefixes: int, per_pack: int = 12) -> None:
    """One shard: packs as flat arrays with offsets, neighbours of like length in pairs."""
    rng = random.Random(f"tiny {number}")
    packs: list[tuple[list[int], list[Writer]]] = []
    while len(packs) < prefixes * PACKS:
        prefix = make_prefix(rng, "train")
        if len(prefix.ids) > 640:
            continue
        segments = sorted(make_segments(rng, prefix, per_pack * PACKS), key=lambda w: len(w.ids))
        for segment in segments:
            stress(prefix.ids, segment)
        packs += [
            (prefix.ids, segments[at : at + per_pack]) for at in range(0, len(segments), per_pack)
        ]
    packs.sort(key=lambda p: len(p[0]) // 64 * 1000 + len(p[1][-1].ids))
    ids = [np.array(p, dtype=np.int32) for p, _ in packs]
    flat = [w for _, segments in packs for w in segments]
    np.savez(
        path.with_suffix(".partial.npz"),
        prefix=np.concatenate(ids),
        prefix_length=np.array([len(p) for p in ids], dtype=np.int32),
        segment=np.concatenate([np.array(w.ids, dtype=np.int32) for w in flat]),
        weight=np.concatenate([np.array(w.weights, dtype=np.float16) for w in flat]),
        segment_length=np.array([len(w.ids) for w in flat], dtype=np.int32),
        per_pack=np.int32(per_pack),
    )
    path.with_suffix(".partial.npz").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--prefixes", type=int, default=400, help="prefixes a shard")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for number in range(options.first, options.first + options.shards):
        begun = time.time()
        path = options.out / f"shard{number:04}.npz"
        if not path.exists():
            write_shard(path, number, options.prefixes)
            print(f"{path} {time.time() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
