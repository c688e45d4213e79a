"""`agent batch`: lines with answers, refusals, a stop in the middle, and what is not done again."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks
from tests.support.program import RunAgent
from tests.support.requests import ENDLESS
from tests.support.waiting import HANG_SECONDS

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"


def line(custom_id: str, url: str = RESPONSES, **body: Any) -> str:
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}) + "\n"


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    results = [json.loads(text) for text in path.read_text().splitlines()]
    by_id = {result["custom_id"]: result["response"] for result in results}
    assert len(by_id) == len(results)
    return by_id


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A file for requests and one for results."""
    return tmp_path / "in.jsonl", tmp_path / "out.jsonl"


@pytest.mark.slow
def test_batch_answers_both_apis_and_names_what_is_wrong(
    agent: RunAgent, files: tuple[Path, Path]
) -> None:
    source, output = files
    messages = [{"role": "user", "content": "Hello"}]
    source.write_text(
        line("a", input="Hello\u2028there", model="gpt-x")
        + line("b", CHAT, messages=messages)
        + "\n{nonsense\n"
        + line("a", input="again")
        + line("c", input="x", temperature=9)
        + line("d", input="x", stream=True)
        + line("e", "/v1/embeddings", input="x")
    )
    ran = agent("batch", str(source), "-o", str(output), "--alias", "gpt-x", "--tools", "python")
    assert (ran.code, ran.out) == (1, "")
    assert "7 requests" in ran.err and "5 failed" in ran.err
    results = [json.loads(text) for text in output.read_text().splitlines()]
    bodies = {r["custom_id"]: r["response"]["body"] for r in results if r["custom_id"]}
    assert bodies["a"]["output"][-1]["content"][0]["text"]
    assert bodies["a"]["model"] == "tiny" and bodies["a"]["store"] is False
    assert bodies["b"]["choices"][0]["message"]["content"]
    assert bodies["c"]["error"]["param"] == "temperature"
    assert bodies["d"]["error"]["param"] == "body.stream"
    assert bodies["e"]["error"]["code"] == "invalid_url"
    nameless = [r["response"]["body"]["error"]["message"] for r in results if not r["custom_id"]]
    assert len(nameless) == 2
    assert "Line 4" in nameless[0] and "Line 5" in nameless[1] and "'a'" in nameless[1]


def test_batch_changed_lines_are_answered_anew(agent: RunAgent, files: tuple[Path, Path]) -> None:
    source, output = files
    source.write_text(
        line("same", input="Hello") + line("edited", input="Hi") + line("bad", input=3)
    )
    assert agent("batch", str(source), "-o", str(output)).code == 1
    before = read_results(output)
    again = agent("batch", str(source), "-o", str(output))
    assert again.code == 1 and "All 3 requests were done before; 1 failed" in again.err
    changed = {"url": RESPONSES, "body": {"input": "Hello"}, "custom_id": "same", "method": "POST"}
    source.write_text(
        json.dumps(changed) + "\n" + line("edited", input="Bye") + line("bad", input="Hello")
    )
    ran = agent("batch", str(source), "-o", str(output))
    assert ran.code == 0 and "agent: 2 lines have changed and are asked again." in ran.err
    after = read_results(output)
    assert after["same"] == before["same"], "only its fields are in another order"
    assert after["edited"]["body"]["id"] != before["edited"]["body"]["id"]
    assert after["bad"]["status_code"] == 200
    assert "were done before." in agent("batch", str(source), "-o", str(output)).err


def test_batch_dry_run_counts_and_writes_nothing(agent: RunAgent, files: tuple[Path, Path]) -> None:
    source, _ = files
    source.write_text(
        line("a", input="one two") + line("b", CHAT, messages=[]) + line("", input="x")
    )
    ran = agent("batch", str(source), "--dry-run")
    assert ran.code == 1
    assert ran.out.startswith("1 requests with ") and "2 wrong lines" in ran.out
    assert "b: " in ran.err and "Line 3: A line needs a 'custom_id'" in ran.err
    assert [path.name for path in source.parent.glob("*.jsonl")] == ["in.jsonl"]


@pytest.mark.slow
def test_batch_stopped_goes_on_where_it_was(
    agent: RunAgent, files: tuple[Path, Path], home: Path
) -> None:
    source, output = files
    endless = line("endless", input="x", **ENDLESS)
    source.write_text(line("a", input="Hello") + endless + line("b", input="Hi"))
    command = [*forks.relay(), "batch", str(source), "-o", str(output)]
    with subprocess.Popen(
        [*command, "--no-loop-guard", "--parallel", "2"],
        env={**os.environ, "AGENT_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        while "2 of 3" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert "stopped; 2 of 3 are done" in err and "Traceback" not in err
    with output.open("a") as file:
        file.write('{"id": "cut off in the mid')
    before = output.read_text().splitlines()
    source.write_text(
        line("a", input="Hello") + line("endless", input="Hey") + line("b", input="Hi")
    )
    ran = agent("batch", str(source), "-o", str(output))
    assert ran.code == 0 and "2 of 3 were done before" in ran.err
    assert output.read_text().splitlines()[:2] == before[:2]
    assert read_results(output).keys() == {"a", "b", "endless"}
    assert (
        agent("batch", str(source), "-o", str(output)).err == "All 3 requests were done before.\n"
    )


@pytest.mark.parametrize("output", ["/dev/full", "/dev/stdout", "-"])
def test_batch_results_that_cannot_be_read_again_are_refused(
    agent: RunAgent, files: tuple[Path, Path], output: str
) -> None:
    source, _ = files
    source.write_text(line("a", input="Hello"))
    ran = agent("batch", str(source), "-o", output, cwd=source.parent)
    assert (ran.code, ran.err) == (
        2, "agent: --output: the results need a file that a later run can continue.\n",
    )  # fmt: skip
    assert [path.name for path in source.parent.glob("*") if path.is_file()] == ["in.jsonl"]


@pytest.mark.long
def test_batch_on_a_full_disk_says_so_and_goes_on_later(
    agent: RunAgent, files: tuple[Path, Path], home: Path
) -> None:
    source, output = files
    source.write_text(
        "\ufeff" + "\r\n\r\n".join(line(name, input="Hello").strip() for name in "abc")
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "agent", "batch", str(source), "-o", str(output)],
        env={**os.environ, "AGENT_HOME": str(home)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500)),
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (
        2, f"agent: --output: {output} cannot be written: File too large.",
    )  # fmt: skip
    again = agent("batch", str(source), "-o", str(output))
    assert again.code == 0 and "were done before" in again.err
    assert read_results(output).keys() == {"a", "b", "c"}
