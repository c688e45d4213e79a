"""Batches: files of requests that are answered in the background, one after the other, also after a
restart. Reference: https://platform.openai.com/docs/api-reference/batch"""

import asyncio
import json
import logging
import os
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from starlette.applications import Starlette

from agent.server.batch.file_store import FileStore, Json, ObjectFolder
from agent.server.batch.jobs import BatchRunner, Line, ResultLog, WrongLine, read_lines, status_of
from agent.server.http.clients import Clients, as_client, current_client
from agent.server.http.errors import ApiError, internal_error
from agent.server.responses.answer_schemas import BATCH_TIMES
from agent.util import private_files
from agent.util.ids import new_id

log = logging.getLogger(__name__)

PURPOSE, RESULT_PURPOSE = "batch", "batch_output"
WINDOW_SECONDS = 24 * 3600
"""After this time a batch expires; what is done by then stays."""
MAX_FAULTS = 100
"""Wrong lines that a failed batch names."""
OTHER_SERVER = "Another server of this person works at the batches: ask that one."
UNFINISHED = ("validating", "in_progress", "finalizing", "cancelling")


class BatchQueue:
    """The batches of a folder. One server works at them; others that have the folder too only read."""

    def __init__(self, folder: Path, files: FileStore) -> None:
        self.files = files
        self._batches = ObjectFolder(folder, "batch")
        self.find, self.entries = self._batches.find, self._batches.entries
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
        self._app, self._parallel, self._clients = Starlette(), 1, Clients()
        self._running: Json | None = None
        self._answering: asyncio.Task[None] | None = None
        self._lock = ExitStack()

    def start(self, app: Starlette, parallel: int, clients: Clients) -> None:
        """Begin to work, first at what an earlier server left; each batch is its client's."""
        self._app, self._parallel, self._clients = app, parallel, clients
        if self._batches.folder.exists():
            self._begin_work()

    def _begin_work(self) -> None:
        """Take the folder, unless another server has it, and resume its batches."""
        if self._worker is not None:
            return
        folder = self._batches.folder
        try:
            self._lock.enter_context(private_files.locked(folder / "batches", wait=False))
        except BlockingIOError:
            return
        for suffix in ("input", "results"):
            for path in folder.glob(f"batch_*.{suffix}"):
                if not path.with_suffix(".json").exists():  # a server ended amid its creation
                    path.unlink(missing_ok=True)
        for batch in self._batches.load_all():
            if batch["status"] in UNFINISHED:
                self._waiting.put_nowait(batch["id"])
            else:
                self._discard_work(batch)
        self._worker = asyncio.create_task(self._work())

    def stop(self) -> None:
        """Begin no more; the batch that runs is resumed when a server starts again."""
        if self._worker is not None:
            self._worker.cancel()

    async def close(self) -> None:
        """Stop, and give the folder to other servers."""
        self.stop()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        self._lock.close()

    # --- what clients ask ---

    async def create(self, file_id: str, endpoint: str, metadata: dict[str, str] | None) -> Json:
        """Queue a batch and return it. Raises ApiError, and OSError as of a full disk."""
        source = self.files.find(file_id)
        if source["purpose"] != PURPOSE:
            message = f"The purpose of file '{file_id}' is '{source['purpose']}', not 'batch'."
            raise ApiError(400, message, code="invalid_value", param="input_file_id")
        self._begin_work()
        if self._worker is None:
            raise ApiError(409, OTHER_SERVER, code="conflict")
        now = int(time.time())
        batch: Json = {
            "id": new_id("batch"),
            "object": "batch",
            "endpoint": endpoint,
            "errors": None,
            "input_file_id": file_id,
            "completion_window": "24h",
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            **dict.fromkeys(BATCH_TIMES),
            "expires_at": now + WINDOW_SECONDS,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": metadata,
            "owner": current_client().name,
        }
        try:
            await asyncio.to_thread(self._link_input, batch)
            self._batches.write(batch)
        except BaseException:
            self._input(batch).unlink(missing_ok=True)
            raise
        self._waiting.put_nowait(batch["id"])
        return batch

    def cancel(self, name: str) -> Json:
        """Cancel a batch; it. Raises ApiError: 404, and 409 where it has ended."""
        batch, running = self.find(name), False
        if self._running is not None and self._running["id"] == name:
            batch, running = self._running, True
        if batch["status"] not in UNFINISHED:
            message = f"Cannot cancel a batch with status '{batch['status']}'."
            raise ApiError(409, message, code="invalid_state", param="id")
        if self._worker is None:
            raise ApiError(409, OTHER_SERVER, code="conflict", param="id")
        if batch["status"] != "cancelling":
            self._set_status(batch, "cancelling")
        if not running:
            self._set_status(batch, "cancelled")
        elif self._answering is not None:
            self._answering.cancel()
        return batch

    # --- the work ---

    async def _work(self) -> None:
        while True:
            name = await self._waiting.get()
            try:
                await self._work_at(self._batches.load(name))
            except Exception:  # which must not end the work at others
                log.exception("the batch %s cannot be ended", name)

    async def _work_at(self, batch: Json) -> None:
        if batch["status"] not in UNFINISHED:
            return  # cancelled before its turn came
        self._running = batch
        try:
            await self._process(batch)
        except Exception:
            log.exception("the batch %s broke", batch["id"])
            self._break_off(batch)
        finally:
            self._running = None

    def _link_input(self, batch: Json) -> None:
        """Link the requests, so that the client may delete their file. Raises OSError."""
        source, target = self.files.content(batch["input_file_id"]), self._input(batch)
        try:
            os.link(source, target)
        except OSError:  # a file system without links
            shutil.copyfile(source, target)

    def _input(self, batch: Json) -> Path:
        return self._batches.path(batch["id"], "input")

    def _results(self, batch: Json) -> Path:
        return self._batches.path(batch["id"], "results")

    def _discard_work(self, batch: Json) -> None:
        for path in (self._results(batch), self._input(batch)):
            path.unlink(missing_ok=True)

    def _break_off(self, batch: Json) -> None:
        results = self._results(batch)
        try:
            if results.exists():
                self._file_results(batch, results)
        except OSError:  # as of a full disk: the batch is resumed when a server starts again
            raise
        except Exception:
            log.exception("the results of batch %s cannot be filed", batch["id"])
        self._fail(batch, [WrongLine(None, internal_error())])

    async def _process(self, batch: Json) -> None:
        lines = await asyncio.to_thread(self._read, batch)
        if wrong := [line for line in lines if isinstance(line, WrongLine)]:
            self._fail(batch, wrong)
            return
        results = ResultLog(self._results(batch), own=True)
        with results:
            ending = await self._answer(batch, lines, results)
        if ending == "completed":
            self._set_status(batch, "finalizing")
        await asyncio.to_thread(self._file_results, batch, results.path)
        self._set_status(batch, ending)

    async def _answer(self, batch: Json, lines: list[Line], results: ResultLog) -> str:
        """Make the requests that have no result; the status with which the batch ends."""
        missing = results.missing(lines)
        counts = batch["request_counts"] = {
            "total": len(lines),
            "completed": len(lines) - len(missing) - results.failed,
            "failed": results.failed,
        }

        def add(result: Json) -> None:
            results.add(result)
            counts["completed" if status_of(result) == 200 else "failed"] += 1
            self._batches.write(batch)

        if batch["status"] == "cancelling":  # by a server that ended then
            return "cancelled"
        self._set_status(batch, "in_progress")
        app = as_client(self._app, self._clients.named(batch.get("owner", "")))
        runner = BatchRunner(app, self._parallel)
        self._answering = asyncio.create_task(runner.run(missing, add))
        try:
            left = max(0.0, batch["expires_at"] - time.time())
            done, _ = await asyncio.wait([self._answering], timeout=left)
        finally:
            self._answering.cancel()
            await asyncio.wait([self._answering])
            await runner.close()
        if not done:
            results.add_expired(lines)
            return "expired"
        if self._answering.cancelled():
            return "cancelled"
        self._answering.result()
        return "completed"

    def _read(self, batch: Json) -> list[Line]:
        try:
            text = self._input(batch).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            message = "The file is not UTF-8 text."
            return [WrongLine(None, ApiError(400, message, code="invalid_file"))]
        lines = list(read_lines(text.split("\n"), [batch["endpoint"]]))
        empty = ApiError(400, "The file has no requests.", code="empty_file")
        return lines or [WrongLine(None, empty)]

    def _fail(self, batch: Json, wrong: list[WrongLine]) -> None:
        errors = [(line.number, line.error) for line in wrong[:MAX_FAULTS]]
        faults = [
            {"code": error.code, "message": str(error), "param": error.param, "line": number}
            for number, error in errors
        ]
        batch["errors"] = {"object": "list", "data": faults}
        self._set_status(batch, "failed")

    def _file_results(self, batch: Json, results: Path) -> None:
        """Make the output and the error file; a line that a full disk cut off is in neither."""
        with ExitStack() as opened:
            files = {
                kind: opened.enter_context(tempfile.TemporaryFile()) for kind in ("output", "error")
            }
            for line in opened.enter_context(results.open("rb")):
                with suppress(ValueError, LookupError, TypeError, AttributeError):
                    status = status_of(json.loads(line))
                    files["output" if status == 200 else "error"].write(line)
            for kind, file in files.items():
                if file.tell():
                    name = f"{batch['id']}_{kind}.jsonl"
                    # The same after a stop in the middle of it: no unreferenced file is left.
                    file_id = f"file_{batch['id'].partition('_')[2]}{kind}"
                    self.files.add(name, RESULT_PURPOSE, file, batch.get("owner", ""), file_id)
                    batch[f"{kind}_file_id"] = file_id

    def _set_status(self, batch: Json, status: str) -> None:
        batch["status"] = status
        batch[f"{status}_at"] = int(time.time())
        self._batches.write(batch)
        if status not in UNFINISHED:
            self._discard_work(batch)
