"""``/v1/files`` and ``/v1/batches`` over HTTP: https://platform.openai.com/docs/api-reference/files,
https://platform.openai.com/docs/api-reference/batch"""

import asyncio
from typing import Any, Literal

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Message, Receive

from agent.server.batch.batches import PURPOSE, BatchQueue
from agent.server.batch.file_store import public_fields
from agent.server.batch.jobs import Endpoint
from agent.server.http.clients import current_client
from agent.server.http.endpoints import endpoint
from agent.server.http.errors import ApiError, body_too_large, invalid, unsupported
from agent.server.http.json_response import JsonResponse
from agent.server.http.list_page import list_page
from agent.server.http.request_body import read_json
from agent.server.input.parsing import validate
from agent.server.input.schemas import ConfigModel, Metadata
from agent.server.responses import answer_schemas
from agent.server.responses.service import ResponseService

MAX_LISTED_FILES = 10_000
MAX_FILE_BYTES = 200 * 1024 * 1024
"""Size of an uploaded file, as OpenAI limits the input of a batch."""
FORM_BYTES = 64 * 1024
"""Overhead of the form around it."""


class CreateBatch(ConfigModel):
    """The body of ``POST /v1/batches``."""

    input_file_id: str
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None


class BatchRoutes:
    """The routes below ``/v1/files`` and ``/v1/batches``."""

    def __init__(self, service: ResponseService, queue: BatchQueue | None) -> None:
        """``queue``: None where the server stores nothing."""
        self._service, self._optional_queue = service, queue

    @property
    def _queue(self) -> BatchQueue:
        """The queue. Raises ApiError where the server has none."""
        if self._optional_queue is None:
            message = "This server stores nothing, so it has no files and no batches."
            raise ApiError(400, message, code="unsupported_parameter")
        return self._optional_queue

    @endpoint("POST", "/v1/files", answer_schemas.FileObject)
    async def create_file(self, request: Request) -> Response:
        """POST /v1/files: store a file (a form with ``file`` and ``purpose``)."""
        files = self._queue.files
        bounded = Request(request.scope, _bounded(request.receive))
        try:
            async with bounded.form(max_files=1, max_fields=10) as form:
                upload, purpose = form.get("file"), form.get("purpose")
                is_lenient = self._service.options.lenient
                if not is_lenient and any(name.startswith("expires_after") for name in form):
                    raise unsupported("expires_after", "Expiry of files")
                if not isinstance(upload, UploadFile):
                    message = "Missing required parameter: 'file', of a multipart/form-data body."
                    raise invalid("file", message, "missing_required_parameter")
                if purpose != PURPOSE:
                    message = (
                        f"'purpose' must be '{PURPOSE}': files of this server are for batches."
                    )
                    raise invalid("purpose", message)
                name, owner = upload.filename or "file", current_client().name
                entry = await asyncio.to_thread(files.add, name, PURPOSE, upload.file, owner)
        except HTTPException as error:
            raise invalid("file", f"The form cannot be read: {error.detail}") from error
        return JsonResponse(public_fields(entry))

    @endpoint("GET", "/v1/files", answer_schemas.FilePage)
    async def list_files(self, request: Request) -> Response:
        """GET /v1/files: the latest first unless ``order=asc``, of one ``purpose``."""
        entries = self._queue.files.entries()
        purpose = request.query_params.get("purpose")
        wanted = [entry for entry in entries if purpose in (None, entry["purpose"])]
        most = MAX_LISTED_FILES
        return JsonResponse(list_page(wanted, request.query_params, most, most))

    @endpoint("GET", "/v1/files/{id}", answer_schemas.FileObject)
    async def get_file(self, request: Request) -> Response:
        """GET /v1/files/{id}: the description of a file."""
        return JsonResponse(public_fields(self._queue.files.find(request.path_params["id"])))

    @endpoint("DELETE", "/v1/files/{id}", answer_schemas.DeletedFile)
    async def delete_file(self, request: Request) -> Response:
        """DELETE /v1/files/{id}: delete a file."""
        name = request.path_params["id"]
        self._queue.files.delete(name)
        return JsonResponse({"id": name, "object": "file", "deleted": True})

    @endpoint("GET", "/v1/files/{id}/content")
    async def file_content(self, request: Request) -> Response:
        """GET /v1/files/{id}/content: the bytes of a file."""
        files, name = self._queue.files, request.path_params["id"]
        files.find(name)
        return FileResponse(files.content(name), media_type="application/octet-stream")

    @endpoint("POST", "/v1/batches", answer_schemas.BatchObject, body=CreateBatch)
    async def create_batch(self, request: Request) -> Response:
        """POST /v1/batches: answer the requests of a file in the background."""
        queue = self._queue
        body = await read_json(request, self._service.body_budget)
        extra: Any = "ignore" if self._service.options.lenient else None
        wanted = validate(CreateBatch, body, extra=extra)
        self._service.refuse_while_draining()
        batch = await queue.create(wanted.input_file_id, wanted.endpoint, wanted.metadata)
        return JsonResponse(public_fields(batch))

    @endpoint("GET", "/v1/batches", answer_schemas.BatchPage)
    async def list_batches(self, request: Request) -> Response:
        """GET /v1/batches: the latest first unless ``order=asc``."""
        return JsonResponse(list_page(self._queue.entries(), request.query_params))

    @endpoint("GET", "/v1/batches/{id}", answer_schemas.BatchObject)
    async def get_batch(self, request: Request) -> Response:
        """GET /v1/batches/{id}: a batch as it is now."""
        return JsonResponse(public_fields(self._queue.find(request.path_params["id"])))

    @endpoint("POST", "/v1/batches/{id}/cancel", answer_schemas.BatchObject)
    async def cancel_batch(self, request: Request) -> Response:
        """POST /v1/batches/{id}/cancel: end a batch; what is done by then stays."""
        return JsonResponse(public_fields(self._queue.cancel(request.path_params["id"])))


def _bounded(receive: Receive) -> Receive:
    """Count the bytes of a body, which go to a temporary file. The result raises ApiError, 413."""
    size = 0

    async def receive_bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_FILE_BYTES + FORM_BYTES:
            raise body_too_large(MAX_FILE_BYTES)
        return message

    return receive_bounded
