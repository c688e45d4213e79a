"""The files in packaging/ are valid, and say the same as pyproject.toml."""

import plistlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from packaging.requirements import Requirement

from agent.server.http.access import is_loopback
from tests.support.program import ROOT

PACKAGING = ROOT / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def checker(name: str) -> str:
    """The path of a program that checks files; the test is skipped where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def served(command: str) -> bool:
    """Whether a command line starts `agent serve`."""
    return bool(re.search(r"\bagent serve\b", command))


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (["hadolint"], PACKAGING / "container" / "Dockerfile"),
        (["shellcheck"], ROOT / "install.sh"),
        (["ruby", "-wc"], PACKAGING / "homebrew" / f"{PROJECT['name']}.rb"),
    ],
)
def test_file_has_no_lint(command: list[str], path: Path) -> None:
    command[0] = checker(command[0])
    done = subprocess.run([*command, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout in ("", "Syntax OK\n"), done.stdout + done.stderr


def test_dockerfile_copies_what_the_wheel_needs_and_runs_as_nobody_special() -> None:
    folder = PACKAGING / "container"
    copied = (folder / "Dockerfile.dockerignore").read_text().splitlines()
    sources = {line[1:] for line in copied if line.startswith("!")}
    assert sources >= {"agent", "tools", "tui", "packaging/wheel", "models.toml", "docs/agent.1"}
    assert all((ROOT / path).exists() for path in sources)
    last_stage = (folder / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d*$", last_stage, re.MULTILINE)
    assert "HEALTHCHECK" in last_stage and "VOLUME /data" in last_stage


def test_compose_files_name_what_is_there() -> None:
    folder = PACKAGING / "container"
    service: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())
    agent = service["services"]["agent"]
    context = (folder / agent["build"]["context"]).resolve()
    assert context == ROOT and (context / agent["build"]["dockerfile"]).is_file()
    assert agent["command"][0] == "serve" and "data:/data" in agent["volumes"]
    assert all(port.startswith("127.0.0.1:") for port in agent["ports"])
    cuda = yaml.safe_load((folder / "compose.cuda.yaml").read_text())
    arguments = set(cuda["services"]["agent"]["build"]["args"])
    dockerfile = (folder / "Dockerfile").read_text()
    assert arguments <= set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE))


@pytest.mark.parametrize("name", ["agent-serve.service", "agent-serve.user.service"])
def test_systemd_unit_is_valid(name: str, tmp_path: Path) -> None:
    text = (PACKAGING / "systemd" / name).read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert served(line)
    unit = tmp_path / name
    unit.write_text(text.replace(line, "/bin/true"))  # it has to be there
    done = subprocess.run(
        [checker("systemd-analyze"), "verify", "--man=no", unit], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_launchd_agent_is_valid() -> None:
    path = PACKAGING / "launchd" / "agent-local.serve.plist"
    agent = plistlib.loads(path.read_bytes())
    assert agent["Label"] == path.stem and served(agent["ProgramArguments"][-1])


def test_conda_recipe_has_the_project_and_its_dependencies() -> None:
    recipe = yaml.safe_load((PACKAGING / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["version"]
    assert recipe["package"]["name"] == PROJECT["name"]
    (command,) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(command)]
    names = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["browser"]
    needs = [need for need in map(Requirement, names) if need.marker is None]
    wanted = {(need.name, need.specifier) for need in needs}
    run = recipe["requirements"]["run"]
    found = [
        Requirement(line.replace(" ", "", 1)) for line in run if not line.startswith("python ")
    ]
    assert {(need.name, need.specifier) for need in found} == wanted


def test_conda_recipe_can_be_rendered() -> None:
    reason = "py-rattler-build is not installed"
    rattler_build = pytest.importorskip("rattler_build", reason=reason)
    recipe = rattler_build.Stage0Recipe.from_file(str(PACKAGING / "conda" / "recipe.yaml"))
    (rendered,) = recipe.render()
    assert PROJECT["name"] in str(rendered.recipe.to_dict()["package"]["name"])


def test_formula_has_the_project() -> None:
    text = (PACKAGING / "homebrew" / f"{PROJECT['name']}.rb").read_text()
    assert f"agent_local-{PROJECT['version']}.tar.gz" in text
    assert f'license "{PROJECT["license"]}"' in text


@pytest.mark.parametrize(
    "name, line",
    [
        ("nginx.conf", r"proxy_set_header Host (\S+);"),
        ("Caddyfile", r"reverse_proxy (\S+) \{[^}]*header_up Host \{upstream_hostport\}"),
    ],
)
def test_proxy_sends_a_host_that_the_server_answers_to(name: str, line: str) -> None:
    (host,) = re.findall(line, (PACKAGING / "proxy" / name).read_text())
    assert is_loopback(urlsplit(f"//{host}").hostname or "")
