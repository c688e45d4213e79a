"""What commands reach: nothing, their own ports, or hosts that they name and that are allowed."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config.settings import parse_settings
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.errors import UserError
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.commands import Commands
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.turns import FINAL, read_events, write_script
from tools.audit import AuditLog
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import ExtraPermission
from tools.config.servers import ServerConfig
from tools.factory import ToolboxOptions, build_toolbox
from tools.policy.approvals import Policy
from tools.policy.safety import safety_report
from tools.policy.taint import Exposure
from tools.sandbox import isolation
from tools.sandbox.isolation import NETWORK_ISOLATION, Isolation, NetworkAccess
from tools.types import Answer, Tool

READ = Exposure.of([(Tool("files", "read", "", {}), False)], ())
"""A conversation that has read something."""
FETCH = "import urllib.request as r; print(r.urlopen('{}').read().decode())"


@pytest.fixture
def site() -> Iterator[tuple[str, list[str]]]:
    """A site of this machine: its host and port, and the paths that were asked for."""
    paths: list[str] = []

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"127.0.0.1:{serving.server_address[1]}", paths
        serving.shutdown()
        thread.join()


@pytest.fixture
def online(shell: Commands) -> Commands:
    if shell.isolation != NETWORK_ISOLATION:
        pytest.skip(f"{shell.isolation} grants no network")
    return shell


async def test_exec_network_needs_bubblewrap(shell: Commands) -> None:
    if shell.isolation == NETWORK_ISOLATION:
        assert "network" not in await shell("true", network=[])
        return
    for network in (["loopback"], ["wheels.example"]):
        assert "it needs bubblewrap" in await shell.fails("true", network=network)
    shell.builtin.network = NetworkAccess(loopback=True, hosts=("wheels.example",))
    assert await shell("true") == "[exit code 0]"
    assert "limited" in shell.builtin.access(["exec"]).run


async def test_exec_loopback_is_the_command_s_own(
    online: Commands, site: tuple[str, list[str]]
) -> None:
    (online.builtin.root / "page").write_text("served")
    serve = "python3 -u -m http.server 8765 --bind 127.0.0.1 2>&1 | (read -r line; cat) &"
    fetch = (
        "import time, urllib.request as r\n"
        "for n in range(600):\n"
        "    try: print(r.urlopen('http://localhost:8765/page').read().decode()); break\n"
        "    except OSError: time.sleep(0.1)\n"
    )
    text = await online(f'{serve}\npython3 -c "{fetch}"', network=["loopback"])
    assert "served" in text
    code = FETCH.format(f"http://{site[0]}/")
    assert "Connection refused" in await online(f'python3 -c "{code}"', network=["loopback"])
    assert "not permitted" in await online(f'python3 -c "{code}"') and site[1] == []
    online.builtin.network = NetworkAccess(loopback=True)
    assert "Connection refused" in await online(f'python3 -c "{code}"')


async def test_exec_reaches_named_hosts_only(
    online: Commands, site: tuple[str, list[str]], tmp_path: Path
) -> None:
    host, paths = site
    online.builtin.audit = AuditLog(tmp_path / "audit")
    proxied = f'no_proxy= NO_PROXY= python3 -c "{FETCH.format(f"http://{host}/a")}"'
    other = f'python3 -c "{FETCH.format("http://evil.example/")}"'
    text = await online(f"{proxied}; {other}", network=[host])
    assert "hello" in text and paths == ["/a"]
    assert "[network: evil.example:80: it is not among the hosts" in text
    assert online.builtin.contacts == {
        host: "",
        "evil.example:80": "it is not among the hosts that this command may reach",
    }
    entries = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    logged = [(e["decision"], json.loads(e["arguments"])["host"]) for e in entries[:-1]]
    assert logged == [("allowed", host), ("refused", "evil.example:80")]
    report = online.builtin.access(["exec"]).reached
    assert report[0] == f"{host}, by commands" and "refused" in report[1]
    assert "Network is unreachable" in await online(
        "env -u http_proxy -u HTTP_PROXY python3 -c "
        "\"import socket; socket.create_connection(('203.0.113.1', 80))\"",
        network=[host],
    )
    assert "is not a host" in await online.fails("true", network=["http://x/"])
    assert "may name 20 hosts" in await online.fails("true", network=["a.b"] * 21)


async def test_exec_variables_name_the_proxy(online: Commands) -> None:
    text = await online("env", network=["wheels.example"])
    address = next(line for line in text.splitlines() if line.startswith("HTTP_PROXY="))[11:]
    assert address.startswith("http://127.0.0.1:")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert f"{name}={address}" in text and f"{name.lower()}={address}" in text
    assert "NO_PROXY=localhost" in text and "no_proxy=localhost" in text
    assert "PROXY" not in await online("env")


async def test_exec_certificates_of_the_person_are_read(
    shell: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.pem").write_text("a certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
    monkeypatch.setenv("PIP_CERT", str(tmp_path))
    assert "a certificate" in await shell('cat "$SSL_CERT_FILE"')
    assert "PIP_CERT" not in await shell("env")


def decide(
    builtin: ShellServer, policy: Policy, exposure: Exposure, line: str, *network: str
) -> list[tuple[str, str, tuple[str, ...] | None]]:
    """What the policy says of each host that a command names."""
    config, arguments = ServerConfig("shell", builtin=builtin), {"cmd": ["bash", "-c", line]}
    extras: list[ExtraPermission] = builtin.extra_permissions(
        "exec", {**arguments, "network": list(network)}
    )
    verdicts = (policy.decide_extra(builtin.tools[0], config, e, exposure) for e in extras)
    return [(v.decision, v.reason, v.rules) for v in verdicts]


def test_network_is_decided_by_host_and_command(tmp_path: Path) -> None:
    settings = NetworkAccess(hosts=("*.example.org", "wheels.example"))
    shell = ShellServer(
        tmp_path, isolation=Isolation(NETWORK_ISOLATION, "", True), network=settings
    )
    nothing, policy = Exposure(), Policy()
    install = "pip install six && ls"
    rules = ("reach a.b by pip install six", "reach a.b by ls …")
    asks = [("ask", "this command may reach a.b", rules)]
    assert decide(shell, policy, nothing, install, "a.b") == asks
    assert decide(shell, Policy(["shell", "all"]), nothing, install, "a.b") == asks
    assert decide(shell, Policy(["shell.network"]), READ, install, "a.b")[0][0] == "allow"
    assert (
        decide(shell, policy, nothing, install, "wheels.example", "x.example.org", "a.b")[:2]
        == [("allow", "the settings allow it", None)] * 2
    )
    assert decide(shell, policy, nothing, "pip -h", "wheels.example:22")[0][0] == "ask"
    ((decision, reason, leak_rules),) = decide(shell, policy, READ, "ls", "wheels.example")
    assert decision == "ask" and "could send off" in reason and "files.read" in reason
    assert leak_rules == ("reach wheels.example by ls …",)
    own = Exposure.of([(shell.tools[0], False)], ())
    assert decide(shell, policy, own, "ls", "wheels.example")[0][0] == "ask", (
        "commands read files too"
    )
    named = Exposure.of([(Tool("files", "read", "", {}), False)], ["see https://wheels.example/x"])
    assert decide(shell, policy, named, "ls", "wheels.example")[0][0] == "allow"
    assert decide(shell, policy, READ, "loopback", "loopback")[0][2] == ("reach loopback",)
    policy.allow_rule("reach a.b by ls …")
    assert decide(shell, policy, READ, install, "a.b")[0][2] == rules[:1]
    assert decide(shell, policy, READ, "ls -l", "a.b")[0][0] == "allow"
    assert decide(shell, policy, READ, "eval x", "a.b")[0][2] == ("reach a.b",)
    policy.allow_rule("reach *.a.b")
    for line in (install, "eval x"):
        decisions = [d for d, *_ in decide(shell, policy, READ, line, "c.a.b", "c.a.b:22", "a.a")]
        assert decisions == ["allow", "ask", "ask"], line


def call(line: str, **more: Any) -> dict[str, str]:
    arguments = json.dumps({"cmd": ["bash", "-c", line], **more})
    return {
        "markup": f"<|channel|>commentary to=container.exec <|constrain|>json<|message|>{arguments}"
        "<|call|>"
    }


async def test_turn_one_question_for_hosts_and_command(
    make_runtime: MakeRuntime, tmp_path: Path, site: tuple[str, list[str]]
) -> None:
    if isolation.best_isolation().name != NETWORK_ISOLATION:
        pytest.skip("no network here")
    host, paths = site
    line = f'no_proxy= python3 -c "{FETCH.format(f"http://{host}/")}"'
    script = write_script(
        tmp_path / "s.jsonl", *[call(line, network=[host])] * 2, {"markup": FINAL}
    )
    runtime = await make_runtime(script, tools="shell", root=tmp_path)

    async def run(answer: Answer | None) -> tuple[list[Any], list[dict[str, Any]]]:
        async def approve(tool: Tool, arguments: str) -> Answer:
            assert answer
            return answer

        options = TurnOptions(approver=approve if answer else None)
        turn = Turn(runtime, Conversation("c"), [User("go")], options).start()
        events = await read_events(turn)
        items = [item for item in check(events)["output"] if item["type"] == "mcp_call"]
        return items, [e for e in events if e["type"] == "agent.approval.requested"]

    (refused, _), _ = await run(None)
    assert "--approve shell.exec,shell.network" in refused["error"]["message"] and not paths
    calls, questions = await run(Answer("once"))
    assert [f"may reach {host}" in question["reason"] for question in questions] == [True, True]
    assert "could send off" in questions[1]["reason"], "the first command may have read anything"
    assert all("hello" in item["output"] for item in calls) and len(paths) == 2


async def test_safety_names_what_commands_reach(tmp_path: Path) -> None:
    network = NetworkAccess(loopback=True, hosts=("wheels.example",))
    toolbox = build_toolbox(ToolboxOptions(tools="shell", root=tmp_path, network=network))
    report = safety_report(toolbox.host, toolbox.policy)
    if isolation.best_isolation().name == NETWORK_ISOLATION:
        assert report["Can reach"] == ["wheels.example, by commands; other hosts after a question"]
        assert "ports of its own" in report["Can run"][0]
    assert "Reached so far" not in report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("network = 1", "network must be a table"),
        ("[network]\nhost = []", "network has no setting named host"),
        ("[network]\nloopback = 1", "network.loopback must be true or false, not 1"),
        ('[network]\nhosts = "a.b"', "network.hosts must be a list"),
        ('[network]\nhosts = ["*"]', "'*' is not a host such as"),
    ],
)
def test_settings_wrong_network_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UserError, match=r"config\.toml") as caught:
        parse_settings(Path("config.toml"), text)
    assert message in str(caught.value)
    good = parse_settings(
        Path("c"), '[network]\nloopback = true\nhosts = ["Wheels.example", "a.b:22"]'
    )
    assert good.network == NetworkAccess(True, ("wheels.example", "a.b:22"))
