"""Records what built-in tools change below a root folder, takes it back, and makes it again.

The files tools say what they change. For a command, all files are looked at before and after it: those
whose status has changed are read again. The contents are in an SQLite file of the root, which outlives
the program; the next look completes a step that a kill interrupts. ``turn``: a response's id."""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from agent.util import private_files
from agent.util.temporary_folders import make_temporary_folder
from tools import builtin_server
from tools.builtin.files import file_tree
from tools.builtin.files.changes import diff_lines
from tools.builtin.files.file_tree import SKIPPED_NAMES, FileEntry, FileTree, State
from tools.builtin.files.root_folder import MAX_FILE_BYTES, RootFolder
from tools.builtin_server import ToolError

DEFAULT_UNDO_BYTES = 256_000_000
"""Size of the contents that are kept of one root; the oldest steps go first."""
RACY_NS = 20_000_000
"""A file that changed this short before a look may change again with the same time."""
BATCH_FILES = 20
"""Contents, of MAX_FILE_BYTES at most, that are in memory before they are written."""
LOCK_SECONDS = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS root (path BLOB PRIMARY KEY, has_look INTEGER);
CREATE TABLE IF NOT EXISTS content (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS entry (path BLOB PRIMARY KEY, changed INTEGER, inode INTEGER,
    size INTEGER, state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS step (id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT, turn TEXT,
    tool TEXT, created REAL, pid INTEGER);
CREATE TABLE IF NOT EXISTS change (step INTEGER, path BLOB, before BLOB, after BLOB, undone INTEGER,
    PRIMARY KEY (step, path));
CREATE TABLE IF NOT EXISTS temporary (path BLOB PRIMARY KEY, pid INTEGER);
CREATE INDEX IF NOT EXISTS step_turn ON step (turn);
"""
Signature = tuple[int, int, int]
"""Change time (ns), inode and size of a file: equal if it has not changed."""
DONE, UNDONE, LEFT = range(3)
"""Values of ``undone``; LEFT: it was to be taken back, but something else had changed the file."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one path, relative to the root, by one step or all steps of a turn."""

    path: str
    before: State
    after: State
    undone: int = DONE

    @property
    def verb(self) -> str:
        created = "created" if self.before is None else "changed"
        return "deleted" if self.after is None else created


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One call of a tool, or a file or hunk that the person has taken back."""

    id: int
    turn: str
    tool: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of taking changes back, or of making them again."""

    changes: list[Change] = field(default_factory=list)
    """By path; ``after`` is how it is now."""
    conflicts: dict[str, str] = field(default_factory=dict)
    """The paths that stay as they are, with the reason."""

    def text(self, max_paths: int) -> str:
        """Return the same in one line, with at most ``max_paths`` of them."""
        lines = self.lines()
        more = [f"… {len(lines) - max_paths} more"] if len(lines) > max_paths else []
        return "; ".join([*lines[:max_paths], *more]) or "the files were so already"

    def lines(self) -> list[str]:
        """Return a line for each path, for a person."""
        stay = (f"{path} stays as it is: it {why}" for path, why in self.conflicts.items())
        return [*(f"{change.verb} {change.path}" for change in self.changes), *stay]


@dataclass(slots=True)
class _Plan:
    before: dict[str, State] = field(default_factory=dict)
    targets: dict[str, State] = field(default_factory=dict)
    conflicts: dict[str, str] = field(default_factory=dict)


class ChangeJournal:
    """The journal of one root. Its methods block, may be called from any thread, and raise OSError and
    ToolError. Where nothing can be written, files are changed all the same."""

    def __init__(
        self, root: RootFolder, folder: Path | None = None, max_bytes: int = DEFAULT_UNDO_BYTES
    ) -> None:
        """``folder``: of all roots' journals; None: a temporary one. ``max_bytes``: 0: nothing."""
        self.root, self.max_bytes, self.lock = root, max_bytes, threading.RLock()
        self._tree, self._folder = FileTree(root), folder
        self._opened: sqlite3.Connection | None = None
        self._entries: dict[str, tuple[Signature | None, FileEntry]] = {}
        """The latest look, by path."""
        self._has_look = False
        """Whether there has been one, which the next is compared with."""
        self._version = -1
        """SQLite's count of the changes by other connections that ``_entries`` has."""

    # --- recording ---

    def begin(self, tool: str) -> int | None:
        """Look at all files before a command; returns its step, None where it cannot be recorded."""
        with self._locked():
            if self._db is None or not self._look():
                return None
            return self._add_step(tool)

    def end(self, step: int | None) -> None:
        """Record what a command has changed, once no process of it is left."""
        with self._locked():
            if step is not None and self._db is not None:
                self._look(step)
                self._close_step(step)
                self._prune()

    def make(self, wanted: Mapping[Path, bytes | None], turn: str | None = None) -> None:
        """Make all changes of the files tools or none, and record them; None deletes. ``turn``: the one
        whose changes these continue; None: the running one."""
        with self._locked():
            plan, contents = _Plan(), dict[str, bytes]()
            for real, data in wanted.items():
                path = self.root.name(real)
                now = plan.before[path] = self._tree.state(path, contents)
                plan.targets[path] = None if data is None else file_tree.new_file(data, now)
                if data is not None:
                    contents[file_tree.digest(data)] = data
            made = [path for path, target in plan.targets.items() if target is not None]
            for parent in {str(parent) for path in made for parent in PurePath(path).parents}:
                if parent in plan.targets or self._tree.status(parent) is None:
                    plan.before.setdefault(parent, None)
                    plan.targets[parent] = file_tree.new_folder()
            step = None
            if self._db is not None:
                step = self._add_step("files" if turn is None else "person", turn)
                self._record(step, plan.before, plan.targets, contents)
            try:
                self._tree.apply(plan.targets, contents.get, self._set_temporary)
            except (OSError, ToolError):
                self._tree.apply(plan.before, contents.get, self._set_temporary, strict=False)
                if step is not None:
                    self._forget("id = ?", step)
                raise
            self._note(plan.targets)
            if step is not None:
                self._close_step(step)
                self._prune()

    # --- what was changed ---

    def steps(self, turns: Collection[str]) -> list[RecordedStep]:
        """Return the steps of these turns that have changed something, the oldest first."""
        with self._locked():
            if self._db is None or not turns:
                return []
            if self._db.execute("SELECT 1 FROM step WHERE pid IS NOT NULL").fetchone():
                self._look()  # completes one that was interrupted
            rows = self._db.execute(
                "SELECT id, turn, tool, path, before, after, undone FROM step"
                " JOIN change ON step = id ORDER BY id, path"
            )
            found: dict[int, RecordedStep] = {}
            for id, turn, tool, path, before, after, undone in rows:
                if turn in turns:
                    step = found.get(id) or RecordedStep(id, turn, tool)
                    change = Change(os.fsdecode(path), _decoded(before), _decoded(after), undone)
                    found[id] = replace(step, changes=(*step.changes, change))
            return list(found.values())

    def content(self, state: State) -> bytes | None:
        """Return a file's content or a link's target; None: it has none, or it is not kept."""
        if state is None or state.kind == "folder" or not state.is_read:
            return None
        if state.kind == "link":
            return os.fsencode(state.content)
        with self._locked():
            if self._db is None:
                return None
            query = "SELECT data FROM content WHERE digest = ?"
            row = self._db.execute(query, (state.content,)).fetchone()
            return bytes(row[0]) if row else None

    def diff(self, change: Change) -> list[str]:
        """Return the lines of a unified diff, or one that says what there is instead."""
        states = [state for state in (change.before, change.after) if state]
        line = f"{change.verb} {change.path}"
        if {state.kind for state in states} != {"file"}:
            return [f"{line} ({' → '.join(state.kind for state in states)})"]
        contents = [self.content(state) for state in (change.before, change.after)]
        if len(contents) - contents.count(None) < len(states):
            return [f"{line}: too large to be kept"]
        lines = diff_lines(change.path, *contents)
        modes = [f"{state.mode:o}" for state in states]
        return lines if modes[0] == modes[-1] else [f"{line}: mode {' → '.join(modes)}", *lines]

    def now(self, path: str) -> State:
        return self._tree.state(path)

    def size(self) -> int:
        """Return the bytes that the journal takes."""
        if self._db is None:
            return 0
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._db.execute(f"PRAGMA {n}").fetchone()[0] for n in names)
        return int((pages - free) * size)

    # --- taking back ---

    def undo(self, turns: Collection[str], path: str | None = None) -> Outcome:
        """Take back what turns have changed; ``path``: only this file. A file that something else has
        changed since stays."""
        return self._move(turns, path, back=True)

    def redo(self, turns: Collection[str]) -> Outcome:
        """Make the changes of turns again that were taken back."""
        return self._move(turns, None, back=False)

    def last_call(self, conversation: str) -> RecordedStep | None:
        """Return the latest call of the files tools in a conversation that is not taken back."""
        with self._locked():
            if self._db is None:
                return None
            row = self._db.execute(
                "SELECT id, turn FROM step JOIN change ON step = id WHERE conversation = ?"
                " AND tool = 'files' AND undone = 0 ORDER BY id DESC",
                (conversation,),
            ).fetchone()
            return (
                next((each for each in self.steps({row[1]}) if each.id == row[0]), None)
                if row
                else None
            )

    def undo_call(self, conversation: str, *, dry_run: bool = False) -> RecordedStep:
        """Take back the `last_call`, or nothing of it; ``dry_run``: only return it."""
        with self._locked():
            if (step := self.last_call(conversation)) is None:
                raise ToolError("nothing to undo in this conversation")
            plan = self._plan([step], None, back=True)
            for path, why in plan.conflicts.items():
                raise ToolError(f"not undone: {path} {why}")
            if not dry_run:
                self._tree.apply(plan.targets, self._load, self._set_temporary)
                self._note(plan.targets)
                self._mark([step], plan.targets, UNDONE)
            return step

    def _move(self, turns: Collection[str], path: str | None, *, back: bool) -> Outcome:
        with self._locked():
            if not (steps := self.steps(turns)):
                return Outcome()
            self._look()  # what differs by now is not the tools'
            plan = self._plan(steps, path, back=back)
            targets, conflicts = plan.targets, plan.conflicts
            failed = self._tree.apply(targets, self._load, self._set_temporary, strict=False)
            conflicts |= failed
            targets = {each: target for each, target in targets.items() if each not in failed}
            self._note(plan.targets)
            self._mark(steps, targets, UNDONE if back else DONE)
            if back:
                self._mark(steps, conflicts, LEFT)
            moved = (Change(each, plan.before[each], now) for each, now in sorted(targets.items()))
            return Outcome([each for each in moved if each.before != each.after], conflicts)

    def _plan(self, steps: Sequence[RecordedStep], only: str | None, *, back: bool) -> _Plan:
        """Return what each path has to become, and the paths that cannot, with the reason."""
        plan, goals = _Plan(), dict[str, State]()
        for step in reversed(steps) if back else steps:
            for change in step.changes:
                path, states = change.path, (change.before, change.after)
                goal, start = states if back else reversed(states)
                if change.undone != (DONE if back else UNDONE) or only not in (None, path):
                    continue
                try:
                    if path not in plan.before:
                        plan.before[path] = self._tree.state(path)
                except (ToolError, OSError) as error:
                    plan.conflicts[path] = file_tree.failure(error)
                    continue
                goals[path] = goal
                now = plan.targets.get(path, plan.before[path])
                if now not in (start, goal):
                    plan.conflicts.setdefault(path, "was changed since then")
                elif goal is not None and now != goal and not self._can_make(goal):
                    plan.conflicts.setdefault(path, "was too large to be kept")
                else:
                    plan.targets[path] = goal
        for path in [*plan.conflicts]:
            plan.targets.pop(path, None)
            if path in goals and plan.before[path] == goals[path]:  # as after an interrupted undo
                plan.targets[path] = goals[path]
                del plan.conflicts[path]
        return plan

    def _can_make(self, goal: FileEntry) -> bool:
        return goal.is_read and (goal.kind != "file" or self.content(goal) is not None)

    def _load(self, digest: str) -> bytes | None:
        return self.content(FileEntry("file", 0, digest))

    def _mark(self, steps: Iterable[RecordedStep], paths: Collection[str], undone: int) -> None:
        with self._transaction() as db:
            db.executemany(
                "UPDATE change SET undone = ? WHERE step = ? AND path = ?",
                [
                    (undone, step.id, os.fsencode(change.path))
                    for step in steps
                    for change in step.changes
                    if change.path in paths
                ],
            )

    # --- looking ---

    def _look(self, step: int | None = None) -> bool:
        """Compare all files with the latest look. Differences belong to ``step``, else to the latest
        one that has not ended, else to no tool. Returns False where there is too much to look at."""
        began = time.time_ns()
        self._remove_temporary()
        if (found := self._tree.scan()) is None:
            return False
        contents, room = dict[str, bytes](), self.max_bytes // 2
        before: dict[str, State] = {}
        changed: dict[str, tuple[Signature | None, State]] = {}
        with self._transaction() as db:
            for path, status in found.items():
                signature, known = self._entries.get(path, (None, None))
                room -= min(status.st_size, MAX_FILE_BYTES)
                seen = status.st_ctime_ns, status.st_ino, status.st_size
                if signature == seen:
                    continue
                try:
                    state = self._tree.state(path, contents if room > 0 else None)
                except (OSError, ToolError):
                    continue
                if room <= 0 and state is not None and state.kind == "file":
                    state = file_tree.unread_file(status)
                before[path], changed[path] = known, (_lasting(seen, began), state)
                if len(contents) >= BATCH_FILES:
                    self._record(None, {}, {}, contents)
                    contents.clear()
            for path in self._entries.keys() - found.keys():
                before[path], changed[path] = self._entries[path][1], (None, None)
            unended = db.execute("SELECT id, pid FROM step WHERE pid IS NOT NULL").fetchall()
            owner = step or max((id for id, _ in unended), default=None)
            after = {path: state for path, (_, state) in changed.items()}
            self._record(owner if self._has_look else None, before, after, contents)
            for path, (lasting, state) in changed.items():
                self._set_entry(path, lasting, state)
            for id, pid in unended:
                if not _is_running(pid):
                    self._close_step(id)
            db.execute("UPDATE root SET has_look = 1")
            self._has_look = True
        return True

    def _note(self, paths: Iterable[str]) -> None:
        """Take what this program has changed itself as seen, if there has been a look."""
        if self._db is None or not self._has_look:
            return
        with self._transaction():
            contents: dict[str, bytes] = {}
            for path in paths:
                if SKIPPED_NAMES.isdisjoint(PurePath(path).parts[:-1]):
                    status = self._tree.status(path)
                    state, signature = self._tree.state(path, contents), None
                    if status is not None:
                        signature = status.st_ctime_ns, status.st_ino, status.st_size
                    self._set_entry(path, _lasting(signature, time.time_ns()), state)
            self._record(None, {}, {}, contents)

    # --- the database ---

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other threads out; raises OSError where the database fails."""
        with self.lock:
            try:
                yield
            except sqlite3.Error as error:
                self._version = -1
                raise OSError(f"changes cannot be recorded: {error}") from None

    @property
    def _db(self) -> sqlite3.Connection | None:
        """The database; None where nothing is to be kept, or it cannot be written."""
        if self._opened is None and self.max_bytes:
            try:
                folder = self._folder or make_temporary_folder("agent-undo-")
                private_files.make_folder(folder)
                root = os.fsencode(self.root.path)
                path = folder / f"{file_tree.digest(root)[:16]}.sqlite"
                try:
                    self._opened = _connect(path)
                except sqlite3.DatabaseError as error:
                    if isinstance(error, sqlite3.OperationalError):
                        raise
                    path.unlink()  # it is damaged: what it had cannot be taken back any more
                    self._opened = _connect(path)
                self._opened.execute("INSERT OR IGNORE INTO root VALUES (?, 0)", (root,))
            except (OSError, sqlite3.Error):
                self.max_bytes = 0
        if self._opened is not None:
            self._refresh(self._opened)
        return self._opened

    def _refresh(self, db: sqlite3.Connection) -> None:
        """Read the latest look if another process has changed it."""
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._has_look = db.execute("SELECT has_look FROM root").fetchall() == [(1,)]
            rows = db.execute("SELECT path, changed, inode, size, state FROM entry")
            self._entries = {
                os.fsdecode(p): ((c, i, s), FileEntry.decoded(e)) for p, c, i, s, e in rows
            }

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, or take part in the one that runs."""
        assert self._opened is not None
        if self._opened.in_transaction:
            yield self._opened
            return
        with self._opened as db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    def _add_step(self, tool: str, turn: str | None = None) -> int:
        conversation = builtin_server.conversation_id.get()
        turn = turn or builtin_server.turn_id.get() or conversation
        values = conversation, turn, tool, time.time(), os.getpid()
        columns = "conversation, turn, tool, created, pid"
        with self._transaction() as db:
            cursor = db.execute(f"INSERT INTO step ({columns}) VALUES (?, ?, ?, ?, ?)", values)
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _close_step(self, step: int) -> None:
        with self._transaction() as db:
            db.execute("UPDATE step SET pid = NULL WHERE id = ?", (step,))
            unused = "id = ? AND NOT EXISTS (SELECT 1 FROM change WHERE step = id)"
            db.execute(f"DELETE FROM step WHERE {unused}", (step,))

    def _record(
        self, step: int | None, before: Mapping[str, State], after: Mapping[str, State],
        contents: Mapping[str, bytes],
    ) -> None:  # fmt: skip
        """Record contents, and changes of a step; a second one of a path continues the first."""
        with self._transaction() as db:
            db.executemany("INSERT OR IGNORE INTO content VALUES (?, ?)", contents.items())
            for path, now in after.items() if step is not None else ():
                key, query = (step, os.fsencode(path)), "FROM change WHERE step = ? AND path = ?"
                row = db.execute(f"SELECT before {query}", key).fetchone()
                first = _decoded(row[0]) if row else before[path]
                db.execute(f"DELETE {query}", key)
                if first != now:
                    states = (state and state.encoded() for state in (first, now))
                    db.execute("INSERT INTO change VALUES (?, ?, ?, ?, 0)", (*key, *states))

    def _set_entry(self, path: str, signature: Signature | None, state: State) -> None:
        with self._transaction() as db:
            if state is None:
                db.execute("DELETE FROM entry WHERE path = ?", (os.fsencode(path),))
                self._entries.pop(path, None)
            else:
                row = os.fsencode(path), *(signature or (None, None, None)), state.encoded()
                db.execute("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?)", row)
                self._entries[path] = signature, state

    def _forget(self, where: str, *values: object) -> None:
        with self._transaction() as db:
            _forget(db, where, *values)

    def _prune(self) -> None:
        """Forget unneeded contents, and the oldest steps, a quarter of them at a time, until the file
        is small enough."""
        if self.size() > self.max_bytes:
            self._forget("FALSE")
        while self._db is not None and self.size() > self.max_bytes:
            ids = [
                id
                for (id,) in self._db.execute("SELECT id FROM step WHERE pid IS NULL ORDER BY id")
            ]
            if len(ids) < 2:
                return
            self._forget("id <= ? AND pid IS NULL", ids[(len(ids) - 1) // 4])

    def _set_temporary(self, paths: Iterable[str]) -> None:
        """Record names that a kill would leave, before they are used; none: they are gone."""
        if self._db is not None:
            with self._transaction() as db:
                db.execute("DELETE FROM temporary WHERE pid = ?", (os.getpid(),))
                rows = [(os.fsencode(path), os.getpid()) for path in paths]
                db.executemany("INSERT OR IGNORE INTO temporary VALUES (?, ?)", rows)

    def _remove_temporary(self) -> None:
        """Remove the files that killed programs have left half written."""
        with self._transaction() as db:
            for path, pid in db.execute("SELECT path, pid FROM temporary").fetchall():
                if not _is_running(pid):
                    self._tree.remove_file(os.fsdecode(path))
                    db.execute("DELETE FROM temporary WHERE path = ?", (path,))


def _decoded(data: bytes | None) -> State:
    return None if data is None else FileEntry.decoded(data)


def _lasting(signature: Signature | None, now_ns: int) -> Signature | None:
    """Return a signature unless the file changed just now, and may do so again unnoticed."""
    return signature if signature and signature[0] <= now_ns - RACY_NS else None


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# --- the journals of all roots ---


def net_changes(steps: Iterable[RecordedStep]) -> list[Change]:
    """Return what steps have changed together and is not taken back, by path."""
    net: dict[str, Change] = {}
    for step in steps:
        for change in step.changes:
            if change.undone != UNDONE:
                net[change.path] = replace(change, before=net.get(change.path, change).before)
    return sorted((c for c in net.values() if c.before != c.after), key=lambda c: c.path)


def last_turn(steps: Iterable[RecordedStep]) -> str | None:
    """Return the turn that ``/undo`` takes back."""
    done = [s.turn for s in steps if any(change.undone == DONE for change in s.changes)]
    return done[-1] if done else None


def undone_turn(steps: Iterable[RecordedStep]) -> str | None:
    """Return the turn that ``/redo`` makes again: the first behind those that are not taken back."""
    found = None
    for step in steps:
        undone = {change.undone for change in step.changes}
        if UNDONE in undone:
            found = found or step.turn
        elif DONE in undone:
            found = None
    return found


def journal_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sqlite"))


def forget_conversation(folder: Path, conversation: str) -> None:
    """Delete what is recorded of a conversation, of all roots."""
    for path in journal_files(folder):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(_connect(path)) as db:
            _forget(db, "conversation = ?", conversation)


def find_root(folder: Path, turns: Collection[str]) -> Path | None:
    """Return the root below which turns have changed something last; None: they have not."""
    found: dict[float, Path] = {}
    for path in journal_files(folder):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(_connect(path)) as db:
            (root,) = db.execute("SELECT path FROM root").fetchone()
            for turn, created in db.execute("SELECT turn, created FROM step"):
                if turn in turns:
                    found[created] = Path(os.fsdecode(root))
    return found[max(found)] if found else None


def _connect(path: Path) -> sqlite3.Connection:
    os.close(private_files.opener(str(path), os.O_RDWR | os.O_CREAT))
    db = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def _forget(db: sqlite3.Connection, where: str, *values: object) -> None:
    """Delete steps, and the contents that nothing else needs."""
    db.execute(f"DELETE FROM change WHERE step IN (SELECT id FROM step WHERE {where})", values)
    db.execute(f"DELETE FROM step WHERE {where}", values)
    states = (
        "SELECT state FROM entry UNION SELECT before FROM change UNION SELECT after FROM change"
    )
    needed = {
        FileEntry.decoded(state).content for (state,) in db.execute(states) if state is not None
    }
    kept = db.execute("SELECT digest FROM content").fetchall()
    unneeded = [row for row in kept if row[0] not in needed]
    db.executemany("DELETE FROM content WHERE digest = ?", unneeded)
