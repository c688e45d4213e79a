"""`agent run`: runs one turn without the app, shown on a terminal, in a pipe, or as JSON lines."""

from __future__ import annotations

import asyncio
import json
import math
import os
import select
import signal
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from agent import bootstrap
from agent.cli import login_prompt
from agent.config.launch import LaunchOptions
from agent.conversation.attachments import format_attachment
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.conversation.project_instructions import ProjectInstructions
from agent.errors import UserError
from agent.events import AgentNotice, AgentPrompt, AgentTokens, Event, Response, TokenEvent
from agent.models.catalog import EMBEDDED_NOTICE
from agent.store.conversations import Store, StoreError
from agent.store.recorder import TurnRecorder
from agent.turn.continuation import begin_with
from agent.turn.loop import Turn
from agent.turn.options import AnswerForm, TurnOptions, response_format_section
from agent.util.ids import new_id
from agent.util.images import CANNOT_SEE, is_image
from agent.util.json_schema import find_schema_error
from agent.util.process import (
    EXIT_BROKEN_PIPE,
    EXIT_CANCELLED,
    EXIT_FAILED,
    EXIT_HANGUP,
    exit_on_signals,
    is_terminal_gone,
    termination_signals,
)
from agent.util.sanitize import echo, escape_json, sanitize, sanitizer_for
from tools import private_files

if TYPE_CHECKING:
    from agent.runtime.runtime import Runtime

SAME_SIGNAL_SECONDS = 0.3
"""A signal this soon after another is the same one: timeout(1) sends its own twice."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of `agent run` alone, named as on the command line."""

    prompt: str | None
    json_events: bool = False
    output: Path | None = None
    quiet: bool = False
    continue_latest: bool = False
    resume: str | None = None
    output_schema: Path | None = None
    timeout: float | None = None
    dump_tokens: Path | None = None
    begin_thought: str | None = None
    begin_answer: str | None = None
    no_stdin: bool = False


class Renderer(Protocol):
    """Shows the events of a turn; may raise BrokenPipeError."""

    def show(self, event: Event) -> None:
        """Write what this event adds."""
        ...

    def flush(self) -> None:
        """Flush the output; called after each batch of events."""
        ...


