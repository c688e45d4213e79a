"""Takes what the person sends: runs commands, starts turns one at a time, queues the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from textual.content import Content

from agent.conversation.attachments import format_attachment
from agent.errors import UserError
from tui.controllers.shell import ShellCommands
from tui.state.command import parse_command, parse_instruction
from tui.terminal.driver import notify_unfocused
from tui.util.attachments import command_outputs, without_attachments
from tui.util.format import display_text
from tui.widgets.welcome import PromptExamples

if TYPE_CHECKING:
    from agent.turn.context import RunningTurn
    from agent.turn.continuation import Begin, Continuation
    from tools.builtin.files.journal import Outcome
    from tui.app_context import AppContext
    from tui.controllers.prompts import PromptCards
    from tui.state.turn_view import TurnView

SHELL_MARK = "!"
MAX_MISSING_NAMES, MAX_LISTED_PATHS = 3, 20
SYNCHRONOUS_SECONDS = 0.05
"""Time that work runs before the next key is handled: most work ends within it."""
CLOSING_SECONDS = 1.0


class BackgroundWork:
    """Runs the work of commands and screens outside of the message loop, until Esc; then ``on_end``."""

    def __init__(self, app: AppContext, on_end: Callable[[], Awaitable[None]]) -> None:
        self._app, self._on_end = app, on_end
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether any work runs, other than the caller."""
        return bool(self._running - {asyncio.current_task()})

    async def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a piece of work; returns at its end or before. The app reports what it raises."""
        task = asyncio.create_task(self._run(work))
        self._running.add(task)
        await asyncio.wait({task}, timeout=SYNCHRONOUS_SECONDS)

    def cancel(self) -> bool:
        for task in self._running:
            task.cancel()
        return bool(self._running)

    async def close(self) -> None:
        self._closed = True
        if self.cancel():
            await asyncio.wait(self._running, timeout=CLOSING_SECONDS)

    async def _run(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await work
        except asyncio.CancelledError:
            if self._closed:
                return
            self._app.notify("Stopped.")
        except Exception as error:
            self._app.report(error)
        finally:
            self._running.discard(task)
        await self._on_end()


class ChatController:
    """Runs the person's own turns, one at a time; what is sent meanwhile waits in the queue bar."""

    def __init__(self, app: AppContext, cards: PromptCards) -> None:
        self._app, self.cards = app, cards
        self._own = app.own_turn
        self.editing: TurnView | None = None
        """The turn that the next prompt replaces, in a branch."""
        self._draft = ""  # the prompt's text before the editing
        self.edited_texts: dict[tuple[str, int], str] = {}
        """Unsent edits of model output, by response id and message index."""
        self._first_in_branch: TurnView | None = None
        """The turn that ran last, where it began a branch."""
        self.shell = ShellCommands(app)
        self.work = BackgroundWork(app, self.send_queued)
        """Commands, and the reading of files, which may take long."""

    @property
    def idle(self) -> bool:
        """Whether a prompt sent now would start a turn at once."""
        return self._app.session_ready and self._own.running is None and not self.work.busy

    async def submit(self, text: str) -> None:
        """Run, ask or queue what the person sent; an unknown command goes back to the prompt."""
        await self.work.run(self._submit(text))

    async def _submit(self, text: str) -> None:
        latest = self._own.latest
        await self._run_ask_or_queue(text)
        if self._own.latest is not latest:
            self._app.transcript.scroll_to_live_end()

    async def _run_ask_or_queue(self, text: str) -> None:
        waits, parsed = True, None
        if text.startswith(SHELL_MARK) or parse_instruction(text) is not None:
            waits = False
        elif parsed := parse_command(text):
            if (command := self._app.commands.find(parsed[0])) is None:
                self._reject(text, self._app.commands.unknown_message(parsed[0]))
                return
            waits = command.waits_for_turn
        elif (prompt := await self.with_attachments(text)) is None:
            return
        else:
            text = prompt
        if parsed is None and waits and self.editing is not None:
            if self._own.running is None:
                await self.ask_or_replace(text)
            else:
                self._reject(text, "A turn is running: stop it or wait, then send this.")
        elif self.idle or (self._app.session_ready and not waits):
            await self._run_or_ask(text)
        else:
            self._app.queue.add(text)

    def edit(self, turn: TurnView | None) -> None:
        """Edit a turn's prompt; None restores what was there. An unsent edit goes into the history."""
        prompt = self._app.prompt
        if self.editing is not None:
            if prompt.full_text != without_attachments(self.editing.raw_prompt):
                prompt.prompt_history.add_unsent(prompt.draft)
        elif turn is not None:
            self._draft = prompt.draft
        else:
            return
        prompt.replace_with(without_attachments(turn.raw_prompt) if turn else self._draft)
        self._set_editing(turn)

    def _set_editing(self, turn: TurnView | None) -> None:
        self.editing = turn
        self._app.prompt.border_title = Content("editing · Esc cancels" if turn else "")

    async def ask_or_replace(self, text: str) -> None:
        text += self.shell.take_outputs()
        if (turn := self.editing) is None:
            await self.ask(text)
        else:
            self._set_editing(None)
            self._app.prompt.put_before(self._draft)
            await self.resubmit(turn, text + command_outputs(turn.raw_prompt))

    async def resubmit(self, turn: TurnView, text: str) -> None:
        """Ask ``text`` in place of a turn's prompt, in a branch that ends before that turn."""
        if turn not in self._app.transcript.own_turns or turn.start is None:
            await self.ask(text)
        else:
            await self._ask_in_branch(turn, text)

    async def _ask_in_branch(self, turn: TurnView, text: str, begin: Begin | None = None) -> None:
        assert turn.start is not None, "only own turns are continued"
        self._app.session.branch(turn.start)
        await self._app.transcript.remove_from(turn)
        await self.ask(text, begin, in_branch=True)

    async def continue_from(self, turn: TurnView, begun: Continuation) -> None:
        """Answer a turn's prompt again from ``begun`` on, in a branch that ends before that turn."""
        await self._ask_in_branch(turn, turn.raw_prompt, lambda _: begun)
        self._app.transcript.scroll_to_live_end()

    async def with_attachments(self, text: str) -> str | None:
        """The text with the files that it mentions; None if it went back to the prompt."""
        from tui.util.attachments import attach_files, mentioned_resources, missing_files

        root, servers = self._app.session.launch.root, self._app.commands.resources
        try:
            prompt = await asyncio.to_thread(attach_files, text, root)
            for server, uri in mentioned_resources(text, servers):
                read = await self._app.session.runtime.host.read_resource(server, uri)
                prompt += format_attachment(f"{server}:{uri}", read, "prompt")
        except UserError as error:
            self._reject(text, str(error))
            return None
        except ValueError as error:
            self._reject(text, f"Cannot read the resource: {error}.")
            return None
        except asyncio.CancelledError:
            self._app.prompt.put_before(text)
            raise
        if missing := await asyncio.to_thread(missing_files, text, root, servers):
            more = ", …" if len(missing) > MAX_MISSING_NAMES else ""
            names = display_text(", ".join(missing[:MAX_MISSING_NAMES])) + more
            self._app.notify(f"No file {names}: sent as text.", severity="warning", markup=False)
        return prompt

    def _reject(self, text: str, reason: str) -> None:
        self._app.prompt.put_before(without_attachments(text))
        self._app.notify(reason, severity="warning", markup=False)

    async def steer(self, text: str) -> None:
        """Give the running turn a message for its next generation; without text, the queue's first."""
        if text := text or self._app.queue.take(0) or "":
            await self.work.run(self._steer(text))

    async def _steer(self, text: str) -> None:
        is_prompt = not parse_command(text) and not text.startswith(SHELL_MARK)
        if self._own.running is None or not is_prompt or parse_instruction(text) is not None:
            await self._submit(text)
        elif (message := await self.with_attachments(text)) is not None:
            if self._own.running is None:  # it ended while the files were read
                await self._submit(text)
                return
            self._own.running.steer(message + self.shell.take_outputs())
            self._app.live.update_queue()

    def recall(self) -> str | None:
        """Remove the newest prompt or message that waits, and return its text; None: none waits."""
        text = self._app.queue.take(-1)
        if text is None and self._own.running is not None:
            text = self._own.running.take_back_steering()
            self._app.live.update_queue()
        return None if text is None else without_attachments(text)

    async def send_queued(self) -> None:
        """Run what is queued, the oldest first, until a prompt has started a turn."""
        while self.idle and (text := self._app.queue.take(0)) is not None:
            await self.work.run(self._run_or_ask(text))

    async def _run_or_ask(self, text: str) -> None:
        if text.startswith(SHELL_MARK):
            self._run_shell(text)
            return
        if (instruction := parse_instruction(text)) is not None:
            await self._add_instruction(text, instruction)
            return
        parsed = parse_command(text)
        command = self._app.commands.find(parsed[0]) if parsed else None
        if parsed is None or command is None:
            await self.ask(text + self.shell.take_outputs())
            return
        try:
            await command.run(parsed[1])
        except UserError as error:
            self._app.live.visible_transcript.add_notice(str(error), error=True)

    def _run_shell(self, text: str) -> None:
        if not (command := text.removeprefix(SHELL_MARK).strip()):
            self._reject(text, "Write a shell command behind the !, as in !git status.")
        elif self.shell.running:
            self._reject(text, "A command is running: Esc stops it.")
        else:
            self.shell.start(command)

    async def _add_instruction(self, text: str, instruction: str) -> None:
        try:
            notice = await self._app.session.add_instruction(instruction)
        except UserError as error:
            self._reject(text, str(error))
            return
        self._app.transcript.add_notice(display_text(notice))

    async def ask(self, text: str, begin: Begin | None = None, *, in_branch: bool = False) -> None:
        """Start a turn; no other may run. ``in_branch``: if it fails, its prompt can be edited."""
        from tui.state.turn_view import TurnView

        app, cards = self._app, self.cards
        cards.withdraw_logins()
        view = TurnView(text, clock=app.clock, start=app.session.next_prompt.first_entry)
        try:
            await app.session.find_branches(view)
        except asyncio.CancelledError:
            app.prompt.put_before(without_attachments(text))
            raise
        turn = app.session.start_turn(text, cards.approve, cards.elicit, cards.log_in, begin)
        await self.show_turn(turn, view)
        self._first_in_branch = view if in_branch else None

    async def show_turn(self, turn: RunningTurn, view: TurnView) -> None:
        app, conversation_id = self._app, turn.conversation.id
        self._own.running = self._own.latest = turn
        app.prompt.hints.set_turn_running(True)
        self._own.view = view
        app.transcript.query(PromptExamples).remove()
        await app.transcript.add_turn(view)
        app.live.update_timer()

        async def follow() -> None:
            await app.live.follow_turn(turn, view)
            if turn.conversation.id != conversation_id:
                app.transcript.add_notice(
                    "Another program has continued this conversation: from this turn on it is a"
                    f" branch. {app.key_bindings.label('sessions')} lists both."
                )
            await self._finish(turn, view)

        app.run_worker(follow())

    async def _finish(self, turn: RunningTurn, view: TurnView) -> None:
        app = self._app
        await turn.done()
        view.context_used = app.session.next_prompt.token_count() or view.context_used
        self._own.running = None
        app.prompt.hints.set_turn_running(False)
        # Steering messages that the turn has not read are sent as prompts.
        app.queue.prompts[:0] = turn.queued_steering()
        app.live.update_queue()
        if app.session.storage.error:
            app.transcript.add_notice(app.session.storage.error, error=True)
            app.session.storage.error = None
        app.live.update_timer()
        notify_unfocused(app, view.end_message or view.answer or "The answer is complete.")
        if app.session.options.mode == "plan" and view.answer:
            app.transcript.add_notice("/accept leaves plan mode and has this plan carried out.")
        app.live.update_status()
        session, error = app.session, turn.response.error
        is_open = session.conversation is turn.conversation
        if view.status != "failed" or not is_open or session.next_prompt.first_entry != view.start:
            self.edited_texts.clear()
        # Else it failed before it began: the conversation is as it was without it.
        elif view is self._first_in_branch and self.editing is None and not app.prompt.text:
            self.edit(view)
        elif view is not self._first_in_branch and error and error.code == "invalid_prompt":
            app.prompt.put_before(without_attachments(view.raw_prompt))  # too long, for example
        await self.send_queued()

    def report_outcome(self, outcome: Outcome, verb: str) -> None:
        """Say which files are changed now; the model reads it with the next prompt."""
        text = " ".join(display_text(outcome.text(MAX_LISTED_PATHS)).split())
        self._app.transcript.add_notice(f"You {verb} changes: {text}.")
        if outcome.changes:
            self.shell.notes.append(f"The user {verb} changes of files: {text}.")

    def stop(self) -> bool:
        """End the editing, or stop a shell command, or the turn with the queue back in the prompt, or a
        slash command; or leave an output out of the next prompt. Prompts sent meanwhile are queued.
        Returns whether there was any of it."""
        if self.editing is not None:
            self.edit(None)
            return True
        if self.shell.running:
            self.shell.interrupt()
            return True
        if self._own.running is None:
            return self.work.cancel() or self.shell.remove_output()
        self._own.running.stop()
        steering = list(iter(self._own.running.take_back_steering, None))
        self._app.live.update_queue()
        waiting = [*reversed(steering), *self._app.queue.take_all()]
        self._app.prompt.put_before("\n\n".join(map(without_attachments, waiting)))
        return True
