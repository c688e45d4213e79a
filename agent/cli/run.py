"""`agent run`: runs one turn without the app, shown on a terminal, in a pipe, or as JSON lines."""

import asyncio
import json
import os
import select
import signal
import sqlite3
import stat
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from agent import bootstrap
from agent.cli import login_prompt
from agent.cli.render import JsonLinesRenderer, PlainRenderer, Renderer, TerminalRenderer
from agent.cli.trust import can_ask
from agent.config.launch import LaunchOptions
from agent.config.text_files import project_name
from agent.conversation.attachments import attached_text, format_attachment
from agent.conversation.conversation import Conversation
from agent.errors import UserError, describe_cause
from agent.events import AgentNotice, AgentPrompt, AgentTokens, Event, Response
from agent.models.catalog import EMBEDDED_NOTICE
from agent.runtime.runtime import Runtime
from agent.server.http.signals import SAME_SIGNAL_SECONDS, stop_on_signals
from agent.store.conversations import Store, StoreError
from agent.store.lookup import short_id
from agent.store.recorder import TurnRecorder
from agent.turn.continuation import begin_with
from agent.turn.log import EventLog
from agent.turn.loop import Turn
from agent.turn.options import AnswerForm, TurnOptions, response_format_section
from agent.util import private_files, process
from agent.util.ids import new_id
from agent.util.json_schema import find_schema_error
from agent.util.sanitize import echo, escape_json, sanitize
from agent.util.user_files import read_text, refuse_link

LAST_WORDS_SECONDS = 2.0
"""Time that a stopped turn waits for a reader that does not read."""


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


def main(request: RunRequest, launch: LaunchOptions) -> int:
    """Run the turn and return the exit code. Raises UserError."""
    _refuse_contradictions(request, launch)
    prompt = _read_prompt(request)
    runtime = bootstrap.create_runtime(launch, serves_engine=False)
    options = _with_schema(bootstrap.turn_options(launch, runtime.model), request.output_schema)
    project, mode = bootstrap.project_instructions(launch), bootstrap.person_mode(launch)
    options = replace(options, project=project, mode=mode)
    for sentence in options.project.notices:
        echo(f"agent: {sentence}", file=sys.stderr)
    if can_ask():
        options = replace(options, login=login_prompt.ask_login)
    _check_writable("--output", request.output)
    _check_writable("--dump-tokens", request.dump_tokens)
    store, conversation = _open_conversation(request, runtime, launch.root)
    out = os.fdopen(process.private_stdout(), "w", encoding="utf-8", errors="replace", newline="\n")
    output = OutputThread(_renderer(request, out, runtime))
    try:
        run = _run(request, launch, runtime, conversation, prompt, options, store, output)
        code = asyncio.run(run)
    finally:
        process.exit_on_signals()
        if store is not None:
            store.close()
        if not output.is_blocked:
            with suppress(OSError):
                out.close()
    if output.is_blocked:
        os._exit(code)  # Python would wait for the thread that writes
    return code


def _refuse_contradictions(request: RunRequest, launch: LaunchOptions) -> None:
    if request.continue_latest and request.resume is not None:
        raise UserError("--continue and --resume exclude each other.")
    if request.json_events and request.quiet:
        raise UserError("--json-events and --quiet exclude each other.")
    files = {
        "--output-schema": request.output_schema,
        "--output": request.output,
        "--dump-tokens": request.dump_tokens,
        "--trace": launch.trace,
    }
    options: dict[object, str] = {}
    for option, file in files.items():
        path = None if file is None else Path(os.path.realpath(file))
        if path is None or path.is_char_device():  # /dev/null
            continue
        # A file may have two names.
        identity = (path.stat().st_dev, path.stat().st_ino) if path.exists() else path
        if identity in options:
            raise UserError(f"{options[identity]} and {option} name the same file, {file}.")
        options[identity] = option


