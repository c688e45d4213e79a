"""What a conversation is about: how often each sort of request comes."""

from __future__ import annotations

import random
from collections.abc import Callable

from agent.tiny.train import phrases, results
from agent.tiny.train.corpus_dialogues import CorpusTalker
from agent.tiny.train.declared_functions import CORPUS_FAMILY
from agent.tiny.train.dialogues import Talker
from agent.tiny.train.tools import FILE_TOOLS, DialogueTool
from agent.tiny.train.turns import Clean, DialogueRequest, DialogueTurn, Encode
from agent.tiny.train.words import Split

UNCLEAR = (
    "That is no request that I understand. No tool is needed.",
    "I did not understand that. I am tiny, the embedded demonstration model: ask me to calculate"
    " or to use a tool.",
)
"""The thought and the answer for input that makes no request."""
MAX_FOLLOWED_CHARACTERS = 40
"""A longer result is not followed up: it stands in the thought and in the code."""

TurnMaker = Callable[[], DialogueTurn | None]


class Mixture:
    """Makes the turns of one prefix."""

    def __init__(self, talker: Talker, tools: list[DialogueTool]) -> None:
        """``tools``: all that the prefix declares; those of ``talker`` are the generator's own."""
        self.talker, self.rng = talker, talker.rng
        self.corpus = CorpusTalker(talker, tools)
        families = {tool.family for tool in tools}
        files = bool(families & set(FILE_TOOLS))
        fixed = bool(families - {CORPUS_FAMILY, *FILE_TOOLS})
        functions = CORPUS_FAMILY in families
        weighted: list[tuple[float, TurnMaker]] = [
            (9.0 * talker.python, self.intent),
            (1.4 * talker.python, lambda: self._turn(talker.of_python(), "python")),
            (1.0 * talker.python, self.bare_sum),
            (2.2 * files, self.files),
            (1.2 * ("list" in families), self.listing),
            (2.2 * ({"read", "list"} <= families), self.corpus.by_description),
            (1.2 * files + 3.0 * fixed, self._fixed),
            (5.5 * functions, self.function),
            (2.5 * functions, self.corpus.sequence),
            (2.5 * functions, self.corpus.chain),
            (0.5, self.corpus.chat),
            (0.2, talker.chat),
            (1.0, self.decline),
            (0.5 * (not functions), talker.declined),
            (1.0 * (not talker.python and "sum" not in families), self.sum_without_python),
            (0.4, self.odd),
        ]
        self.makers = [maker for weight, maker in weighted if weight]
        self.weights = [weight for weight, _ in weighted if weight]

    @staticmethod
    def _turn(request: DialogueRequest | None, kind: str) -> DialogueTurn | None:
        if request is None:
            return None
        return DialogueTurn(request.text, [request.thought()], [request.call], kind=kind)

    def intent(self) -> DialogueTurn | None:
        """A request for python."""
        return self._turn(self.corpus.intent(), "intent")

    def bare_sum(self) -> DialogueTurn | None:
        """An expression and nothing else."""
        return self._turn(self.talker.bare_sum(), "bare")

    def _fixed(self) -> DialogueTurn | None:
        tool = self.rng.choice(self.talker.tools)
        return self._turn(self.talker.of_tool(tool), tool.family)

    def files(self) -> DialogueTurn | None:
        """A request for a file tool."""
        return self._turn(self.corpus.files(), "files")

    def listing(self) -> DialogueTurn | None:
        """A request for the names in a folder: copying them is hard."""
        return self._turn(self.corpus.files(family="list"), "list")

    def function(self) -> DialogueTurn | None:
        """A request for a function of the corpus."""
        return self._turn(self.corpus.function(), "function")

    def odd(self) -> DialogueTurn | None:
        """Input that makes no request."""
        return self.corpus.without_tool("odd", *UNCLEAR)

    def decline(self) -> DialogueTurn | None:
        """What no declared tool can do."""
        return self.corpus.without_tool("decline", *phrases.DECLINE)

    def sum_without_python(self) -> DialogueTurn:
        """A sum where nothing can calculate."""
        asked = self.talker.of_python() if self.rng.random() < 0.7 else self.talker.bare_sum()
        thought, reply = phrases.DECLINE
        return DialogueTurn(asked.text, [thought], reply=reply, kind="decline")

    def single(self) -> DialogueTurn:
        """One turn of any sort."""
        while True:
            turn = self.rng.choices(self.makers, self.weights)[0]()
            if turn is not None:
                return turn

    def follow(self) -> list[DialogueTurn]:
        """A turn and one that refers to it, or any turn where nothing can refer to it."""
        rng = self.rng
        for _ in range(8):
            before = self.intent() if self.talker.python and rng.random() < 0.6 else self.single()
            if before is None or not before.calls or before.kind == "described":
                continue
            call = before.calls[-1]
            again = self.corpus.last_intent if before.kind == "intent" else None
            if again is not None and rng.random() < 0.4:
                after = self._turn(self.corpus.again(again), "follow")
            elif call.tool is None:
                if results.is_error(call.result) or len(call.result) > MAX_FOLLOWED_CHARACTERS:
                    continue
                after = self._turn(self.corpus.intent("follow", call.result), "follow")
            elif call.family == CORPUS_FAMILY and len(before.calls) == 1:
                after = self.corpus.function_again(call, before.user)
            elif call.family in ("list", "search") and rng.random() < 0.8:
                after = self.corpus.file_reference(before)
            elif call.family in FILE_TOOLS:
                after = self._turn(self.corpus.files(call.tool), "follow")
            else:
                continue
            if after is not None:
                return [before, after]
        return [self.single()]

    def row(self) -> list[DialogueTurn]:
        """Two or three turns that have nothing to do with each other, or sums that look alike."""
        if self.talker.python and self.rng.random() < 0.25:
            sums = (self.bare_sum() for _ in range(self.rng.choice([2, 2, 3, 4])))
            return [turn for turn in sums if turn is not None]
        return [self.single() for _ in range(self.rng.choice([2, 2, 3]))]

    def double(self) -> DialogueTurn:
        """Two requests in one message, both for python, or as the generator has them."""
        rng = self.rng
        if self.talker.python and rng.random() < 0.4:
            one, two = self.corpus.intent(), self.corpus.intent()
            if one is not None and two is not None and len(one.text) + len(two.text) < 160:
                joint = rng.choice([" and ", ", then ", ". Then ", "; ", ", and also ", ". "])
                text = one.text.rstrip(".?! ") + joint + two.text
                thoughts = [
                    f"Two things are asked. First: {one.thought()}",
                    f"Now the second: {two.thought()}",
                ]
                return DialogueTurn(text, thoughts, [one.call, two.call], kind="two")
        return self.talker.double() if self.talker.python or self.talker.tools else self.single()


def conversation(
    rng: random.Random,
    split: Split,
    python: bool,
    tools: list[DialogueTool],
    clean: Clean,
    encode: Encode,
) -> list[DialogueTurn]:
    """One conversation of one to four turns; the last one is what is learned."""
    own = [tool for tool in tools if tool.family != CORPUS_FAMILY]
    mixture = Mixture(Talker(rng, split, python, own, clean, encode), tools)
    kind = rng.random()
    if kind < 0.70:
        turns = [mixture.single()]
    elif kind < 0.77:
        turns = [mixture.double()]
    elif kind < 0.80:
        turns = mixture.talker.follow() if own or python else mixture.follow()
    elif kind < 0.94:
        turns = mixture.follow()
    elif kind < 0.96:
        turns = mixture.talker.row() if own or python else mixture.row()
    else:
        turns = mixture.row()
    if rng.random() < 0.05:
        turns = [mixture.single(), *turns]
    return turns
