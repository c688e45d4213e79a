"""`agent run`: one turn without an app, shown on a terminal, in a pipe, or as JSON lines."""

from __future__ import annotations

import asyncio
import json
import math
import os
import select
import sqlite3
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Protocol, TextIO

from agent import bootstrap
from agent.cli.shared import Shared
from agent.conversation.conversation import Conversation, User
from agent.errors import UserError
from agent.events import AgentNotice, Event, MessageItem, Response
from agent.store.conversations import Store, StoreError
from agent.store.recorder import Journal
from agent.turn.constraints import AnswerForm
from agent.turn.endings import EXIT_FAILED, EXIT_UNREAD, ending_signals, leaving
from agent.turn.loop import Turn
from agent.turn.options import Options
from agent.turn.output import new_id
from agent.util.sanitize import fit, say

if TYPE_CHECKING:
    from agent.runtime.runtime import Runtime

P = ParamSpec("P")
AGAIN = 0.3
"""Seconds: a signal that follows another sooner is the same one; timeout(1) sends its own twice."""


@dataclass(frozen=True, slots=True)
class Job:
    """What `agent run` was asked; names as on the command line."""

    prompt: str | None
    json_events: bool = False
    output: Path | None = None
    quiet: bool = False
    go_on: bool = False
    resume: str | None = None
    output_schema: Path | None = None
    timeout: float | None = None
    dump_tokens: Path | None = None


class Face(Protocol):
    """Shows the events of a turn; may raise BrokenPipeError."""

    def show(self, event: Event) -> None: ...

    def flush(self) -> None:
        """Called after each batch of events."""
        ...


class JsonLines:
    """Every event as one line."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._fit = out, fit(out)

    def show(self, event: Event) -> None:
        self._out.write(self._fit(event.model_dump_json()) + "\n")

    def flush(self) -> None:
        self._out.flush()


def main(job: Job, shared: Shared) -> int:
    """Run it; the exit code."""
    prompt = _prompt(job.prompt)
    runtime = bootstrap.runtime(shared)
    options = _with_schema(bootstrap.options(shared, runtime.model), job.output_schema)
    _can_lie_there("--output", job.output)
    _can_lie_there("--dump-tokens", job.dump_tokens)
    store, conversation = _conversation(job, runtime)
    out = _private_stdout()
    face = _face(job, out, runtime)
    try:
        return asyncio.run(_run(job, runtime, conversation, prompt, options, store, face))
    finally:
        leaving()
        if store is not None:
            store.close()
        with suppress(OSError):
            out.close()


async def _run(
    job: Job,
    runtime: Runtime,
    conversation: Conversation,
    prompt: str,
    options: Options,
    store: Store | None,
    face: Face,
) -> int:
    turn = Turn(runtime, conversation, [User(prompt)], options)
    unwritten: int | None = None
    loop = asyncio.get_running_loop()
    interrupt = _interrupt(turn)
    for number in ending_signals():
        loop.add_signal_handler(number, interrupt)
    if job.timeout is not None:
        loop.call_later(job.timeout, turn.stop, "timeout")
    try:
        await runtime.start()
        if store is not None and not _kept(store.begin, conversation, prompt, turn.response):
            store = None
        turn.start()
        journal = Journal(store, turn) if store is not None else None
        try:
            async for batch in turn.log.follow():
                for event in batch:
                    face.show(event)
                face.flush()
        except BrokenPipeError:
            turn.stop()
            unwritten = EXIT_UNREAD
        except OSError as error:
            say(f"agent: cannot write the output: {error.strerror}.", file=sys.stderr)
            turn.stop()
            unwritten = EXIT_FAILED
        response = await turn.done()
        if journal is not None:
            _kept(journal.finish, response)
    finally:
        await runtime.close()
    _write_files(job, turn, response)
    return turn.exit_code if unwritten is None else unwritten


def _kept(write: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Whether the store took it; where not, the answer counts more than its keeping."""
    try:
        write(*args, **kwargs)
    except sqlite3.Error as error:
        say(f"agent: this conversation is not kept: {error}.", file=sys.stderr)
        return False
    return True


def _interrupt(turn: Turn) -> Callable[[], None]:
    last = -math.inf

    def interrupt() -> None:
        nonlocal last
        now = time.monotonic()
        if turn.stopped and now - last > AGAIN:
            # Asked a second time: whatever holds the turn up is not waited for.
            from tools.process_groups import kill_all

            kill_all()
            os._exit(130)
        last = now
        turn.stop()

    return interrupt


