"""`agent launch` with a client that prints what it got, and one that does not end by itself."""

import json
import os
import signal
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.program import ROOT
from tests.support.waiting import HANG_SECONDS

HELLO = '{"markup":"<|channel|>final<|message|>Hello there!<|return|>"}\n'
CLIENT = f"""#!{sys.executable}
import json, os, sys, urllib.request
if sys.argv[1:] == ["debug", "models", "--bundled"]:
    print(json.dumps({{"models": [{{"slug": "gpt-5.5", "kept": 1}}]}}))
    sys.exit()
url = os.environ["COPILOT_PROVIDER_BASE_URL"]
key = {{"authorization": "Bearer " + os.environ["COPILOT_PROVIDER_API_KEY"]}}
body = json.dumps({{"model": os.environ["COPILOT_MODEL"], "input": "Hi", "unknown": 1}}).encode()
headers = key | {{"content-type": "application/json"}}
answer = urllib.request.urlopen(urllib.request.Request(url + "/responses", body, headers))
text = json.load(answer)["output"][-1]["content"][0]["text"]
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "text": text}}), flush=True)
"""
Launch = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def client(tmp_path: Path) -> Callable[[str, str], None]:
    """Install a program as a client."""

    def install(name: str, text: str) -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    return install


@pytest.fixture
def launch(tmp_path: Path, home: Path) -> Launch:
    script = tmp_path / "script.jsonl"
    script.write_text(HELLO)
    (tmp_path / "user").mkdir()
    (tmp_path / "project").mkdir()

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "agent",
                "launch",
                "--engine",
                f"script:{script}",
                *arguments,
            ],
            cwd=tmp_path / "project",
            env={
                "AGENT_HOME": str(home),
                "HOME": str(tmp_path / "user"),
                "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, out, err


def is_served(url: str) -> bool:
    try:
        urllib.request.urlopen(url + "/health")
    except urllib.error.URLError:
        return False
    return True


def test_client_gets_server_key_model_and_arguments_and_its_exit_code_is_returned(
    client: Callable[[str, str], None], launch: Launch
) -> None:
    client("copilot", CLIENT + "sys.exit(7)\n")
    code, out, err = ended(launch("copilot", "-p", "a b", "--context", "32768", "--", "--model"))
    assert code == 7 and not err, err
    seen = json.loads(out)
    assert seen["argv"] == ["-p", "a b", "--model"] and seen["text"] == "Hello there!"
    assert seen["env"]["COPILOT_PROVIDER_MAX_PROMPT_TOKENS"] == "24576"
    assert "127.0.0.1" in seen["env"]["NO_PROXY"]
    assert not is_served(seen["env"]["COPILOT_PROVIDER_BASE_URL"].removesuffix("/v1"))


@pytest.mark.long
def test_small_context_is_named(client: Callable[[str, str], None], launch: Launch) -> None:
    client("copilot", CLIENT)
    code, _, err = ended(launch("copilot", "--context", "4096"))
    assert code == 0 and "4,096 tokens is small for GitHub Copilot CLI" in err


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_ends_client_and_server(
    client: Callable[[str, str], None], launch: Launch, sent: signal.Signals
) -> None:
    client("copilot", CLIENT + "import signal; signal.pause()\n")
    process = launch("copilot", "--context", "32768")
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["env"]["COPILOT_PROVIDER_BASE_URL"]
    process.send_signal(sent)
    code, _, err = ended(process)
    assert code in (1, 128 + sent), err  # Python ends with 1 or by the signal at SIGINT
    assert not is_served(url.removesuffix("/v1"))


def test_client_that_crashes_ends_the_server(
    client: Callable[[str, str], None], launch: Launch
) -> None:
    client("copilot", CLIENT + "os.kill(os.getpid(), 9)\n")
    code, out, _ = ended(launch("copilot", "--context", "32768"))
    assert code == 137
    url = json.loads(out)["env"]["COPILOT_PROVIDER_BASE_URL"]
    assert not is_served(url.removesuffix("/v1"))


def test_missing_unknown_and_foreign_clients_are_one_sentence(
    client: Callable[[str, str], None], launch: Launch, tmp_path: Path
) -> None:
    code, _, err = ended(launch("vibe"))
    assert (code, err) == (
        2, "agent: Mistral Vibe is not installed: uv tool install mistral-vibe.\n"
    )  # fmt: skip
    code, _, err = ended(launch("emacs"))
    assert code == 2 and err.startswith("agent: No client 'emacs' is known: codex, ")
    program = tmp_path / "project" / "vibe"  # a program of the folder is not taken
    program.write_text(CLIENT)
    program.chmod(0o755)
    assert ended(launch("vibe"))[0] == 2


def test_list_and_dry_run_start_nothing(client: Callable[[str, str], None], launch: Launch) -> None:
    client("copilot", CLIENT)
    code, out, _ = ended(launch())
    assert code == 0
    assert "copilot   GitHub Copilot CLI, Responses; installed\n" in out
    assert "qwen      Qwen Code, Chat Completions; not installed: npm install" in out
    code, out, _ = ended(launch("copilot", "--dry-run", "--model", "some-model", "x y"))
    assert code == 0 and out.endswith("copilot 'x y'\n")
    assert "export COPILOT_MODEL=some-model\nexport COPILOT_PROVIDER_MAX_PROMPT" in out
    assert "COPILOT_PROVIDER_API_KEY='***'" in out


@pytest.mark.long
def test_save_keeps_everything_else_and_a_backup(launch: Launch, tmp_path: Path) -> None:
    settings = tmp_path / "user" / ".qwen" / "settings.json"
    settings.parent.mkdir()
    other = {"id": "other", "baseUrl": "https://example.org"}
    before = json.dumps({"theme": "dark", "modelProviders": {"openai": [other]}})
    settings.write_text(before)
    for _ in range(2):  # the second time changes nothing
        code, out, err = ended(launch("qwen", "--save", "--context", "32768"))
        assert code == 0 and "agent serve --model" in out, err
    saved = json.loads(settings.read_text())
    assert saved["theme"] == "dark" and saved["modelProviders"]["openai"][0] == other
    (ours,) = saved["modelProviders"]["openai"][1:]
    assert ours["baseUrl"] == "http://127.0.0.1:8080/v1"
    assert ours["generationConfig"]["contextWindowSize"] == 32768
    assert settings.with_name("settings.json.before-agent").read_text() == before
    settings.write_text("{ // a comment\n}")
    code, _, err = ended(launch("qwen", "--save"))
    assert code == 2 and "is not plain JSON, so nothing was changed" in err
    assert settings.read_text() == "{ // a comment\n}"


def test_save_keeps_comments_of_toml(launch: Launch, tmp_path: Path) -> None:
    config = tmp_path / "user" / ".vibe" / "config.toml"
    config.parent.mkdir()
    config.write_text('theme = "x" # mine\n\n[[providers]]\nname = "other"\n')
    assert ended(launch("vibe", "--save"))[0] == 0
    text = config.read_text()
    assert 'theme = "x" # mine\n' in text
    assert [each["name"] for each in tomllib.loads(text)["providers"]] == ["other", "agent"]


def test_client_without_a_file_cannot_be_saved(launch: Launch) -> None:
    code, _, err = ended(launch("copilot", "--save"))
    assert code == 2 and "GitHub Copilot CLI has no file for this" in err
