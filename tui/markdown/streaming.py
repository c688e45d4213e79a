"""Markdown that comes piece by piece, as rows: what is closed once, what grows again and again."""

from __future__ import annotations

from dataclasses import dataclass

from tui.markdown.blocks import Blocks
from tui.markdown.open_block import Begun, extended
from tui.markdown.render import Look, Row, plain, rendered

SMALL = 2000
"""So many characters are rendered within milliseconds."""
BLANK = Row([])


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be rendered next. ``run`` touches nothing else: it may be run in any thread."""

    closed: str
    grows: str
    begun: Begun
    """Of what grows, what is rendered already."""
    width: int
    look: Look
    anew: bool
    """It replaces all that was rendered before."""

    @property
    def small(self) -> bool:
        return len(self.closed) + len(self.grows) - self.begun.end <= SMALL

    def run(self) -> tuple[list[Row], list[Row] | None, Begun]:
        """Rows of both; None for what grows where all of it is to be rendered again."""
        closed = rendered(self.closed, self.width, self.look) if self.closed else []
        return closed, *extended(self.grows, self.begun, self.width, self.look)


class Growing:
    """``feed`` and ``finish`` it; ``next`` says what to render, ``take`` has what came of it. What is
    not rendered yet is plain text."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.pieces: list[str] = []
        """Closed blocks, as they were rendered."""
        self.laid: tuple[int, Look] | None = None
        """For which width and in which colours it is; before that is known, there are no rows."""
        self._blocks = Blocks()
        self._closed = ""
        """Blocks that nothing can change any more, but that are not rendered yet."""
        self._covered = 0
        """Of what is not closed and rendered, so many characters are in rows nevertheless."""
        self._fixed: list[Row] = []
        self._live: list[Row] = []
        self._begun = Begun()
        self._anew = False
        self._job: Job | None = None

    def feed(self, text: str) -> None:
        if text:
            if closed := self._blocks.feed(text):
                self._closed += closed
                self._begun = Begun()
            self._lay_out()

    def finish(self, rest: str) -> None:
        """Nothing comes after the rest."""
        self._closed, self._blocks.open = self._waiting + rest, ""
        self._lay_out()

    def lay(self, width: int, look: Look) -> None:
        """Render all for a width, in colours; meanwhile the old rows stay."""
        self.laid = width, look
        self._renew("".join(self.pieces) + self._closed)

    def replace(self, whole: str) -> None:
        """At the end: render it all once more, as this, in one piece."""
        self._renew(whole)

    def _renew(self, closed: str) -> None:
        self._covered += len(closed) - len(self._closed)
        self._closed, self.pieces, self._anew, self._job = closed, [], True, None
        self._begun = Begun()
        self._lay_out()

    @property
    def _waiting(self) -> str:
        return self._closed + self._blocks.open

    def next(self) -> Job | None:
        """None: all that can be rendered is."""
        grows, begun = self._blocks.open, Begun() if self._closed else self._begun
        # Half a row may be wider than the whole will be: the table would be laid out anew.
        if begun.columns or len(grows) - begun.end > SMALL:
            grows = grows[: grows.rfind("\n") + 1]
        if self.laid is None or not (self._closed or len(grows) > self._covered):
            return None
        self._job = Job(self._closed, grows, begun, *self.laid, self._anew)
        return self._job

    def take(self, job: Job, came: tuple[list[Row], list[Row] | None, Begun]) -> None:
        """What came of the job, unless it is out of date."""
        if job is not self._job:
            return
        closed, live, begun = came
        if self._blocks.open.startswith(job.grows):  # it may have closed meanwhile
            self._begun = begun
        if job.anew:
            self._fixed, self._anew = [], False
        if job.closed:
            self.pieces.append(job.closed)
            self._closed = self._closed[len(job.closed) :]
            self._fixed = [*self._fixed, BLANK, *closed] if self._fixed else closed
        if live is not None:
            self._live, self._covered = live, len(job.grows)
        self._lay_out()

    def _lay_out(self) -> None:
        if self.laid is None:
            return
        live = [BLANK, *self._live] if self._fixed and self._live else self._live
        self.rows = self._fixed + live
        came = self._waiting[self._covered :]
        if came.strip("\n"):
            if self.rows and (not live or came.startswith("\n")):
                self.rows.append(BLANK)
            self.rows += plain(came.strip("\n"), self.laid[0])
