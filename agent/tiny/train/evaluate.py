"""The evaluation: the expanded model through llama.cpp, on prompts whose values are held out.

python -m agent.tiny.train.evaluate [--temperature 1.0] [--share 0.2] [--core FILE] [--misses 20]
"""

from __future__ import annotations

import argparse
import ast
import json
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agent.tiny import expand, vocabulary
from agent.tiny.train import arithmetic, cases, data
from agent.tiny.train.cases import Case, Expected, Step
from agent.tiny.train.turns import PLAIN_EXPRESSION

MAX_REPLY_TOKENS = 220
"""A generation longer than this has gone astray (tokens)."""


class Runner:
    """Greedy or sampled generation with a prefix cache, on llama.cpp's own functions."""

    def __init__(self, path: Path, threads: int, temperature: float, seed: int = 1) -> None:
        from agent.engine.llama import bindings  # takes llama.cpp's log

        self.lib: Any = bindings.lib
        self.lib.llama_backend_init()
        model = self.lib.llama_model_default_params()
        model.use_extra_bufts = False
        self.model = self.lib.llama_model_load_from_file(str(path).encode(), model)
        context = self.lib.llama_context_default_params()
        context.n_ctx = 4096
        context.n_batch = context.n_ubatch = 1024
        context.n_threads = context.n_threads_batch = threads
        context.swa_full = True
        context.n_outputs_max = 1
        self.context = self.lib.llama_init_from_model(self.model, context)
        self.memory = self.lib.llama_get_memory(self.context)
        self.cached_ids: list[int] = []
        self.temperature = temperature
        self.rng = np.random.default_rng(seed)
        self.made, self.seconds = 0, 0.0

    def feed(self, ids: list[int]) -> None:
        """Makes the cache hold `ids`; logits belong to the last one."""
        same = 0
        limit = min(len(self.cached_ids), len(ids) - 1)
        while same < limit and self.cached_ids[same] == ids[same]:
            same += 1
        self.lib.llama_memory_seq_rm(self.memory, 0, same, -1)
        for at in range(same, len(ids), 1024):
            part = ids[at : at + 1024]
            array = (self.lib.llama_token * len(part))(*part)
            if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(array, len(part))):
                raise RuntimeError("llama_decode failed")
        self.cached_ids = list(ids)

    def pick(self) -> int:
        """Sample the next token, or take the likeliest one."""
        pointer = self.lib.llama_get_logits_ith(self.context, -1)
        logits = np.ctypeslib.as_array(pointer, (vocabulary.VOCABULARY_SIZE,))
        if self.temperature <= 0:
            return int(logits.argmax())
        scaled = logits.astype(np.float64) / self.temperature
        power = np.exp(scaled - scaled.max()).cumsum()
        return int(np.searchsorted(power, self.rng.random() * power[-1]))

    def generate(self, ids: list[int]) -> list[int]:
        """What the model writes after `ids`, its stop token included."""
        self.feed(ids)
        begun = time.perf_counter()
        out: list[int] = []
        while len(out) < MAX_REPLY_TOKENS:
            token = self.pick()
            out.append(token)
            if token in (data.RETURN_ID, data.CALL_ID, 199_999):
                break
            self.feed([*self.cached_ids, token])
        self.made += len(out)
        self.seconds += time.perf_counter() - begun
        return out


@dataclass
class GeneratedReply:
    """One generation, taken apart strictly."""

    well_formed: bool = False
    recipient: str = ""
    body: str = ""
    final: bool = False
    history_ids: list[int] = field(default_factory=list)
    """Token ids of the last message, from its channel marker on."""


def text_of(ids: list[int]) -> str:
    """Decode token ids."""
    text: str = data.encoding().decode(ids)
    return text


def parse(ids: list[int]) -> GeneratedReply:
    """Messages `<|channel|>header<|message|>body<|end|><|start|>assistant`, the last one stopped."""
    out = GeneratedReply()
    at = 0
    while True:
        if at >= len(ids) or ids[at] != data.CHANNEL_ID or data.MESSAGE_ID not in ids[at:]:
            return out
        middle = ids.index(data.MESSAGE_ID, at)
        stop = middle + 1
        while stop < len(ids) and ids[stop] < 199_998:
            stop += 1
        if stop == len(ids):
            return out
        header = text_of(ids[at + 1 : middle])
        body = text_of(ids[middle + 1 : stop])
        if ids[stop] == data.END_ID:
            if header != "analysis" or tuple(ids[stop + 1 : stop + 3]) != data.ASSISTANT:
                return out
            at = stop + 3
            continue
        out.history_ids = ids[at : stop + 1]
        out.body = body
        if ids[stop] == data.RETURN_ID and header == "final":
            out.final = out.well_formed = True
        elif ids[stop] == data.CALL_ID and header == "analysis to=python code":
            out.recipient, out.well_formed = "python", True
        elif ids[stop] == data.CALL_ID and header.startswith("commentary to=functions."):
            name, _, kind = header.removeprefix("commentary to=functions.").partition(" ")
            out.recipient = name
            out.well_formed = kind == "<|constrain|>json" and _is_object(body)
        return out


def _is_object(body: str) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


@dataclass
class Score:
    """Counts of one kind of case."""

    cases: int = 0
    tool: int = 0
    arguments: int = 0
    strict: int = 0
    answer: int = 0
    turns: int = 0
    well_formed: int = 0


SUM_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop, ast.Call,
    ast.Name, ast.List, ast.Load,
)  # fmt: skip
"""What code may hold that is judged by its result."""


