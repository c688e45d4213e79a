"""Lines of batch files and the file of their results: what stops, disks and other programs do to it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agent.server.batch.file_store import ObjectFolder
from agent.server.batch.jobs import (
    BatchRequest,
    BatchRunner,
    Line,
    ResultLog,
    is_final,
    read_lines,
    status_of,
)

URL = "/v1/responses"


def result(custom_id: str, status: int = 200, text: str = "ü") -> dict[str, Any]:
    response = {"status_code": status, "request_id": "req_1", "body": {"text": text}}
    return {"id": "batch_req_1", "custom_id": custom_id, "response": response, "error": None}


def as_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def runner() -> BatchRunner:
    async def size(request: Request) -> JSONResponse:
        return JSONResponse({"bytes": len(await request.body())})

    return BatchRunner(Starlette(routes=[Route(URL, size, methods=["POST"])]), 2)


def requests(count: int) -> list[BatchRequest]:
    return [BatchRequest(str(number), URL, {"input": "x"}) for number in range(count)]


async def test_number_too_large_for_json_is_sent_as_others_are() -> None:
    line = '{"custom_id": "a", "url": "/v1/responses", "body": {"temperature": 1e400}}'
    results: list[dict[str, Any]] = []
    one = runner()
    await one.run(read_lines([line]), results.append)
    await one.close()
    assert [result["response"]["status_code"] for result in results] == [200]


async def test_full_disk_is_raised_as_it_is() -> None:
    def add(_: dict[str, Any]) -> None:
        raise OSError(28, "No space left on device")

    one = runner()
    with pytest.raises(OSError, match="No space"):
        await one.run(requests(3), add)
    await one.close()


class BusyEngine:
    """Answers so many requests at a time; others are refused as busy."""

    def __init__(self, slots: int) -> None:
        self.slots, self.running, self.refused, self.most = slots, 0, 0, 0
        self.app = Starlette(routes=[Route(URL, self.answer, methods=["POST"])])

    async def answer(self, _: Request) -> JSONResponse:
        if self.running >= self.slots:
            self.refused += 1
            error = {"code": "rate_limit_exceeded", "message": "busy"}
            # As of a turn that had begun, whose second generation is refused.
            if self.refused % 2:
                return JSONResponse({"status": "failed", "error": error})
            return JSONResponse({"error": error}, 429)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(10):
            await asyncio.sleep(0)
        self.running -= 1
        return JSONResponse({"status": "completed"})


async def test_requests_that_a_busy_engine_refuses_are_made_again() -> None:
    engine = BusyEngine(3)
    results: list[dict[str, Any]] = []
    one = BatchRunner(engine.app, 16, first_pause=0.001)
    await one.run(requests(200), results.append)
    await one.close()
    assert [status_of(result) for result in results] == [200] * 200
    assert {result["custom_id"] for result in results} == {str(number) for number in range(200)}
    assert engine.refused and engine.most == 3


async def test_request_that_is_refused_for_too_long_fails() -> None:
    results: list[dict[str, Any]] = []
    one = BatchRunner(BusyEngine(0).app, 2, first_pause=0.001, max_busy=0.01)
    await one.run(requests(3), results.append)
    await one.close()
    assert [status_of(result) for result in results] == [429] * 3
    assert not any(map(is_final, results)), "the same command asks them again"


def test_results_cut_off_within_a_character_go_on(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    whole, cut = as_line(result("a")), as_line(result("b"))
    path.write_bytes(whole + cut[: cut.index("ü".encode()) + 1])
    with ResultLog(path) as log:
        assert [line.custom_id for line in log.missing(requests(1))] == ["0"]
        log.add(result("0"))
    assert path.read_bytes() == whole + as_line(result("0"))


def test_own_results_cut_off_in_the_first_line_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(as_line(result("a"))[:20])
    with pytest.raises(ValueError):
        ResultLog(path)  # a person may have named another file
    with ResultLog(path, own=True) as log:
        assert len(log.missing(requests(3))) == 3
        log.add(result("0"))
    assert path.read_bytes() == as_line(result("0"))


def test_results_stay_where_a_full_disk_stops_their_rewriting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    before = as_line(result("a")) + as_line(result("b", 500))
    path.write_bytes(before)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space"), ResultLog(path):
            pass
    assert path.read_bytes() == before


def test_rewritten_results_keep_their_mode_and_their_link(tmp_path: Path) -> None:
    target, link = tmp_path / "results.jsonl", tmp_path / "out.jsonl"
    target.write_bytes(as_line(result("a")) + as_line(result("b", 500)))
    target.chmod(0o640)
    link.symlink_to(target)
    with ResultLog(link):
        pass
    assert target.read_bytes() == as_line(result("a"))
    assert link.is_symlink() and target.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("status", [200, 500])
def test_second_writer_of_results_is_refused(tmp_path: Path, status: int) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(as_line(result("a", status)))
    with ResultLog(path), pytest.raises(BlockingIOError):
        ResultLog(path)
    with ResultLog(path):
        pass


def test_object_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path, "batch")
    folder.write({"id": "batch_1", "created_at": 1})
    (tmp_path / "batch_2.json").write_text("")
    assert [entry["id"] for entry in folder.entries()] == ["batch_1"]


def test_expired_line_that_failed_has_one_result(tmp_path: Path) -> None:
    lines: list[Line] = [BatchRequest(name, URL, {}) for name in "ab"]
    with ResultLog(tmp_path / "r") as log:
        log.add(result("a", 500))
        log.add_expired(lines)
    results = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
    assert [each["custom_id"] for each in results] == ["a", "b"]
    assert ResultLog(tmp_path / "r").missing(lines) == lines, "a later run asks both again"
