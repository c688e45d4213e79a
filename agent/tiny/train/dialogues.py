"""Conversations: what the user asks, in sentences whose values are bound to a tool's parameters."""

from __future__ import annotations

import random

from agent.tiny.train import arithmetic, code_form, phrases, results, words
from agent.tiny.train.tools import FILE_TOOLS, DialogueTool, unseen, unseen_request
from agent.tiny.train.turns import AGAIN, Clean, DialogueCall, DialogueRequest, DialogueTurn, Encode
from agent.tiny.train.words import Split, expand


class Talker:
    """Makes requests for one prefix."""

    def __init__(
        self,
        rng: random.Random,
        split: Split,
        python: bool,
        tools: list[DialogueTool],
        clean: Clean,
        encode: Encode,
    ) -> None:
        self.rng, self.split, self.python, self.tools = rng, split, python, tools
        self.clean, self.encode = clean, encode

    def rare(self, share: float) -> float:
        """The share of something hard, which training shows more often than evaluation asks."""
        return min(0.9, 1.7 * share) if self.split == "train" else share

    def quoted(self, value: str, share: float) -> str:
        """A value as typed: often in some quotation marks."""
        if self.rng.random() < share:
            mark = self.rng.choice(['"', '"', "'", "'", "`"])
            return f"{mark}{value}{mark}"
        return value

    def ids(self, text: str, value: str, start: int = 0) -> tuple[int, ...]:
        """The value's tokens as they stand in the sentence, without a leading space."""
        at = text.find(value, start)
        if value[:1].isdigit():  # a digit's token never has a space
            return self.encode(value)
        if at > 0 and text[at - 1] == " ":
            return self.clean(self.encode(" " + value))
        return self.encode(value)

    def value(self, family: str) -> tuple[str, float]:
        """A new value for a family's first parameter and how often it is quoted."""
        rng, split = self.rng, self.split
        match family:
            case "read":
                return words.path(rng, split), 0.15
            case "list":
                return words.folder(rng, split), 0.15
            case "search":
                return words.query(rng, split), 0.4
            case "weather":
                return words.city(rng, split), 0.1
            case "time":
                return words.timezone(rng, split), 0.1
            case "echo" | "note":
                return words.phrase(rng, split, 5), 0.45
            case _:
                return words.word(rng, split), 0.3

    def finish(
        self, text: str, tool: DialogueTool, values: list[str], named: bool = False
    ) -> DialogueRequest:
        """Binds a sentence's values to the tool's parameters, in order."""
        arguments = []
        start = 0
        for param, value in zip(tool.params, values, strict=False):
            shown = self.ids(text, value) if param.kind == "string" else self.encode(value)
            arguments.append((param.name, param.kind, shown))
            start = text.find(value, start) + 1
        result = results.of(self.rng, self.split, tool, values)
        return DialogueRequest(text, DialogueCall(tool, values, result, arguments), named)

    def of_python(self) -> DialogueRequest:
        """A request that python answers."""
        return self.of_sum(*arithmetic.request(self.rng, self.split))

    def bare_sum(self) -> DialogueRequest:
        """An expression and nothing else."""
        return self.of_sum(*arithmetic.bare(self.rng, self.split))

    def of_sum(self, text: str, code: str) -> DialogueRequest:
        """A call of python for an expression."""
        request = self.python_call(text, code)
        request.own_thought = arithmetic.thought(code)
        return request

    def python_call(
        self,
        text: str,
        code: str,
        code_parts: tuple[tuple[tuple[int, ...], bool], ...] = (),
        result: str | None = None,
    ) -> DialogueRequest:
        """A call of python with its result; None: that of the code, an expression."""
        result = arithmetic.run(code) if result is None else result
        if self.rng.random() < 0.04:
            result = self.rng.choice(results.ERRORS["python"])
        return DialogueRequest(
            text, DialogueCall(None, [code], result, code=code, code_parts=code_parts)
        )

    def of_tool(self, tool: DialogueTool) -> DialogueRequest:
        """A request that this tool answers."""
        rng, family = self.rng, tool.family
        if family == "unseen":
            return self.of_unseen(tool)
        template = family
        values: list[str] = []
        if family == "sum":
            values = [words.number(rng, self.split) for _ in range(2)]
            if tool.params[0].kind == "integer":
                values = [value.partition(".")[0] for value in values]
            shown = values
        else:
            value, share = self.value(family)
            values = [value]
            shown = [self.quoted(value, share)]
        if family == "list" and rng.random() < 0.3:
            template, values, shown = "list_here", [], []
        elif family == "read" and len(tool.params) > 1 and rng.random() < self.rare(0.1):
            low = rng.randint(1, 90)
            template = "read_lines"
            values += [str(low), str(low + rng.randint(1, 60))]
            shown += values[1:]
        elif family == "search" and len(tool.params) > 1 and rng.random() < self.rare(0.12):
            template = "search_in"
            values.append(words.folder(rng, self.split))
            shown.append(values[1])
        text = expand(rng, rng.choice(phrases.TEMPLATES[template]), shown)
        return self.finish(text, tool, values)

    def of_unseen(self, tool: DialogueTool) -> DialogueRequest:
        """A request for a tool that was never declared before."""
        rng = self.rng
        values, shown = [], []
        for param in tool.params:
            if param.kind == "integer":
                value = str(rng.randint(1, 5000))
                shown.append(value)
            else:
                value = rng.choice([words.word, words.phrase, words.query])(rng, self.split)
                shown.append(self.quoted(value, 0.5))
            values.append(value)
        grammar, named = unseen_request(rng, tool)
        return self.finish(expand(rng, grammar, shown), tool, values, named)

    def request(self) -> DialogueRequest | None:
        """Something that a declared tool can do."""
        rng = self.rng
        choices: list[tuple[float, DialogueTool | None]] = [
            (1.0, t) for t in self.tools if t.family != "unseen"
        ]
        new = [t for t in self.tools if t.family == "unseen"]
        # New tools need the most practice: they are the only thing that cannot be memorised.
        share = 1.1 if self.split == "train" else 0.5
        choices += [(max(1.2, share * len(choices)) / len(new), t) for t in new]
        if self.python:
            # What people try first, and has the most ways to be said.
            share = 0.8 if self.split == "train" else 0.4
            choices.append((max(1.4, share * len(choices)), None))
        if not choices:
            return None
        tool = rng.choices([c for _, c in choices], [w for w, _ in choices])[0]
        return self.of_python() if tool is None else self.of_tool(tool)

    def chat(self) -> DialogueTurn:
        """A turn without a call."""
        kind = self.rng.choice(list(phrases.CHAT))
        text = expand(self.rng, self.rng.choice(phrases.CHAT[kind]), [])
        thought, reply = phrases.REPLY[kind]
        return DialogueTurn(text, [thought], reply=reply, kind="chat")

    def declined(self) -> DialogueTurn:
        """Something that no declared tool can do."""
        rng = self.rng
        here = {tool.family for tool in self.tools}
        absent: list[str] = [
            f
            for f in ("read", "list", "search", "weather", "time", "define", "note")
            if f not in here
        ]
        if not self.python and "sum" not in here:
            absent += ["python", "python"]
        absent += ["unseen"]
        topic = words.word(rng, self.split) if rng.random() < 0.5 else rng.choice(results.TOPICS)
        text = expand(rng, rng.choice(phrases.OTHER), [], topic)
        if rng.random() < self.rare(0.18):
            family = rng.choice(absent)
            if family == "python":
                text = self.of_python().text
            elif family == "unseen":
                text = self.of_unseen(unseen(rng, self.split)).text
            elif not (family in FILE_TOOLS and here & set(FILE_TOOLS)):
                value, share = self.value(family)
                text = expand(
                    rng, rng.choice(phrases.TEMPLATES[family]), [self.quoted(value, share)]
                )
        return DialogueTurn(text, [phrases.DECLINE[0]], reply=phrases.DECLINE[1], kind="decline")

    def single(self) -> DialogueTurn:
        """A turn with one call, or a declined one."""
        asked = self.request()
        if asked is None:
            return self.declined()
        kind = "python" if asked.call.tool is None else asked.call.family
        return DialogueTurn(asked.text, [asked.thought()], [asked.call], kind=kind)

    def double(self) -> DialogueTurn:
        """Two things in one message: two requests, or one request with two values."""
        rng = self.rng
        one = self.request()
        if one is None:
            return self.declined()
        joint = rng.choice(
            [
                " and ",
                " and then ",
                ", then ",
                ". Then ",
                " and also ",
                ". Also ",
                "; ",
                ", and ",
                " as well as ",
                ". After that ",
                ", and after that ",
                ". And ",
                " - and ",
                ", also ",
            ]
        )
        tool = one.call.tool
        simple = tool is None or (
            tool.family not in ("unseen", "sum") and len(one.call.values) == 1
        )
        if simple and rng.random() < 0.4:
            if tool is None:
                codes = [arithmetic.simple(rng, self.split) for _ in range(2)]
                text = expand(
                    rng,
                    rng.choice(phrases.SYMBOLS),
                    [
                        codes[0]
                        + rng.choice([" and ", " and also ", ", then ", " and then ", ", and "])
                        + codes[1]
                    ],
                )
                requests = [self.of_sum(text, arithmetic.spaced(c)) for c in codes]
            else:
                pairs = [self.value(tool.family) for _ in range(2)]
                shown = [self.quoted(v, s) for v, s in pairs]
                link = rng.choice(
                    [
                        " and ",
                        " and ",
                        " and in " if tool.family in ("weather", "time") else " and ",
                        ", then ",
                        " and then ",
                        " and also ",
                        " as well as ",
                        " and for " if tool.family in ("weather", "time") else " and ",
                    ]
                )
                text = expand(
                    rng, rng.choice(phrases.TEMPLATES[tool.family]), [shown[0] + link + shown[1]]
                )
                requests = [self.finish(text, tool, [v]) for v, _ in pairs]
        else:
            two = self.request()
            assert two is not None
            left = one.text.rstrip(".?! ")
            right = two.text if rng.random() < 0.3 else two.text[:1].lower() + two.text[1:]
            if rng.random() < 0.25:
                left = (
                    rng.choice(["First ", "first ", "First, ", "1. "]) + left[:1].lower() + left[1:]
                )
            text = left + joint + right
            requests = []
            for r in (one, two):
                # The tokens of a value that now stands elsewhere may differ: bind again.
                if r.call.tool is None:
                    requests.append(r)
                else:
                    again = self.finish(text, r.call.tool, r.call.values, r.named)
                    again.call.result = r.call.result
                    requests.append(again)
        thoughts = [
            f"Two things are asked. First: {requests[0].thought()}",
            f"Now the second: {requests[1].thought()}",
        ]
        return DialogueTurn(text, thoughts, [r.call for r in requests], kind="two")

    def follow(self) -> list[DialogueTurn]:
        """A request and a short follow-up that only makes sense after it."""
        rng = self.rng
        for _ in range(6):
            before = self.single()
            if not before.calls:
                continue
            call = before.calls[0]
            tool = call.tool
            if tool is None:
                if results.is_error(call.result) or len(call.result) > 14:
                    continue
                op = rng.choice("+-*/")
                amount = words.number(rng, self.split)
                text = expand(rng, rng.choice(arithmetic.FOLLOW[op]), [amount])
                code = f"{call.result} {op} {amount}"
                shape = f"{call.result} {op} a"
                thought = f"{code_form.FOLLOWING}: {shape}. I run python."
                parts = (call.result, f" {op} ", amount)
                asked = self.python_call(
                    text, code, tuple((self.encode(part), True) for part in parts)
                )
                return [before, DialogueTurn(text, [thought], [asked.call], kind="follow")]
            if (
                tool.family in ("sum", "echo", "note")
                or len(call.values) != 1
                or tool.params[0].kind != "string"
            ):
                continue
            value, share = self.value(tool.family)
            text = expand(rng, rng.choice(phrases.FOLLOW), [self.quoted(value, share)])
            asked = self.finish(text, tool, [value])
            return [
                before,
                DialogueTurn(text, [AGAIN.format(tool.name)], [asked.call], kind="follow"),
            ]
        return [self.single()]

    def row(self) -> list[DialogueTurn]:
        """Requests one after the other that have nothing to do with each other: mostly of one tool,
        whose earlier results would be wrong answers."""
        rng = self.rng
        turns = [self.single()]
        for _ in range(rng.choice([1, 1, 2])):
            calls = turns[0].calls
            if not calls or rng.random() < 0.3:
                turns.append(rng.choice([self.single, self.single, self.chat])())
                continue
            tool = calls[0].tool
            if tool is None and rng.random() < 0.4:
                code = arithmetic.simple(rng, self.split)
                text = expand(rng, rng.choice(phrases.SYMBOLS), [code])
                asked = self.of_sum(text, arithmetic.spaced(code))
            else:
                asked = self.of_python() if tool is None else self.of_tool(tool)
            turns.append(DialogueTurn(asked.text, [asked.thought()], [asked.call], kind="row"))
        return turns
