"""`agent chat --plain`: the app's conversation by lines of text, without colours or moving the cursor:
for screen readers, and terminals that can do no more."""

import asyncio
import signal
import sys
from typing import Any

from agent import events as ev
from agent.cli.login_prompt import ask_login, read_line
from agent.cli.render import TerminalRenderer
from agent.config.launch import LaunchOptions
from agent.errors import UserError
from agent.store.export import local_time
from agent.store.lookup import short_id
from agent.turn.context import RunningTurn
from agent.util.process import EXIT_CANCELLED, EXIT_DONE
from agent.util.sanitize import echo
from tools.builtin.files.journal import Outcome, net_changes
from tools.types import Answer, Tool
from tui.commands import changes, conversation, navigation, settings
from tui.session import Session
from tui.state.command import Command, parse_command, parse_instruction

ANSWERS = {
    "y": Answer("once"), "s": Answer("session"), "a": Answer("always"), "n": Answer("no"),
}  # fmt: skip
SHARED = (
    "effort",
    "sampling",
    "mode",
    "accept",
    "tools",
    "system",
    "new",
    "rename",
    "export",
    "ps",
    "undo",
    "redo",
)
"""The app's commands that need no screen."""
NEEDS_APP = "--serve needs the app: start agent serve in another terminal."
MAX_CONVERSATIONS = 20
"""Conversations that ``/resume`` lists."""


def main(launch: LaunchOptions, **options: Any) -> int:
    """Talk with these options of `tui.session.Session`; returns the exit code."""
    if options.pop("serving", None) is not None:
        raise UserError(NEEDS_APP)
    try:
        asyncio.run(PlainChat(Session(launch, **options)).run())
    except asyncio.CancelledError:
        return EXIT_CANCELLED
    return EXIT_DONE