class OutputThread:
    """Writes events in a thread of its own: a reader that does not read holds up nothing else."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer, self._thread = renderer, ThreadPoolExecutor(1, "output")
        self.is_blocked = False
        """Whether a reader does not read, and is no longer waited for."""
        self._written = 0

    async def follow(self, log: EventLog) -> None:
        loop = asyncio.get_running_loop()
        async for batch in log.follow():
            await loop.run_in_executor(self._thread, self._show, batch)

    def _show(self, batch: list[Event]) -> None:
        for event in batch:
            self._renderer.show(event)
            self._written += 1
        self._renderer.flush()

    async def finish(self, following: asyncio.Task[None]) -> None:
        """Wait for the end of a task of `follow`, as long as the reader reads. Raises OSError."""
        before = -1
        while not following.done() and before < self._written:
            before = self._written
            await asyncio.wait([following], timeout=LAST_WORDS_SECONDS)
        self.is_blocked = not following.done()
        if not self.is_blocked:
            await following


async def _run(
    request: RunRequest,
    launch: LaunchOptions,
    runtime: Runtime,
    conversation: Conversation,
    prompt: str,
    options: TurnOptions,
    store: Store | None,
    output: OutputThread,
) -> int:
    runtime.token_events = request.dump_tokens is not None
    begun = [
        None if text is None else bootstrap.decode_argument(text)
        for text in (request.begin_thought, request.begin_answer)
    ]
    conversation_id = conversation.id
    begin = begin_with(*begun) if any(text is not None for text in begun) else None
    turn = Turn(runtime, conversation, options.prompt_messages(prompt), options, begin=begin)
    output_error: int | None = None
    stopping = _Stopping(turn)
    stop_on_signals(stopping.on_signal, same_seconds=SAME_SIGNAL_SECONDS)
    if request.timeout is not None:
        asyncio.get_running_loop().call_later(
            request.timeout, stopping.stop, process.EXIT_INCOMPLETE
        )
    try:
        await runtime.start()
        if launch.tools not in (None, "all", "none"):
            await runtime.plan_placement()
            if runtime.host.withheld:
                raise UserError(f"--tools {launch.tools}: {runtime.host.withheld}")
        if store is not None:

            def warn(error: sqlite3.Error) -> None:  # the answer counts more than its storage
                echo(f"agent: this conversation is not stored: {error}.", file=sys.stderr)

            TurnRecorder(store, warn).record(turn, prompt)
        turn.start()
        following = asyncio.create_task(output.follow(turn.log))
        stopped = asyncio.create_task(stopping.requested.wait())
        try:
            await asyncio.wait([following, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                await turn.done()
            await output.finish(following)
        except BrokenPipeError:
            turn.stop()
            output_error = process.EXIT_BROKEN_PIPE
        except OSError as error:
            output_error = (
                process.EXIT_HANGUP if process.is_terminal_gone() else process.EXIT_FAILED
            )
            echo(f"agent: cannot write the output: {error.strerror}.", file=sys.stderr)
            turn.stop()
        response = await turn.done()
    finally:
        await runtime.close()
    if conversation.id != conversation_id:
        echo(
            "agent: another program has continued this conversation: this turn is in a branch of it,"
            f" {short_id(conversation.id)}.",
            file=sys.stderr,
        )
    process.exit_on_signals()  # a pipe among the files may wait for its reader
    _write_files(request, turn, response)
    if output_error is not None:
        return output_error
    # Where the turn was done, but not what is written about it, it was stopped all the same.
    was_stopped = output.is_blocked or turn.exit_code == process.EXIT_CANCELLED
    return stopping.exit_code if was_stopped and stopping.exit_code else turn.exit_code


class _Stopping:
    """Stops a turn at a signal or when its time is over, and knows the exit code of that."""

    def __init__(self, turn: Turn) -> None:
        self._turn, self.requested = turn, asyncio.Event()
        self.exit_code: int | None = None

    def on_signal(self, number: int) -> None:
        self.stop(process.EXIT_HANGUP if number == signal.SIGHUP else process.EXIT_CANCELLED)

    def stop(self, exit_code: int) -> None:
        if self.exit_code is None:
            self.exit_code = exit_code
            self._turn.stop("timeout" if exit_code == process.EXIT_INCOMPLETE else "cancelled")
            self.requested.set()


def _read_prompt(request: RunRequest) -> str:
    """The prompt argument with piped stdin attached like a file, as it may be a stranger's text; ``-``
    or no argument reads stdin alone. Line breaks at the end are dropped."""
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
    return attached_text(stdin.buffer.read(), "The input", errors="replace")


def _check_writable(option: str, file: Path | None) -> None:
    """Raise UserError now where the file could not be written after the turn."""
    if file is None:
        return
    refuse_link(file)
    if file.is_dir():
        raise UserError(f"{option}: {file} is a folder.")
    if str(file) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        raise UserError(f"{option}: {file} has the answer already; name a file.")
    if not file.parent.is_dir():
        raise UserError(f"{option}: the folder of {file} does not exist.")


def _with_schema(options: TurnOptions, file: Path | None) -> TurnOptions:
    """Enforce the JSON Schema in ``file`` on the answer. Raises UserError."""
    if file is None:
        return options
    try:
        schema = json.loads(read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        reason = describe_cause(error)
        raise UserError(f"--output-schema: {file} is not a JSON Schema file: {reason}") from error
    if not isinstance(schema, dict):
        raise UserError(f"--output-schema: {file} must hold a JSON object.")
    if why := find_schema_error(schema):
        raise UserError(f"--output-schema: {file} is not a JSON Schema: {why}.")
    section = response_format_section(schema)
    instructions = "\n\n".join(filter(None, (options.instructions, section)))
    return replace(options, instructions=instructions, answer_form=AnswerForm(schema, binding=True))


def _open_conversation(
    request: RunRequest, runtime: Runtime, root: Path
) -> tuple[Store | None, Conversation]:
    resumed = request.continue_latest or request.resume is not None
    try:
        store = Store(runtime.paths.store, folder=project_name(root))
        conversation = store.load(request.resume) if resumed else Conversation(new_id("conv"))
        for sentence in store.damage.take():
            echo(f"agent: {sentence}", file=sys.stderr)
        return store, conversation
    except StoreError as error:
        if resumed:
            raise UserError(str(error)) from error
        echo(f"agent: {error} This conversation is not stored.", file=sys.stderr)
        return None, Conversation(new_id("conv"))


def _renderer(request: RunRequest, out: TextIO, runtime: Runtime) -> Renderer:
    if request.json_events:
        return JsonLinesRenderer(out)
    if request.quiet or not out.isatty():
        return PlainRenderer(out, None if request.quiet else sys.stderr)
    renderer = TerminalRenderer(out)
    if runtime.model.embedded and runtime.script is None:
        renderer.show(AgentNotice(level="info", message=EMBEDDED_NOTICE))
    return renderer


def _generated_ids(events: Iterable[Event]) -> list[list[int]]:
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
            private_files.write_text(path, text)
        except OSError as error:  # which names no file where the disk is full
            turn.exit_code = turn.exit_code or process.EXIT_FAILED
            echo(f"agent: cannot write {path}: {error.strerror}.", file=sys.stderr)
