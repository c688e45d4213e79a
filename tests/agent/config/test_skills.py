"""Skills: which are found, which are left out and why, and what the model reads of them."""

import json
import os
from pathlib import Path

import pytest

from agent.cli.trust import confirm_folder
from agent.config.launch import LaunchOptions
from agent.config.paths import user_paths
from agent.config.skills import MAX_FILE_BYTES, read_skills, skills_digest
from tests.agent.cli.test_trust import Terminal
from tests.support.program import RunAgent
from tests.support.scripts import final, raw_call
from tools.builtin.skills import MAX_LIST_CHARS, Skill, SkillsServer
from tools.builtin_server import ToolError
from tools.types import UNKNOWN_LABELS

EXAMPLES = {
    "data-analysis": "---\nname: data-analysis\ndescription: Analyse tables.\n---\nRead.",
    "pdf-processing": (
        "---\nname: pdf-processing\ndescription: Extract text and tables from PDF files, fill forms,"
        " merge documents.\nlicense: Apache-2.0\nmetadata:\n  author: example-org\n"
        '  version: "1.0"\n---\n\n# PDF\n\nSee `references/forms.md`.\n'
    ),
    "tools": (
        "---\nname: tools\ndescription: >\n  Folded\n  text: with a colon.\n"
        "compatibility: Needs git\nallowed-tools: Bash(git:*) Read\n---\n---\nA rule above.\n"
    ),
}
"""In the forms of the specification (https://agentskills.io/specification)."""


def write_skill(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the person's own skills."""
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "agent"))
    return tmp_path / "agent" / "config" / "skills"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The root of a repository."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path / "project"


def test_skills_of_the_specification_are_read_as_the_reference_reads_them(
    own: Path, tmp_path: Path
) -> None:
    reference = pytest.importorskip("skills_ref")
    for name, text in EXAMPLES.items():
        folder = write_skill(own / name, text)
        assert reference.validate(folder) == []
    skills, problems = read_skills(user_paths(), tmp_path)
    assert problems == [] and [skill.name for skill in skills] == [*EXAMPLES]
    for skill in skills:
        properties = reference.read_properties(skill.folder)
        assert (skill.name, skill.description) == (properties.name, properties.description)
    assert skills[1].text == "# PDF\n\nSee `references/forms.md`."
    assert skills[2].text == "---\nA rule above."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Just text.", "does not begin with front matter"),
        ("---\nname: a\n---\n", "has no description"),
        ("---\ndescription: b\n---\n", "has no name of letters"),
        ("---\nname: ../a\ndescription: b\n---\n", "has no name of letters"),
        ("---\nname: [a\n---\n", "has front matter that is not YAML"),
        ("---\n- a\n---\n", "has no description"),
        ("---\nname: a\ndescription: b\n---\n" + "x" * MAX_FILE_BYTES, "is longer than 64 KiB"),
        ("---\nname: a\ndescription: b\n---\n\0", "is not UTF-8 text"),
    ],
)
def test_skill_that_cannot_be_used_is_named(
    own: Path, tmp_path: Path, text: str, reason: str
) -> None:
    write_skill(own / "a", text)
    skills, (problem,) = read_skills(user_paths(), tmp_path)
    assert skills == [] and reason in problem


def test_project_skills_nearest_first_and_never_instead_of_own_ones(
    own: Path, project: Path
) -> None:
    text = "---\nname: {}\ndescription: {}\n---\n"
    write_skill(own / "mine", text.format("mine", "own"))
    write_skill(project / ".agents/skills/mine", text.format("mine", "theirs"))
    write_skill(project / ".claude/skills/far", text.format("far", "root"))
    write_skill(project / "sub/.agents/skills/far", text.format("far", "near"))
    (project / ".agents/skills/out").symlink_to(own / "mine")
    skills, problems = read_skills(user_paths(), project / "sub")
    assert {skill.name: skill.description for skill in skills} == {"mine": "own", "far": "near"}
    assert [problem for problem in problems if "leads out of its project" in problem] == problems
    assert len(problems) == 1
    before = skills_digest(skills)
    (project / "sub/.agents/skills/far/SKILL.md").write_text(text.format("far", "near") + "more")
    assert before and skills_digest(read_skills(user_paths(), project / "sub")[0]) != before