class PlainChat:
    """Reads prompts and commands from stdin, and writes what the turns do. The app's commands take it
    in place of the app: of that they use the members below "what commands use"."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._turn: RunningTurn | None = None
        self._main: asyncio.Task[Any] | None = None
        self._request: ev.AgentApprovalRequested | None = None
        self._is_loading = False
        known = (*settings.COMMANDS, *conversation.COMMANDS, *navigation.COMMANDS)
        known += changes.COMMANDS
        own = (
            Command("resume [ID]", "open an earlier conversation of this folder", self._resume),
            Command("model NAME|PATH", "switch the model", self._switch_model),
            Command("diff", "show what this conversation has changed in files", self._diff),
            Command("help", "list the commands", self._help),
        )
        commands = [*(each for each in known if each.name in SHARED), *own]
        self._commands = {command.name: command for command in commands}
        self.transcript = self.chat = self.live = self.startup = self
        self.notes: list[str] = []
        """Sentences for the model that go with the next prompt."""

    async def run(self) -> None:
        """Talk until stdin ends, or Ctrl-C comes between turns. Raises UserError, EngineError."""
        self._main = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        session = self.session
        try:
            await session.begin()
            echo(f"{session.runtime.model.name}. /help lists the commands, Ctrl-D quits.")
            if session.choose_conversation:
                await self._resume("")
            await session.load(self._on_load)
            text = session.first_prompt
            while True:
                if text.strip():
                    await self._run_or_ask(text)
                text = await self._read("> ")
        except EOFError:
            echo("")
        finally:
            await session.close()

    def _on_load(self, fraction: float) -> None:
        if fraction < 1 and not self._is_loading:
            self._is_loading = True
            echo("Loading the model …")

    async def _run_or_ask(self, text: str) -> None:
        name, argument = parse_command(text) or ("", "")
        try:
            if (instruction := parse_instruction(text)) is not None:
                echo(await self.session.add_instruction(instruction))
            elif not name:
                notes, self.notes = self.notes, []
                await self.ask(text + "".join(f"\n\n[{note}]" for note in notes))
            elif name in ("quit", "exit"):
                raise EOFError
            elif (command := self._commands.get(name)) is None:
                raise UserError(f"There is no command /{name} here; /help lists them.")
            elif name in SHARED:
                await command.run(self, argument)
            else:
                await command.run(argument)
        except UserError as error:
            echo(f"agent: {error}")

    async def _read(self, question: str) -> str:
        """A line from stdin, or several that end in a backslash. Raises EOFError."""
        echo(question, end="")
        line = (await read_line()).rstrip("\r\n")
        return f"{line[:-1]}\n{await self._read('… ')}" if line.endswith("\\") else line

    def _interrupt(self) -> None:
        if self._turn is not None:
            self._turn.stop()
        elif self._main is not None:
            self._main.cancel()

    async def _approve(self, tool: Tool, arguments: str) -> Answer:
        request = self._request
        echo(f"\n{tool.server}.{tool.name} {arguments}")
        if request is not None and request.reason:
            echo(request.reason)
        if request is not None and request.preview:
            echo(request.preview)
        once = request is not None and request.rules == []
        keys = "y, n" if once else "y once, s in this session, a always, n"
        while True:
            try:
                answer = (await self._read(f"Run it? ({keys}) ")).strip().lower()[:1]
            except EOFError:  # no answer can come
                return ANSWERS["n"]
            if answer in ANSWERS and not (once and answer in ("s", "a")):
                return ANSWERS[answer]

    # --- own commands ---

    async def _resume(self, name: str) -> None:
        storage = self.session.storage
        if name:
            await self.session.open(name)
            await self.show_conversation()
            return
        summaries = await storage.read(lambda store: store.summaries(everywhere=False))
        for summary in summaries[:MAX_CONVERSATIONS]:
            echo(f"{short_id(summary.id)}  {local_time(summary.updated)}  {summary.title}")
        echo("/resume ID opens one." if summaries else "No conversations in this folder yet.")

    async def _switch_model(self, name: str) -> None:
        if not name:
            raise UserError("/model needs a name, as agent models list shows them.")
        if notice := await self.session.switch_model(name, lambda fraction: None):
            echo(notice)
        echo(f"Model: {self.session.runtime.model.name}.")

    async def _diff(self, _: str) -> None:
        journal, turns = self.session.journal, await self.session.turn_prompts()
        steps = await asyncio.to_thread(journal.steps, turns)
        lines = [line for change in net_changes(steps) for line in journal.diff(change)]
        echo("\n".join(lines) or "No tool has changed a file in this conversation.")

    async def _help(self, _: str) -> None:
        for command in self._commands.values():
            echo(f"/{command.usage}: {command.summary}")
        echo("#TEXT: add a line to the project's AGENTS.md")
        echo("/quit, or the end of the input: quit")
        echo("A line that ends in a backslash continues on the next one. Ctrl-C stops an answer.")

    # --- what commands use ---

    def report_outcome(self, outcome: Outcome, verb: str) -> None:
        text = outcome.text(MAX_CONVERSATIONS)
        echo(f"You {verb} changes: {text}.")
        if outcome.changes:
            self.notes.append(f"The user {verb} changes of files: {text}.")

    def notify(self, text: str, **_: Any) -> None:
        echo(text)

    def add_notice(self, text: str, *, error: bool = False) -> None:
        echo(f"agent: {text}" if error else text)

    def update_status(self) -> None:
        """Show nothing: there is no status line."""

    def push_screen(self, screen: object, on_close: object = None) -> None:
        raise UserError("This command needs a value behind it; /help lists them.")

    async def show_conversation(self) -> None:
        for turn in await self.session.storage.turns(self.session.conversation.id):
            echo(f"> {turn.prompt}\n\n{turn.response.output_text}\n")

    async def ask(self, text: str) -> None:
        """Run a turn and show it."""
        renderer = TerminalRenderer(sys.stdout, plain=True)
        turn = self._turn = self.session.start_turn(text, self._approve, login=ask_login)
        try:
            async for batch in turn.log.follow():
                for event in batch:
                    match event:
                        case ev.AgentApprovalRequested():
                            self._request = event
                        case ev.OutputItemAdded(item=ev.ReasoningItem()):
                            echo("Thinking:")
                        case ev.OutputItemAdded(item=ev.MessageItem(phase="final_answer")):
                            echo("Answer:")
                    renderer.show(event)
                renderer.flush()
            await turn.done()
        finally:
            self._turn = None
        if error := self.session.storage.error:
            self.session.storage.error = None
            echo(f"agent: {error}")
        if self.session.options.mode == "plan":
            echo("/accept leaves plan mode and has this plan carried out.")
