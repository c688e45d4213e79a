"""Conversations as token ids: prefixes with their tools, and what is said after them.

    python -m agent.tiny.train.data OUT --shards 40

writes shards that train.py reads; every shard depends on its own number alone.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

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
)

from agent.formats.harmony.encoding import load_encoding
from agent.tiny import vocabulary
from agent.tiny.train import answer_form, excerpts, mixture, phrases, results, words
from agent.tiny.train.answer_form import AnswerProperty
from agent.tiny.train.declared_functions import choose_functions
from agent.tiny.train.dialogues import Talker
from agent.tiny.train.tools import FILE_TOOLS, DialogueTool, choose_tools, fixed
from agent.tiny.train.turns import FITS, DialogueCall, DialogueTurn
from agent.tiny.train.words import Split, pool

MAX_SEGMENT_TOKENS = 320
"""Longer conversations are left out."""
CONVERSATIONS_PER_PACK = 12
PACKS_PER_PREFIX = 8
"""Packs of one prefix: its conversations are sorted by length, so that little is padding."""
CHOSEN_PACKS = 3
"""Packs of one prefix that are trained on: choosing a tool is learned from many prefixes."""
MAX_PREFIX_TOKENS = 640
"""Of system and developer message; longer ones are left out."""
MAX_PAST_TOKENS = 1000
"""Of finished turns that a prefix has besides, and of most turns with a long result."""
LONG_RESULT_TOKENS = {MAX_PAST_TOKENS: 0.67, 2000: 0.23, 3600: 0.1}
"""How many tokens the turns with a long result have at most, and how often."""
PAST_SHARE, LONG_RESULT_SHARE = 0.12, 0.06
"""Of the prefixes, those with such turns; a long result only where a file tool is declared."""
CUT_SHARE = 0.6
"""Of the conversations with a call, those that end with it: what follows is copying, and known."""
ANSWER_FORM_SHARE = 0.06
"""Of the prefixes, those that ask for an answer as JSON."""
HEDGED_SHARE = 0.2
"""Of the finished turns with a call, those whose answer has a hedge, as clients send them back."""
START_ID, END_ID, MESSAGE_ID, CHANNEL_ID = 200_006, 200_007, 200_008, 200_005
RETURN_ID, CALL_ID, CONSTRAIN_ID = 200_002, 200_012, 200_003


@cache
def encoding() -> HarmonyEncoding:
    """openai-harmony's encoding, built offline from the shipped ranks."""
    return load_encoding(vocabulary.ranks)


@cache
def encode(text: str) -> tuple[int, ...]:
    """Tokenize text; special tokens in it are plain text."""
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
class ConversationWriter:
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

    def put_context(self, tokens: tuple[int, ...] | list[int]) -> None:
        """Add tokens that carry no loss."""
        self.ids.extend(tokens)
        self.weights.extend([0.0] * len(tokens))