# --- what goes in ---


def _prompt(argument: str | None) -> str:
    """The prompt, with what is piped in; `-` or nothing reads stdin alone."""
    piped = _stdin(wanted=argument in (None, "-"))
    given = bootstrap.utf8(argument) if argument not in (None, "-") else None
    parts = [given, piped]
    prompt = "\n\n".join(part for part in parts if part and part.strip())
    if not prompt:
        raise UserError("The prompt is empty; give one: agent run 'What is 12*34?'")
    return prompt


def _stdin(wanted: bool) -> str | None:
    stdin = sys.stdin
    if stdin.isatty():
        if not wanted:
            return None
        print("Type the prompt, then Ctrl-D:", file=sys.stderr)
    elif not wanted:
        mode = os.fstat(stdin.fileno()).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
            return None
        if stat.S_ISFIFO(mode) and not select.select([stdin], [], [], 1.0)[0]:
            print("agent: waiting for the end of stdin (< /dev/null skips it) …", file=sys.stderr)
    return stdin.buffer.read().decode("utf-8", errors="replace")


def _can_lie_there(option: str, file: Path | None) -> None:
    if file is None:
        return
    path = file.expanduser()
    if path.is_dir():
        raise UserError(f"{option}: {file} is a folder.")
    if not path.parent.is_dir():
        raise UserError(f"{option}: the folder of {file} does not exist.")


def _with_schema(options: Options, file: Path | None) -> Options:
    if file is None:
        return options
    try:
        schema = json.loads(file.expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--output-schema: {file} is not a JSON Schema file: {error}") from error
    if not isinstance(schema, dict):
        raise UserError(f"--output-schema: {file} holds no JSON Schema: an object is expected.")
    # The section and its wording are those of the Harmony guide's structured output.
    section = f"# Response Formats\n\n## output\n\n{json.dumps(schema, ensure_ascii=False)}"
    instructions = "\n\n".join(filter(None, (options.instructions, section)))
    answer = AnswerForm(schema, checked=True)
    return replace(options, instructions=instructions, answer=answer)


def _conversation(job: Job, runtime: Runtime) -> tuple[Store | None, Conversation]:
    """The conversation that goes on, or a new one; without a store where none can be written."""
    resumed = job.go_on or job.resume is not None
    try:
        store = Store(runtime.where.store)
        return store, store.load(job.resume) if resumed else Conversation(new_id("conv"))
    except StoreError as error:
        if resumed:
            raise UserError(str(error)) from error
        say(f"agent: {error} This conversation is not kept.", file=sys.stderr)
        return None, Conversation(new_id("conv"))


# --- what comes out ---


def _private_stdout() -> TextIO:
    """Our own handle on stdout; whatever else writes to fd 1 (native code) lands on stderr."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="\n")
    os.dup2(2, 1)
    return out


def _face(job: Job, out: TextIO, runtime: Runtime) -> Face:
    if job.json_events:
        return JsonLines(out)
    from agent.cli.render import Pipe, Terminal

    face: Face
    if out.isatty() and not job.quiet:
        face = Terminal(out)
        if runtime.model.embedded and runtime.script is None:
            face.show(AgentNotice(level="info", message=EMBEDDED_NOTICE))
    else:
        face = Pipe(out, None if job.quiet else sys.stderr)
    return face


EMBEDDED_NOTICE = (
    "tiny is the embedded demonstration model; for a real one: agent models pull gpt-oss-20b"
)


def final_text(response: Response) -> str:
    """The answer: the texts of the final messages."""
    return "\n\n".join(
        "".join(part.text for part in item.content)
        for item in response.output
        if isinstance(item, MessageItem) and item.phase == "final_answer"
    )


def _write_files(job: Job, turn: Turn, response: Response) -> None:
    try:
        if job.output is not None and (response.status == "completed" or final_text(response)):
            job.output.expanduser().write_text(final_text(response), encoding="utf-8")
        if job.dump_tokens is not None:
            lines = [json.dumps({"tokens": ids}) for ids in turn.generated]
            text = "".join(f"{line}\n" for line in lines)
            job.dump_tokens.expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        turn.exit_code = turn.exit_code or EXIT_FAILED
        say(f"agent: cannot write {error.filename}: {error.strerror}.", file=sys.stderr)