class JsonLinesRenderer:
    """Writes every event as one line of JSON."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._sanitize = out, sanitizer_for(out)

    def show(self, event: Event) -> None:
        """Write the event, unless it is one of tokens."""
        if isinstance(event, TokenEvent):
            return  # they were asked for by --dump-tokens
        self._out.write(self._sanitize(event.model_dump_json()) + "\n")

    def flush(self) -> None:
        """Flush the output."""
        self._out.flush()


def main(request: RunRequest, launch: LaunchOptions) -> int:
    """Run the turn and return the exit code. Raises UserError."""
    prompt = _read_prompt(request)
    runtime = bootstrap.create_runtime(launch, serves_engine=False)
    options = _with_schema(bootstrap.turn_options(launch, runtime.model), request.output_schema)
    options = replace(options, project=_project_instructions(launch))
    if login_prompt.can_ask():
        options = replace(options, login=login_prompt.ask_login)
    _check_writable("--output", request.output)
    _check_writable("--dump-tokens", request.dump_tokens)
    store, conversation = _open_conversation(request, runtime)
    out = _private_stdout()
    renderer = _renderer(request, out, runtime)
    try:
        return asyncio.run(_run(request, runtime, conversation, prompt, options, store, renderer))
    finally:
        exit_on_signals()
        if store is not None:
            store.close()
        with suppress(OSError):
            out.close()


async def _run(
    request: RunRequest,
    runtime: Runtime,
    conversation: Conversation,
    prompt: str,
    options: TurnOptions,
    store: Store | None,
    renderer: Renderer,
) -> int:
    runtime.token_events = request.dump_tokens is not None
    begun = [
        None if text is None else bootstrap.decode_argument(text)
        for text in (request.begin_thought, request.begin_answer)
    ]
    begin = begin_with(*begun) if any(text is not None for text in begun) else None
    turn = Turn(runtime, conversation, [User(prompt)], options, begin=begin)
    output_error: int | None = None
    loop = asyncio.get_running_loop()
    interrupt = _interrupt(turn)
    for number in termination_signals():
        # A terminal that goes sends several SIGHUPs, and the writing fails: once is enough of these.
        loop.add_signal_handler(number, turn.stop if number == signal.SIGHUP else interrupt)
    if request.timeout is not None:
        loop.call_later(request.timeout, turn.stop, "timeout")
    try:
        await runtime.start()
        if store is not None:
            TurnRecorder(store, _warn_not_stored).record(turn, prompt)
        turn.start()
        try:
            async for batch in turn.log.follow():
                for event in batch:
                    renderer.show(event)
                renderer.flush()
        except BrokenPipeError:
            turn.stop()
            output_error = EXIT_BROKEN_PIPE
        except OSError as error:
            output_error = EXIT_HANGUP if is_terminal_gone() else EXIT_FAILED
            echo(f"agent: cannot write the output: {error.strerror}.", file=sys.stderr)
            turn.stop()
        response = await turn.done()
    finally:
        await runtime.close()
    _write_files(request, turn, response)
    if output_error is None and turn.exit_code == EXIT_CANCELLED and is_terminal_gone():
        return EXIT_HANGUP
    return turn.exit_code if output_error is None else output_error


def _warn_not_stored(error: sqlite3.Error) -> None:
    """Say that the turn could not be written: the answer counts more than its storage."""
    echo(f"agent: this conversation is not stored: {error}.", file=sys.stderr)


def _interrupt(turn: Turn) -> Callable[[], None]:
    """A signal handler that stops the turn, and exits at once when it is called a second time."""
    last_signal = -math.inf

    def interrupt() -> None:
        nonlocal last_signal
        now = time.monotonic()
        if turn.stop_reason and now - last_signal > SAME_SIGNAL_SECONDS:
            # The second signal waits for nothing that holds the turn up.
            from tools.process_groups import kill_all

            kill_all()
            os._exit(EXIT_CANCELLED)
        last_signal = now
        turn.stop()

    return interrupt


# --- input ---


def _read_prompt(request: RunRequest) -> str:
    """The prompt argument with piped stdin attached; ``-`` or no argument reads stdin alone.

    Line breaks at its end, which ``echo`` adds, are not part of a prompt. What is piped beside a
    prompt is attached as a file is: it may be a stranger's text, not the person's own words. What
    is piped alone is their prompt, for there is no other text that could say what they want.
    """
    argument, required = request.prompt, request.prompt in (None, "-")
    piped = "" if request.no_stdin else (_read_stdin(required) or "").rstrip("\r\n")
    if argument is None or argument == "-":
        prompt = piped
    else:
        prompt = bootstrap.decode_argument(argument).rstrip("\r\n")
        if piped.strip():
            if prompt.strip():
                # A loop around this command may have meant to read these lines itself.
                count = piped.count("\n") + 1
                lines = "1 line of stdin is" if count == 1 else f"{count:,} lines of stdin are"
                echo(f"agent: {lines} attached (--no-stdin leaves it alone).", file=sys.stderr)
            prompt = prompt + format_attachment("stdin", piped) if prompt.strip() else piped
    if not prompt.strip():
        raise UserError("The prompt is empty; give one: agent run 'What is 12*34?'")
    return prompt


def _read_stdin(required: bool) -> str | None:
    """All of stdin; None where it is not ``required`` and is neither a pipe nor a file."""
    stdin = sys.stdin
    if stdin.isatty():
        if not required:
            return None
        print("Type the prompt, then Ctrl-D:", file=sys.stderr)
    elif not required:
        mode = os.fstat(stdin.fileno()).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
            return None
        if stat.S_ISFIFO(mode) and not select.select([stdin], [], [], 1.0)[0]:
            print("agent: reading stdin until its end (--no-stdin skips it) …", file=sys.stderr)
    data = stdin.buffer.read()
    if is_image(data):
        raise UserError(f"The input is an image, and {CANNOT_SEE}.")
    return data.decode("utf-8", errors="replace")


def _check_writable(option: str, file: Path | None) -> None:
    """Raise UserError now where the file could not be written after the turn."""
    if file is None:
        return
    path = file.expanduser()
    if path.is_dir():
        raise UserError(f"{option}: {file} is a folder.")
    if not path.parent.is_dir():
        raise UserError(f"{option}: the folder of {file} does not exist.")


def _project_instructions(launch: LaunchOptions) -> ProjectInstructions:
    instructions = bootstrap.project_instructions(launch)
    for sentence in instructions.notices:
        echo(f"agent: {sentence}", file=sys.stderr)
    return instructions


def _with_schema(options: TurnOptions, file: Path | None) -> TurnOptions:
    """Enforce the JSON Schema in ``file`` on the answer. Raises UserError."""
    if file is None:
        return options
    try:
        schema = json.loads(file.expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--output-schema: {file} is not a JSON Schema file: {error}") from error
    if not isinstance(schema, dict):
        raise UserError(f"--output-schema: {file} must hold a JSON object.")
    if why := find_schema_error(schema):
        raise UserError(f"--output-schema: {file} is not a JSON Schema: {why}.")
    section = response_format_section(schema)
    instructions = "\n\n".join(filter(None, (options.instructions, section)))
    answer = AnswerForm(schema, checked=True)
    return replace(options, instructions=instructions, answer_form=answer)


def _open_conversation(request: RunRequest, runtime: Runtime) -> tuple[Store | None, Conversation]:
    """The conversation that is continued, or a new one; without a store where none can be written."""
    resumed = request.continue_latest or request.resume is not None
    try:
        store = Store(runtime.paths.store)
        conversation = store.load(request.resume) if resumed else Conversation(new_id("conv"))
        for sentence in store.damage.take():
            echo(f"agent: {sentence}", file=sys.stderr)
        return store, conversation
    except StoreError as error:
        if resumed:
            raise UserError(str(error)) from error
        echo(f"agent: {error} This conversation is not stored.", file=sys.stderr)
        return None, Conversation(new_id("conv"))


# --- output ---


def _private_stdout() -> TextIO:
    """Our own handle on stdout; what else writes to file descriptor 1 (native code) goes to stderr."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="\n")
    os.dup2(2, 1)
    return out


