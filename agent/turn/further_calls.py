"""Further calls of the client's functions in one response, of a model that ends at each call. gpt-oss
stops after one. Where a request wants several (`TurnOptions.further_calls`), it continues after the
call, without a result. Other messages are held back until their header is complete, and dropped."""

from collections.abc import Callable, Collection, Sequence
from typing import Literal

from agent.engine.protocol import Logprob
from agent.formats.protocol import Closed, Delta, Opened, ParseEvent, Parser, SegmentKind

MAX_CALLS_IN_A_ROW = 16
MAX_UNDECIDED_TOKENS = 16
"""Tokens that a model may write until the recipient of its message is clear."""

State = Literal["undecided", "call", "none"]


class FurtherCall:
    """Decides while tokens come whether they are a further call. A repeated call is not: tokens are
    held back until the arguments differ from those of all earlier calls of the function."""

    def __init__(
        self,
        parser: Parser,
        functions: Collection[str],
        earlier: Sequence[tuple[str, str]],
        may_be_call: Callable[[Sequence[int]], bool] | None = None,
    ) -> None:
        """``functions``: recipients that the client runs. ``earlier``: recipients and arguments of the
        calls before, as written. ``may_be_call``: tells whether ids may begin a call's header."""
        self._parser, self._functions, self._may_be_call = parser, functions, may_be_call
        self._earlier = [(recipient, _squeeze(arguments)) for recipient, arguments in earlier]
        self.undecided_ids: list[int] = []
        self._logprobs: list[Logprob | None] = []
        self._recipient: str | None = None
        self._arguments = ""
        self.state: State = "undecided"

    def feed(
        self, ids: list[int], logprobs: list[Logprob | None] | None
    ) -> tuple[list[int], list[Logprob | None] | None]:
        """Take the next tokens; return those that are part of a call for certain."""
        if self.state == "call":
            return ids, logprobs
        if self.state == "none":
            return [], None
        self.undecided_ids += ids
        self._logprobs += logprobs or ()
        for event in self._parser.feed(ids):
            if self.state == "undecided":
                self.state = self._read(event)
        if self.state == "call":
            held, self.undecided_ids = self.undecided_ids, []
            return held, None if logprobs is None else self._logprobs
        if self._recipient is None and (
            len(self.undecided_ids) >= MAX_UNDECIDED_TOKENS
            or (self._may_be_call is not None and not self._may_be_call(self.undecided_ids))
        ):
            self.state = "none"
        return [], None

    def _read(self, event: ParseEvent) -> State:
        match event:
            case Opened(kind=SegmentKind.TOOL, recipient=str(name)) if name in self._functions:
                self._recipient = name
            case Opened():
                return "none"
            case Delta(text) if self._recipient is not None:
                self._arguments += _squeeze(text)
            case Closed() if self._recipient is not None:
                return "none" if (self._recipient, self._arguments) in self._earlier else "call"
            case _:
                return "undecided"
        # Arguments are new once they are the beginning of no earlier ones.
        may_repeat = any(
            recipient == self._recipient and arguments.startswith(self._arguments)
            for recipient, arguments in self._earlier
        )
        return "undecided" if may_repeat else "call"


def _squeeze(arguments: str) -> str:
    """Arguments without white space, in which equal ones may differ."""
    return "".join(arguments.split())