def right_arguments(wanted: Expected, body: str) -> tuple[bool, bool]:
    """Equal after stripping spaces of strings, and equal as they are."""
    code = wanted.arguments.get("code") if wanted.name == "python" else None
    if code is not None and not PLAIN_EXPRESSION.fullmatch(code):  # one text is right
        return body.strip() == code.strip(), body.strip() == code.strip()
    if wanted.name == "python":
        try:
            tree = ast.parse(body, mode="eval")
        except (SyntaxError, ValueError):
            return False, False
        if (
            not all(isinstance(node, SUM_NODES) for node in ast.walk(tree))
            or len(body) > 80
            or body.count("**") > 2
        ):
            return False, False
        code = wanted.arguments.get("code")
        same = arithmetic.run(body) == (arithmetic.run(code) if code else wanted.result)
        same = same or (results_error(wanted.result) and code is None)
        return same, same
    if not _is_object(body):
        return False, False
    got = json.loads(body)
    stripped = {k: v.strip() if isinstance(v, str) else v for k, v in got.items()}
    return stripped == wanted.arguments, got == wanted.arguments


def results_error(result: str) -> bool:
    """Whether a tool's result is an error."""
    from agent.tiny.train import results

    return results.is_error(result)


def run_case(runner: Runner, case: Case, score: Score) -> str:
    """Runs a case; returns "" or what went wrong."""
    ids = list(case.prefix)
    score.cases += 1
    tool = arguments = strict = answer = True
    problem = ""
    for step in case.steps:
        prompt = data.ConversationWriter()
        data.write_user(prompt, step.user)
        ids += prompt.ids
        history = list(ids)
        ok_tool, ok_args, ok_strict, reply = run_step(runner, step, ids, history, score)
        tool, arguments, strict = tool and ok_tool, arguments and ok_args, strict and ok_strict
        missing = [a for a in step.answer if a.lower() not in reply.body.lower()]
        answer = answer and ok_args and reply.final and not missing
        if not answer:
            problem = f"{step.user!r} → {text_of(ids[len(case.prefix) :])!r}"
            break
        ids = history
    score.tool += tool
    score.arguments += arguments
    score.strict += strict
    score.answer += answer
    return problem


def run_step(
    runner: Runner, step: Step, ids: list[int], history: list[int], score: Score
) -> tuple[bool, bool, bool, GeneratedReply]:
    """One turn; `ids` grows by all that is generated, `history` by what a later turn sees."""
    tool = arguments = strict = True
    for number in range(len(step.calls) + 1):
        made = runner.generate(ids)
        ids += made
        written = parse(made)
        score.turns += 1
        score.well_formed += written.well_formed
        if number == len(step.calls):
            tool = tool and written.final
            if written.history_ids:
                history += [*written.history_ids[:-1], data.END_ID]
            return tool, arguments and tool, strict and tool, written
        wanted = step.calls[number]
        if written.recipient != wanted.name:
            return False, False, False, written
        good, exact = right_arguments(wanted, written.body)
        arguments, strict = arguments and good, strict and exact
        if not good:
            return tool, False, False, written
        author, channel = (
            ("python", "analysis")
            if wanted.name == "python"
            else (f"functions.{wanted.name}", "commentary")
        )
        reply = [
            data.START_ID, *data.encode(author), *data.encode(" to=assistant"), data.CHANNEL_ID,
            *data.encode(channel), data.MESSAGE_ID, *data.encode(wanted.result),
            data.END_ID, *data.ASSISTANT,
        ]  # fmt: skip
        history += [*written.history_ids, *reply]
        ids += reply
    raise AssertionError("unreachable")


def row(name: str, s: Score) -> str:
    """One line of the report."""

    def part(count: int, of: int) -> str:
        return f"{100 * count / max(1, of):.1f}"

    return (
        f"| {name} | {s.cases} | {part(s.tool, s.cases)} | {part(s.arguments, s.cases)} | "
        f"{part(s.strict, s.cases)} | {part(s.answer, s.cases)} | {part(s.well_formed, s.turns)} |"
    )


def total(scores: list[Score]) -> Score:
    """Sum of all scores."""
    out = Score()
    for score in scores:
        for key, value in vars(score).items():
            setattr(out, key, getattr(out, key) + value)
    return out


FIXED_KINDS = (
    "python",
    "read",
    "list",
    "search",
    "weather",
    "time",
    "echo",
    "sum",
    "note",
    "define",
)


def main() -> None:
    """Run the evaluation and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--share", type=float, default=1.0, help="of the generated cases")
    parser.add_argument("--core", type=Path, default=expand.CORE)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "agent-tiny")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--misses", type=int, default=0, help="print so many misses of each kind")
    options = parser.parse_args()
    expand.CORE = options.core
    path = expand.ensure(options.cache)
    everything = [*cases.handwritten("demo30"), *cases.generated(options.share)]
    for temperature in options.temperature:
        report(Runner(path, options.threads, temperature), everything, options.misses)


def report(runner: Runner, everything: list[Case], misses: int) -> None:
    """Run all cases and print a table, after the first ``misses`` misses of each kind."""
    scores: dict[str, Score] = defaultdict(Score)
    missed: Counter[str] = Counter()
    for case in everything:
        problem = run_case(runner, case, scores[case.kind])
        if problem:
            missed[case.kind] += 1
            if missed[case.kind] <= misses:
                print(f"{case.kind}: {problem}\n", flush=True)
    speed = runner.made / max(1e-9, runner.seconds)
    print(f"temperature {runner.temperature}, {speed:.0f} tokens/s generated\n")
    print("| kind | cases | tool % | arguments % | unstripped % | end to end % | well-formed % |")
    print("|---|---|---|---|---|---|---|")
    print(row("**fixed tools, all**", total([scores[k] for k in FIXED_KINDS])))
    for kind, score in scores.items():
        print(row(kind, score))
    print(row("**all**", total(list(scores.values()))) + "\n", flush=True)


if __name__ == "__main__":
    main()