def _renderer(request: RunRequest, out: TextIO, runtime: Runtime) -> Renderer:
    if request.json_events:
        return JsonLinesRenderer(out)
    from agent.cli.render import PlainRenderer, TerminalRenderer

    renderer: Renderer
    if out.isatty() and not request.quiet:
        renderer = TerminalRenderer(out)
        if runtime.model.embedded and runtime.script is None:
            renderer.show(AgentNotice(level="info", message=EMBEDDED_NOTICE))
    else:
        renderer = PlainRenderer(out, None if request.quiet else sys.stderr)
    return renderer


def _generated_ids(events: Iterable[Event]) -> list[list[int]]:
    """The token ids of each generation of a turn."""
    generations: list[list[int]] = []
    for event in events:
        match event:
            case AgentPrompt():
                generations.append([])
            case AgentTokens(ids=ids):
                generations[-1] += ids
    return generations


def _write_files(request: RunRequest, turn: Turn, response: Response) -> None:
    texts: list[tuple[Path, str]] = []
    if request.output is not None and (response.status == "completed" or response.output_text):
        clean = escape_json if request.output_schema else sanitize
        texts.append((request.output, clean(response.output_text)))
    if request.dump_tokens is not None:
        lines = [json.dumps({"tokens": ids}) for ids in _generated_ids(turn.log.events)]
        texts.append((request.dump_tokens, "".join(f"{line}\n" for line in lines)))
    for path, text in texts:
        try:
            private_files.write_text(path.expanduser(), text)
        except OSError as error:  # which names no file where the disk is full
            turn.exit_code = turn.exit_code or EXIT_FAILED
            echo(f"agent: cannot write {path}: {error.strerror}.", file=sys.stderr)