def render_prefix(
    rng: random.Random, python: bool, tools: list[DialogueTool], instructions: str | None
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


COPY_SHARE = 0.1
"""Of the conversations, those that only copy."""
MAX_COPIED_TOKENS = 120
"""Of real lines that are copied and nothing else."""
ASSISTANT = (START_ID, *encode("assistant"))


def write_user(out: ConversationWriter, text: str) -> None:
    """Write a user's message."""
    out.put_context([START_ID, *encode("user"), MESSAGE_ID, *encode(text), END_ID, *ASSISTANT])


def write_analysis(out: ConversationWriter, text: str) -> None:
    """A thought. What it says the request is decides all that follows, so that weighs most."""
    out.put((CHANNEL_ID,), 0.2)
    out.put(encode("analysis"), 1.0, first=3.0)
    out.put((MESSAGE_ID,), 2.0)
    space = ""
    for mark in ("First:", "second:"):
        if mark in text:
            head, _, text = text.partition(mark + " ")
            out.put(encode(head + mark), 0.5, first=6.0)
            space = " "
    what, _, rest = text.removesuffix(".").partition(". ")
    if what.startswith(FITS):
        name = what.removeprefix(FITS)
        out.put(encode(space + FITS), 2.0, first=6.0)
        out.put(encode(name), 3.0, first=6.0)
        out.put(encode("."), 1.0)
    else:
        ids = encode(f"{space}{what}.")
        out.put(ids[:3], 6.0)
        out.put(ids[3:], 3.0 if ":" in what else 2.0)
    if rest.startswith("I call "):
        out.put(encode(" I call"), 0.3)
        out.put(encode(rest[6:]), 2.0, first=6.0)
        out.put(encode("."), 1.0)
    elif rest:
        out.put(encode(f" {rest}."), 0.3)
    out.put((END_ID,), 0.5)
    out.put(ASSISTANT, 0.1)


def write_call(out: ConversationWriter, call: DialogueCall) -> None:
    """A call in the form that the real model writes."""
    out.put((CHANNEL_ID,), 0.2)
    if call.tool is None:
        out.put(encode("analysis"), 1.0, first=3.0)
        out.put(encode(" to"), 2.0)
        out.put(encode("=python code"), 0.5, first=0.5)
        out.put((MESSAGE_ID,), 0.2)
        first = 5.0
        for part, copy in call.code_tokens(encode):
            for token in part:
                operator = any(c in b"+-*/%()" for c in vocabulary.tokens()[token])
                weight = 5.0 if operator and not call.code_parts else 2.0
                out.put((token,), max(weight, first), copy=copy)
                first = 0.0
        out.put((CALL_ID,), 4.0)
    else:
        out.put(encode("commentary"), 0.5, first=3.0)
        out.put(encode(" to=functions"), 0.2)
        out.put(encode("."), 0.2)
        out.put(name_ids(call.tool.name), 2.0, first=5.0)
        out.put(encode(" "), 1.5)
        out.put((CONSTRAIN_ID, *encode("json"), MESSAGE_ID), 0.1)
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
        out.put((CALL_ID,), 0.5)


def write_result(out: ConversationWriter, call: DialogueCall) -> None:
    """What the tool answers, and who goes on."""
    author, channel = "python", "analysis"
    if call.tool is not None:
        author, channel = f"functions.{call.tool.name}", "commentary"
    out.put_context(
        [
            START_ID,
            *encode(author),
            *encode(" to=assistant"),
            CHANNEL_ID,
            *encode(channel),
            MESSAGE_ID,
        ]
    )
    out.put_context([*call.result_ids(encode), END_ID, *ASSISTANT])


def write_final(
    out: ConversationWriter, pieces: list[tuple[tuple[int, ...], ...]], last: bool
) -> None:
    """Write the final answer."""
    out.put((CHANNEL_ID,), 0.2)
    out.put(encode("final"), 4.0)
    out.put((MESSAGE_ID,), 0.5)
    for index, parts in enumerate(pieces):
        if index:
            out.put(encode("\n\n"), 3.0)
        for number, part in enumerate(parts):
            out.put(part, 1.3, first=4.0 if number == 0 else 3.0, copy=True)
    if last:
        out.put((RETURN_ID,), 3.0)
    else:
        out.put_context((END_ID,))


def write_turns(
    rng: random.Random,
    turns: list[DialogueTurn],
    cut: bool = False,
    form: tuple[AnswerProperty, ...] = (),
) -> ConversationWriter:
    """Finished turns lose their analysis and carry no loss; the last one is learned.

    ``cut``: what follows the last call is left out. ``form``: of the answer as JSON; (): as text.
    """
    out = ConversationWriter(learn=False)
    for turn in turns[:-1]:
        write_finished(rng, out, turn, form)
    out.learn = True
    turn = turns[-1]
    write_user(out, turn.user)
    write_analysis(out, turn.thoughts[0])
    for number, call in enumerate(turn.calls):
        if number:
            write_analysis(out, turn.thoughts[number])
        write_call(out, call)
        if cut and number == len(turn.calls) - 1:
            return out
        write_result(out, call)
    write_final(out, answer_form.pieces(turn, form, encode), last=True)
    return out


def write_finished(
    rng: random.Random,
    out: ConversationWriter,
    turn: DialogueTurn,
    form: tuple[AnswerProperty, ...] = (),
) -> None:
    """A turn as a later one sees it: without its analysis, now and then with a hedge."""
    write_user(out, turn.user)
    for call in turn.calls:
        write_call(out, call)
        write_result(out, call)
    pieces = answer_form.pieces(turn, form, encode)
    if turn.calls and not form and rng.random() < HEDGED_SHARE:
        pieces = [*pieces, (encode(phrases.HEDGE),)]
    write_final(out, pieces, last=False)


def past_turns(rng: random.Random, prefix: Prefix) -> list[int]:
    """Finished turns of a prefix, so that what is asked after them stands far from its start."""
    out = ConversationWriter(learn=False)
    enough = rng.randint(200, MAX_PAST_TOKENS - MAX_SEGMENT_TOKENS)
    while len(out.ids) < enough:
        turns = mixture.conversation(rng, "train", prefix.python, prefix.tools, clean, encode)
        past = ConversationWriter(learn=False)
        for turn in turns:
            write_finished(rng, past, turn, prefix.form)
        if len(past.ids) <= MAX_SEGMENT_TOKENS:
            out.ids += past.ids
    return out.ids


def long_result(rng: random.Random, prefix: Prefix) -> tuple[list[int], ConversationWriter] | None:
    """A turn of a file tool up to a result of many lines, and its answer; None: no such tool."""
    tools = [tool for tool in prefix.tools if tool.family in FILE_TOOLS]
    if not tools:
        return None
    tool = rng.choice(tools)
    talker = Talker(rng, "train", prefix.python, [tool], clean, encode)
    request = talker.of_tool(tool)
    call, lines = request.call, list[str]()
    most = rng.choices(list(LONG_RESULT_TOKENS), list(LONG_RESULT_TOKENS.values()))[0]
    enough = rng.randint(200, most - 150)
    while sum(map(len, lines)) < 3 * enough:  # a token is three characters or more
        text = results.of(rng, "train", tool, call.values)
        if not (results.is_error(text) or text in ("no matches", "the folder is empty")):
            lines += text.splitlines()
    call.result = "\n".join(sorted(set(lines)) if tool.family == "list" else lines)
    past, answer = ConversationWriter(learn=False), ConversationWriter()
    write_user(past, request.text)
    write_analysis(past, request.thought())
    write_call(past, call)
    write_result(past, call)
    del past.ids[-len(ASSISTANT) :]
    answer.put_context(ASSISTANT)  # what predicts the answer's first token
    write_final(answer, DialogueTurn(request.text, [], [call]).answer(encode), last=True)
    return past.ids, answer


def write_copy(rng: random.Random) -> ConversationWriter:
    """Pure copying, of words and tokens in any order or of real lines; it erodes if it is left out."""
    out = ConversationWriter()
    if rng.random() < 0.6:
        ids = list[int]()
        while len(ids) < 4:
            listed = rng.random() < 0.4
            text = (
                "\n".join(excerpts.folder(rng, "train"))
                if listed
                else excerpts.excerpt(rng, "train")
            )
            ids = list(encode(text)[:MAX_COPIED_TOKENS])
    else:
        lower, upper = pool("train")
        text = " ".join(rng.choice(lower if rng.random() < 0.7 else upper) for _ in range(5))
        text += f" {words.phrase(rng, 'train', 9)} {words.number(rng, 'train')}"
        ids = [*encode(text)[:20], *(rng.randrange(vocabulary.ORDINARY_TOKENS) for _ in range(6))]
        rng.shuffle(ids)
    out.put_context([START_ID, *encode("user"), MESSAGE_ID, *ids, END_ID, START_ID])
    out.put_context(ids[:2])
    out.put(ids[2:], 0.6, copy=True)
    return out


@dataclass
class Prefix:
    """System and developer message with the tools that they declare."""

    ids: list[int]
    python: bool
    tools: list[DialogueTool]
    form: tuple[AnswerProperty, ...] = ()
    """Of the answers as JSON; (): they are text."""


def make_prefix(rng: random.Random, split: Split) -> Prefix:
    """Choose tools and render a prefix."""
    python = rng.random() < 0.75
    kind = rng.random()
    if kind < 0.45:  # as clients declare them
        python, tools = python and rng.random() < 0.3, choose_functions(rng, split)
    elif kind < 0.50:
        tools = [*choose_functions(rng, split), *(fixed(rng, name, 1.0) for name in FILE_TOOLS)]
    elif kind < 0.85:  # as a fresh installation declares them
        python, tools = True, [fixed(rng, name, 1.0) for name in FILE_TOOLS]
    else:
        tools = choose_tools(rng, split)
    instructions = rng.choice(phrases.INSTRUCTIONS) if rng.random() < 0.35 else None
    form: tuple[AnswerProperty, ...] = ()
    if split == "train" and rng.random() < ANSWER_FORM_SHARE:
        form = answer_form.choose(rng)
        instructions = "\n\n".join(filter(None, (instructions, answer_form.section(rng, form))))
    return Prefix(render_prefix(rng, python, tools, instructions), python, tools, form)


def make_segments(rng: random.Random, prefix: Prefix, count: int) -> list[ConversationWriter]:
    """Write conversations that follow a prefix."""
    out: list[ConversationWriter] = []
    while len(out) < count:
        if rng.random() < COPY_SHARE:
            out.append(write_copy(rng))
            continue
        turns = mixture.conversation(rng, "train", prefix.python, prefix.tools, clean, encode)
        written = write_turns(rng, turns, cut=rng.random() < CUT_SHARE, form=prefix.form)
        if len(written.ids) <= MAX_SEGMENT_TOKENS:
            out.append(written)
    return out


def stress(prefix: list[int], out: ConversationWriter, weight: float = 5.0) -> None:
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


def arrays(packs: list[tuple[list[int], list[ConversationWriter]]]) -> dict[str, Any]:
    """Prefixes, each with as many conversations, as the flat arrays of a shard."""
    ids = [np.array(p, dtype=np.int32) for p, _ in packs]
    flat = [w for _, segments in packs for w in segments]
    return {
        "prefix": np.concatenate(ids),
        "prefix_length": np.array([len(p) for p in ids], dtype=np.int32),
        "segment": np.concatenate([np.array(w.ids, dtype=np.int32) for w in flat]),
        "weight": np.concatenate([np.array(w.weights, dtype=np.float16) for w in flat]),
        "segment_length": np.array([len(w.ids) for w in flat], dtype=np.int32),
        "per_pack": np.int32(len(flat) // len(packs)),
    }


def write_shard(path: Path, number: int, prefixes: int, per_pack: int) -> None:
    """One shard: packs as flat arrays with offsets, neighbours of like length in pairs."""
    rng = random.Random(f"tiny {number}")
    packs: list[tuple[list[int], list[ConversationWriter]]] = []
    while len(packs) < prefixes * CHOSEN_PACKS:
        prefix = make_prefix(rng, "train")
        if len(prefix.ids) > MAX_PREFIX_TOKENS:
            continue
        kind = rng.random()
        if (
            kind < LONG_RESULT_SHARE
            and not prefix.form
            and (turn := long_result(rng, prefix)) is not None
        ):
            past, answer = turn
            if len(past) <= max(LONG_RESULT_TOKENS) and len(answer.ids) <= MAX_SEGMENT_TOKENS:
                stress([*prefix.ids, *past], answer)
                # There is one answer: a pack of it is short, and what it costs is the prefix.
                packs.append(([*prefix.ids, *past], [answer] * per_pack))
            continue
        if kind < LONG_RESULT_SHARE + PAST_SHARE:
            prefix.ids += past_turns(rng, prefix)
        segments = sorted(
            make_segments(rng, prefix, per_pack * PACKS_PER_PREFIX), key=lambda w: len(w.ids)
        )
        starts = rng.sample(range(0, len(segments), per_pack), CHOSEN_PACKS)
        for at in starts:
            kept = segments[at : at + per_pack]
            for segment in kept:
                stress(prefix.ids, segment)
            packs.append((prefix.ids, kept))
    packs.sort(key=lambda p: len(p[0]) // 64 * 1000 + len(p[1][-1].ids))
    np.savez(path.with_suffix(".partial.npz"), **arrays(packs))
    path.with_suffix(".partial.npz").replace(path)


def main() -> None:
    """Write shards of training data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--prefixes", type=int, default=540, help="prefixes a shard")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for number in range(options.first, options.first + options.shards):
        begun = time.time()
        path = options.out / f"shard{number:04}.npz"
        if not path.exists():
            write_shard(path, number, options.prefixes, CONVERSATIONS_PER_PACK)
            print(f"{path} {time.time() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