async def test_model_reads_a_skill_and_its_files_only(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "notes", "x")
    (folder / "scripts").mkdir()
    (folder / "scripts" / "a.py").write_text("print()")
    (tmp_path / "secret").write_text("s")
    (folder / "link").symlink_to(tmp_path / "secret")
    skill = Skill("notes", "Notes.\nAnd more", folder, "Do it.", own=True)
    server = SkillsServer([skill])
    (tool,) = server.tools
    assert "- notes: Notes. And more" in tool.description and not tool.labels
    read = server.call
    assert (
        await read("read", {"name": "notes"})
        == "Do it.\n\nFiles of this skill:\nlink\nscripts/a.py"
    )
    assert "print()" in str(await read("read", {"name": "notes", "file": "scripts/a.py"}))
    for arguments in (
        {"name": "x"},
        *({"name": "notes", "file": f} for f in ("../secret", "link")),
    ):
        with pytest.raises(ToolError):
            await read("read", arguments)
    theirs = [Skill(f"s{n}", "d" * 1000, folder, "", own=False) for n in range(100)]
    (tool,) = SkillsServer(theirs).tools
    assert len(tool.description) < MAX_LIST_CHARS + 300 and tool.labels == UNKNOWN_LABELS


@pytest.mark.parametrize("answer", ["y\n", "\n"])
def test_project_skills_are_offered_once_the_person_has_agreed(
    own: Path, project: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    from agent import bootstrap

    write_skill(project / ".agents/skills/far", "---\nname: far\ndescription: Go\x1b far\n---\nGo.")
    launch, paths = LaunchOptions(root=project), user_paths()
    assert bootstrap.trusted_skills(launch, paths) == []
    shown = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", shown)
    confirm_folder(launch)
    assert str(project / ".agents/skills/far") in shown.getvalue()
    assert "\x1b" not in shown.getvalue()
    names = [skill.name for skill in bootstrap.trusted_skills(launch, paths)]
    assert names == (["far"] if answer == "y\n" else [])
    (project / ".agents/skills/far/SKILL.md").write_text(
        "---\nname: far\ndescription: x\n---\nBad."
    )
    assert bootstrap.trusted_skills(launch, paths) == [], "changed ones need a new yes"


def test_commands_add_list_show_and_remove(agent: RunAgent, home: Path, tmp_path: Path) -> None:
    source = write_skill(tmp_path / "given", EXAMPLES["pdf-processing"])
    (source / "references").mkdir()
    (source / "references" / "forms.md").write_text("Forms.")
    assert "No skills yet" in agent("skills", "list").err
    assert agent("skills", "add", str(source)).code == 0
    assert agent("skills", "add", str(source)).code == 2
    (row,) = json.loads(agent("skills", "list", "--json").out)
    assert row["name"] == "pdf-processing" and row["offered"] is True
    shown = agent("skills", "show", "pdf-processing").out
    assert "# PDF" in shown and f"references{os.sep}forms.md" in shown
    assert agent("skills", "add", str(tmp_path)).err.startswith("agent: There is no SKILL.md in")
    assert agent("skills", "show", "nosuch").code == 2
    assert agent("skills", "remove", "pdf-processing").code == 0
    assert not (home / "config/skills/pdf-processing").exists()


def test_run_reads_a_skill(agent: RunAgent, home: Path, script: object) -> None:
    write_skill(
        home / "config/skills/notes", "---\nname: notes\ndescription: Write notes\n---\nBrief."
    )
    replies = raw_call("functions.skills__read", '{"name": "notes"}'), final("ok")
    done = agent("run", "go", "--json-events", "--engine", script(*replies))  # type: ignore[operator]
    (item,) = [
        event["item"] for event in done.events
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "mcp_call"
    ]  # fmt: skip
    assert (item["server_label"], item["output"], item["error"]) == ("skills", "Brief.", None)
