"""The view model of one turn: what its response has, folded by ``ResponseBuilder``, and how that is
presented: times, speeds, states. Widgets read on from what they have rendered, so that all events
between two repaints cost one update."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from agent import events as ev
from agent.store.records import StoredTurn
from agent.turn.response_builder import DELTAS, ResponseBuilder, terminal_event
from tui.state.item_view import ItemView, finish_item, open_item
from tui.util.format import clean_text, display_text

Clock = Callable[[], float]


class TurnView:
    """One prompt and its answer, as far as it has come; the widgets of the transcript read it."""

    def __init__(
        self,
        prompt: str,
        *,
        source: str = "app",
        clock: Clock = time.monotonic,
        start: int | None = None,
    ) -> None:
        """``start``: index of the turn's first entry in the conversation; None if it has none."""
        self.prompt, self.source = display_text(prompt), source
        self.clock = clock
        self.raw_prompt = prompt
        """The prompt as it was sent, with what is unsafe to display."""
        self.start = start
        self.branch_position: tuple[int, int] | None = None
        """Number (from 1) among the branches that start here, and their count; None if it is alone."""
        self.began = clock()
        self.ended: float | None = None
        self.items: list[ItemView] = []
        self.end_message = ""
        """One sentence if the turn failed, was stopped or cut off."""
        self.notices: list[str] = []
        self.model = ""
        self.activity = "waiting"
        self.context_used: int | None = None
        self.context_length: int | None = None
        self.servers: list[ev.ServerStatus] | None = None
        self.speed = 0.0
        """Generated tokens per second."""
        self.tokens = 0
        self.probability_note = ""
        """The share of surprising tokens, or why it is not known; empty: not requested."""
        self.token_times: Counter[float] = Counter()
        """Hundredths of a second in which tokens came, and how many; empty for a stored turn."""
        self._prefilled = False  # whether the engine has begun with this generation's prompt
        self._builder = ResponseBuilder()
        self._by_id: dict[str, ItemView] = {}
        self._prompt_tokens = self._tokens_before = 0
        """Prompt tokens of this generation, and ``tokens`` when it began."""
        self._first_count: tuple[float, int] | None = None
        """When this generation's first tokens came, and ``tokens`` by then."""

    @property
    def running(self) -> bool:
        return self.ended is None

    @property
    def response(self) -> ev.Response | None:
        return None if self.running else self._builder.response

    @property
    def response_id(self) -> str:
        """Empty until the turn has ended."""
        return self.response.id if self.response else ""

    @property
    def status(self) -> ev.Status:
        return self.response.status if self.response else "in_progress"

    @property
    def decoding(self) -> bool:
        """Whether tokens are being generated: no call waits for approval or runs."""
        return self.running and not any(i.state in ("waiting", "running") for i in self.items)

    @property
    def answer(self) -> str:
        return "\n\n".join(str(i.final_text or i.text) for i in self.items if i.kind == "answer")

    @property
    def answer_to_copy(self) -> str:
        """The answer as the model wrote it, with its tabs, but nothing that steers a terminal."""
        answers = (i.source or i.text.source for i in self.items if i.kind == "answer")
        return clean_text("\n\n".join(answers))

    def apply(self, event: ev.Event) -> None:
        """Fold one event in; events after the end (of a load that continues) are ignored."""
        if self.running:
            self._builder.apply(event)
            if type(event) not in DELTAS:  # what they append is read from the builder
                self._present(event)

    def _present(self, event: ev.Event) -> None:
        match event:
            case ev.AgentTokens(ids=ids):
                self._count_tokens(len(ids))
            case ev.OutputItemAdded(item=item):
                self._open_item(item)
            case ev.OutputItemDone(item=item):
                self._close_item(item)
            case ev.McpCallArgumentsDone(item_id=key, arguments=text):
                self._start_tool(key, text)
            case ev.CodeInterpreterCallCodeDone(item_id=key, code=text):
                self._start_tool(key, text)
            case ev.ResponseCompleted() | ev.ResponseIncomplete() | ev.ResponseFailed():
                self._end(event.response)
            case ev.AgentStats(tokens_per_second=speed, output_tokens=tokens):
                self._set_speed(speed, tokens)
            case ev.AgentStart(model=model, context_length=length, mcp_servers=servers):
                self.model, self.context_length = display_text(model), length
                self.servers = servers
                self.activity = "waiting for the model"
            case ev.AgentLoad(done=done, total=total):
                self.activity = f"loading the model {100 * done // max(total, 1)} %"
            case ev.AgentPrompt():
                self._prefilled = False
            case ev.AgentPrefill(done=done, total=total):
                self._prefilled = True
                self.context_used, self._prompt_tokens = done, done
                self._tokens_before, self._first_count = self.tokens, None
                self.activity = f"reading {done:,}/{total:,} tokens" if done < total else "thinking"
            case ev.AgentReasoning(item_id=key, tokens=tokens):
                self._by_id[key].tokens = tokens
            case ev.AgentFileChanges(item_id=key):
                self._by_id[key].changes = display_text(event.summary)
            case ev.AgentToolProgress(item_id=key, progress=done, total=total, message=message):
                of = f"/{total:g}" if total else ""
                self._by_id[key].progress = display_text(f"{done:g}{of} {message or ''}".strip())
            case ev.AgentApprovalRequested(item_id=key, preview=preview):
                self._by_id[key].state = "waiting"
                # The card shows them as they are, or as a diff.
                is_diff = preview is not None and preview.startswith("--- ")
                is_complete = is_diff and not str(preview).endswith(" more lines ...]")
                self._by_id[key].card_has_arguments = preview is None or is_complete
                self.activity = "waiting for approval"
            case ev.AgentApprovalResolved(item_id=key):
                self._start_tool(key)
            case ev.AgentSteered(text=text):
                self._add_steering(text)
            case ev.AgentNotice(message=message):
                if self.notices and self.notices[-1].endswith("…"):
                    del self.notices[-1]  # the activity has ended
                self.notices.append(display_text(message))

    def _add_steering(self, text: str) -> None:
        now = self.clock()
        self.items.append(ItemView("steering", "", now, ended=now, final_text=display_text(text)))

    def _start_tool(self, key: str, arguments: str | None = None) -> None:
        view = self._by_id[key]
        view.final_text = view.final_text if arguments is None else display_text(arguments)
        view.state, view.tool_started = "running", self.clock()
        self.activity = f"running {view.title.rpartition(' · ')[2]}"

    def _count_tokens(self, count: int) -> None:
        self.tokens, now = self.tokens + count, self.clock()
        if self._prefilled:  # else they were begun for the model
            self.token_times[round(now - self.began, 2)] += count
        if self.context_used is not None:
            self.context_used = self._prompt_tokens + self.tokens - self._tokens_before
        if self._first_count is None:
            self._first_count = (now, self.tokens)
        elif (elapsed := now - self._first_count[0]) > 0.2:
            self._set_speed((self.tokens - self._first_count[1]) / elapsed, self.tokens)

    def _set_speed(self, speed: float, tokens: int) -> None:
        self.tokens, self.speed = tokens, speed if tokens >= ev.MIN_SPEED_TOKENS else 0.0

    def _open_item(self, item: ev.Item) -> None:
        view = open_item(self._builder[item.id], self.clock())
        self.items.append(view)
        self._by_id[item.id] = view
        self.activity = "thinking" if view.kind == "reasoning" else "answering"
        if view.kind == "call":
            self.activity = f"calling {view.title.rpartition(' · ')[2]}"

    def _close_item(self, item: ev.Item) -> None:
        view = self._by_id[item.id]
        view.ended = self.clock()
        finish_item(view, item)
        self.activity = "thinking"

    def _end(self, response: ev.Response) -> None:
        self.ended = self.clock()
        self.activity = ""
        self.tokens = response.usage.output_tokens if response.usage else self.tokens
        match response.status:
            case "failed":
                error = response.error
                self.end_message = display_text(error.message) if error else "The turn failed."
            case "cancelled":
                self.end_message = "Interrupted; the partial answer is kept."
            case "incomplete":
                # While it runs, a notice says which limit it was.
                self.end_message = "" if self.notices else "Cut off; the partial answer is kept."

    @classmethod
    def from_stored(cls, turn: StoredTurn, *, clock: Clock = time.monotonic) -> TurnView:
        view = cls(turn.prompt, clock=clock, start=turn.start)
        view.model = display_text(turn.response.model)
        for item in turn.timeline():
            if isinstance(item, str):
                view._add_steering(item)
            else:
                view._builder.add(item)
                view._open_item(item)
                view._close_item(item)
        for changes in turn.record.changes:
            if changes.item_id in view._by_id:
                view.apply(changes)
        view.apply(terminal_event(turn.response))
        view._set_speed(turn.record.tokens_per_second, turn.record.tokens)
        views = [item_view for item_view in view.items if item_view.id]
        if len(views) == len(turn.record.times):
            for item_view, times in zip(views, turn.record.times, strict=True):
                item_view.began, item_view.ended = times.began, times.ended or times.began
                item_view.tool_started, item_view.tokens = times.tool_started, times.tokens
        return view
