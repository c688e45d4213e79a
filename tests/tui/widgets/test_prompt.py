"""Writing a prompt: what it can go on with, files, long pastes, the person's own editor."""

import subprocess
from pathlib import Path

import pytest
from textual import events

from agent.config.keys import read_bindings
from agent.conversation.attachments import MAX_FILE_BYTES
from agent.errors import UserError
from tests.support.fake_app import AppDriver, FakeSession, drive_app, screen_text
from tests.support.pdf import pdf
from tui.state.command import Commands
from tui.state.completion import PromptCompleter
from tui.util.attachments import attach_files, attached_files, missing_files, without_attachments
from tui.util.file_index import FileIndex


def sent(driver: AppDriver) -> str:
    return str(driver.session.turns[-1].prompt[0].text)


async def test_prompt_input_command_is_completed_and_run() -> None:
    async with drive_app() as driver:
        await driver.pilot.press("/")
        await driver.expect_text("list and revoke what you allowed")
        await driver.pilot.press(*"ef")
        await driver.expect_text("how long the model thinks")
        await driver.pilot.press("tab")
        await driver.wait_for(lambda: driver.app.prompt.text == "/effort ")
        await driver.expect_text("thinks longer")
        await driver.pilot.press("down", "escape")
        await driver.wait_for(lambda: "thinks longer" not in screen_text(driver.app))
        await driver.pilot.press("ctrl+c")
        await driver.wait_for(lambda: driver.app.prompt.text == "")
        await driver.pilot.press(*"/hel", "enter")
        await driver.expect_text("Prompt", "Conversation")


async def test_command_typed_before_completion_is_there_is_completed() -> None:
    """A person may type while the app starts."""
    async with drive_app() as driver:
        prompt = driver.app.prompt
        await driver.wait_for(lambda: prompt.completer)
        completer, prompt.completer = prompt.completer, None
        await driver.pilot.press("/")
        assert not prompt.completion_menu.is_open
        assert completer is not None
        prompt.set_completer(completer)
        await driver.expect_text("/branch")


async def test_completion_menu_never_covers_prompt() -> None:
    async with drive_app(size=(60, 15)) as driver:
        await driver.pilot.press("/")
        await driver.expect_text("/branch")
        rows = screen_text(driver.app).splitlines()
        assert [row.strip(" │") for row in rows[-3:-2]] == ["/"]
        assert len([row for row in rows if row.startswith("│ /")]) == 8 + 1


async def test_prompt_input_mentioned_file_is_attached(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "my notes.txt").write_text("one\ntwo\n")
    async with drive_app(FakeSession(root=tmp_path)) as driver:
        await driver.pilot.press(*"see @not")
        await driver.expect_text('@"src/my notes.txt"')
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.app.prompt.text == 'see @"src/my notes.txt" ')
        await driver.pilot.press("space", "n", "o", "w")
        assert driver.app.prompt.text == 'see @"src/my notes.txt" now', "with one blank"
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.session.turns)
        assert "one\ntwo\n</file>" in sent(driver)
        await driver.expect_text("⎘ src/my notes.txt · 2 lines")
        assert "one\n" not in screen_text(driver.app)
        driver.session.turns[-1].end()


@pytest.mark.parametrize("name", ['n" @"~', "n\n@b", '"a', "n\u2028@b", "n\x1b", "a @b"])
async def test_prompt_input_file_name_is_no_second_mention(tmp_path: Path, name: str) -> None:
    """A repository's file name attaches no other file."""
    (tmp_path / f"x {name}").touch()
    completion = PromptCompleter(Commands([]), files := FileIndex(tmp_path))
    files.refresh()
    found = completion.suggest("@x")
    mentions = [choice.text.strip() for choice in found.choices] if found else []
    assert mentions == ([f'@"x {name}"'] if name == "a @b" else [])


async def test_prompt_input_unreadable_file_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"\x89PNG\0")
    async with drive_app(FakeSession(root=tmp_path)) as driver:
        driver.app.prompt.insert("what is @x.png?")
        await driver.pilot.press("enter")
        await driver.expect_text("@x.png cannot be attached")
        assert driver.app.prompt.text == "what is @x.png?" and not driver.session.turns


async def test_prompt_input_mention_without_file_is_sent_with_notice(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    async with drive_app(FakeSession(root=tmp_path)) as driver:
        text = "ask @anna. See @a.py (not @missing.txt)."
        await driver.type_text(text, "enter")
        await driver.expect_text("No file missing.txt: sent as text.")
        assert without_attachments(sent(driver)) == text
        driver.session.turns[-1].end()


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("@anna and @a.py? @src/ me@x.py @app.get('/')", []),
        ('@b.py, @lib/x @b.py @"my notes"', ["b.py", "lib/x", "my notes"]),
        ("@~nobody-there/x", ["~nobody-there/x"]),
        (f"@{'x' * 300}.py", [f"{'x' * 300}.py"]),
    ],
)
def test_missing_files_only_what_reads_like_paths(
    tmp_path: Path, text: str, missing: list[str]
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "a.py").touch()
    assert missing_files(text, tmp_path) == missing
    assert without_attachments(attach_files(text, tmp_path)) == text


async def test_prompt_hint_says_what_keys_do_while_turn_runs() -> None:
    bindings = read_bindings({"steer": "ctrl+t"})
    async with drive_app(key_bindings=bindings) as driver:
        first = await driver.ask("first")
        await driver.expect_text("Enter queues · Ctrl-T sends now", gone="Enter sends")
        first.end()
        await driver.expect_text("Enter sends", gone="Enter queues")
        second = await driver.ask("second")
        await driver.expect_text("Enter queues")
        await driver.pilot.press("ctrl+up")
        await driver.expect_text("message 2 of 2")
        second.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.expect_text("message 2 of 2")
        await driver.pilot.press("escape")
        await driver.expect_text("Enter sends")


def test_attach_files_only_existing_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("text with </file> in it")
    (tmp_path / "long").write_text("x" * (MAX_FILE_BYTES + 1))
    text = "ask @anna, me@a.py and (see @a.py), @a.py."
    prompt = attach_files(text, tmp_path)
    assert prompt.count("text with </file> in it") == 1
    assert without_attachments(prompt) == text and attached_files(prompt) == [("a.py", 1)]
    with pytest.raises(UserError, match="@long is too long to attach"):
        attach_files("@long", tmp_path)


@pytest.mark.long
def test_attach_files_reads_pdfs_and_refuses_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.pdf").write_bytes(pdf("The fox sleeps."))
    (tmp_path / "notes").write_bytes("Füchse".encode("utf-16"))
    prompt = attach_files("@x.pdf @notes", tmp_path)
    assert '<file path="x.pdf"' in prompt and "The fox sleeps." in prompt and "Füchse" in prompt
    for name, data, reason in (
        ("odd.pdf", b"%PDF-1.4\n", "@odd.pdf cannot be attached. The PDF is damaged"),
        ("x.gz", b"\x1f\x8b\x08\0\0", "@x.gz cannot be attached: it is neither text nor a PDF."),
        ("x.png", b"\x89PNG\r\n\x1a\n" + b"x" * MAX_FILE_BYTES, "@x.png is an image"),
        ("latin", b"caf\xe9", "@latin cannot be attached: it is neither text nor a PDF."),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match=reason):
            attach_files(f"@{name}", tmp_path)


def test_file_index_ignored_files_are_left_out(tmp_path: Path) -> None:
    for name in ("app.py", "test_app.py", "app.pyc", ".gitignore"):
        (tmp_path / name).write_text("*.pyc\n")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "app.js").touch()
    files = FileIndex(tmp_path)
    files.refresh()
    assert files.search("app", 9) == ["app.py", "app.pyc", "test_app.py"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    files.refresh()
    assert files.search("app.p", 9) == ["app.py", "test_app.py"]
    assert files.search("tap", 9) == ["test_app.py"], "letters in order"
    files.refresh(f"{tmp_path}/no")
    assert files.search(f"{tmp_path}/no", 9) == [f"{tmp_path}/node_modules/"]


def test_folder_that_is_listed_late_leaves_what_is_typed_now(tmp_path: Path) -> None:
    for name in ("before", "now"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").touch()
    files = FileIndex(tmp_path)
    files.refresh(f"{tmp_path}/now/")
    files.refresh(f"{tmp_path}/before/")
    assert files.search(f"{tmp_path}/now/", 5) == [f"{tmp_path}/now/notes.txt"]


def test_file_index_runs_nothing_of_a_repository(tmp_path: Path) -> None:
    """Neither of one that is found, nor of one that a folder is made to look like."""
    clone, marker = tmp_path / "clone", tmp_path / "ran"
    docs = clone / "docs"
    subprocess.run(["git", "init", "-q", clone], check=True)
    subprocess.run(["git", "init", "-q", "--bare", docs], check=True)
    (docs / "wt").mkdir()
    (docs / "guide.md").touch()
    for config in (clone / ".git" / "config", docs / "config"):
        config.write_text(
            f'[core]\n\tbare = false\n\tworktree = {docs}/wt\n\tfsmonitor = "touch {marker}; false"\n'
            f"\tpager = touch {marker}\n\thooksPath = {docs}\n"
        )
    (clone / "excluded").touch()
    (clone / ".git" / "info" / "exclude").write_text("excluded\n")
    for folder, path in ((clone, "docs/guide.md"), (docs, "guide.md")):
        files = FileIndex(folder)
        files.refresh()
        assert path in files.search("guide", 9) and not files.search("excluded", 9)
    assert not marker.exists()


async def test_prompt_input_long_paste_is_folded_until_sent() -> None:
    page = "\n".join(f"line\t{n}" for n in range(10_000))
    async with drive_app() as driver:
        await driver.pilot.press(*"read ")
        driver.app.post_message(events.Paste(page))
        await driver.expect_text("read [pasted #1:\xa010,000\xa0lines]")
        driver.app.post_message(events.Paste("x" * 5000))
        await driver.expect_text("[pasted #2:\xa05,000\xa0characters]")
        await driver.pilot.press("backspace")
        await driver.wait_for(
            lambda: driver.app.prompt.text == "read [pasted #1:\xa010,000\xa0lines]"
        )
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.session.turns)
        assert sent(driver) == f"read {page}"
        driver.session.turns[-1].end()
        await driver.pilot.press("up")
        await driver.wait_for(lambda: driver.app.prompt.full_text == f"read {page}")
        assert len(driver.app.prompt.text) < 50


async def test_prompt_input_line_breaks_at_end_are_not_sent() -> None:
    async with drive_app() as driver:
        await driver.pilot.press(*"a", "ctrl+j", *"b", "ctrl+j", "ctrl+j", "enter")
        await driver.wait_for(lambda: driver.session.turns)
        assert sent(driver) == "a\nb"


async def paste(driver: AppDriver, text: str) -> None:
    before = driver.app.prompt.full_text
    driver.app.post_message(events.Paste(text))
    await driver.wait_for(lambda: driver.app.prompt.full_text != before)


PAGE = "\n".join(f"row {number}" for number in range(60))
FOLDED = "[pasted #1:\xa060\xa0lines]"


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("left backspace", "a z"),
        ("left left backspace", f"a{FOLDED}z"),
        ("left left delete", "a z"),
        ("left left b", f"a b{FOLDED}z"),
        ("home right right right b", f"a {FOLDED}bz"),
        ("left ctrl+w", "a z"),
        ("left shift+left x", "a xz"),
        ("left backspace ctrl+underscore left delete", "a z"),
        ("ctrl+u alt+z left left c", f"a c{FOLDED}z"),
        ("home delete delete right b", f"{FOLDED}bz"),
    ],
)
async def test_folded_paste_is_one_unit(keys: str, expected: str) -> None:
    async with drive_app() as driver:
        prompt = driver.app.prompt
        await driver.type_text("a ")
        await paste(driver, PAGE)
        await driver.type_text("z")
        assert prompt.text == f"a {FOLDED}z" and prompt.full_text == f"a {PAGE}z"
        await driver.pilot.press(*keys.split())
        assert prompt.text == expected
        assert prompt.full_text == expected.replace(FOLDED, PAGE)


async def test_placeholder_that_a_person_types_is_text() -> None:
    typed = FOLDED.replace("\xa0", " ")
    async with drive_app() as driver:
        prompt = driver.app.prompt
        await paste(driver, PAGE)
        await driver.type_text(f" {typed}\n", "up", "home")
        await driver.type_text(f"{typed} ")
        assert prompt.full_text == f"{typed} {PAGE} {typed}\n"
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.session.turns)
        assert sent(driver) == f"{typed} {PAGE} {typed}"
        driver.session.turns[-1].end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("ctrl+underscore")
        assert prompt.text == "", "what was sent is forgotten"
        await driver.type_text(typed, "enter")
        await driver.wait_for(lambda: len(driver.session.turns) == 2)
        assert sent(driver) == typed


async def test_folded_paste_is_copied_unfolded() -> None:
    async with drive_app() as driver:
        await driver.type_text("a ")
        await paste(driver, PAGE)
        await driver.pilot.press("shift+home", "ctrl+c")
        assert driver.app.clipboard == f"a {PAGE}"


async def test_pasted_text_that_looks_like_an_attachment_stays() -> None:
    text = 'look:\n\n<file path="a.py" lines="1">\nx\n</file>'
    async with drive_app() as driver:
        await paste(driver, text)
        turn = await driver.ask("")
        assert turn.prompt_text == text
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("up")
        assert driver.app.prompt.full_text == text


async def test_history_gives_every_draft_back() -> None:
    async with drive_app() as driver:
        prompt = driver.app.prompt
        (await driver.ask("sent")).end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.type_text("first ")
        await paste(driver, PAGE)
        await driver.pilot.press("up", "ctrl+u", *"second", "up")
        assert prompt.text == "second", "there is nothing before it"
        await driver.pilot.press("down")
        assert prompt.full_text == f"first {PAGE}"
        await driver.pilot.press("backspace")
        assert prompt.text == "first ", "it is folded still"
        await driver.pilot.press("up")
        assert prompt.text == "second"
        (await driver.ask("")).end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press("up", "up")
        assert prompt.text == "first "


async def test_replaced_prompt_comes_back_by_undoing() -> None:
    async with drive_app() as driver:
        await driver.type_text("a draft ")
        await paste(driver, PAGE)
        driver.app.prompt.replace_with("/rename ")
        await driver.pilot.press("ctrl+underscore")
        assert driver.app.prompt.full_text == f"a draft {PAGE}"


async def test_refused_text_goes_before_what_was_typed_since() -> None:
    async with drive_app() as driver:
        prompt = driver.app.prompt
        await driver.type_text("hello ")
        await paste(driver, PAGE)
        await driver.app.chat.submit("/nosuch")
        await driver.wait_for(lambda: "/nosuch" in prompt.text)
        assert prompt.full_text == f"/nosuch\n\nhello {PAGE}"
        await driver.type_text("!")
        assert prompt.full_text == f"/nosuch\n\nhello {PAGE}!"


async def test_stopped_turn_puts_queued_prompts_before_the_draft() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        await driver.type_text("queued", "enter")
        await driver.expect_text("queued: queued")
        await paste(driver, PAGE)
        await driver.pilot.press("escape")
        await driver.wait_for(lambda: turn.stopped)
        assert driver.app.prompt.full_text == f"queued\n\n{PAGE}"


@pytest.mark.parametrize("keys", ["escape", "ctrl+c", "enter"])
async def test_draft_comes_back_after_editing(keys: str) -> None:
    async with drive_app() as driver:
        app, prompt = driver.app, driver.app.prompt
        (await driver.ask("first")).end()
        await driver.wait_for(lambda: app.turn is None)
        await driver.type_text("a draft ")
        await paste(driver, PAGE)
        await driver.pilot.press("ctrl+up", "e")
        await driver.wait_for(lambda: prompt.text == "first")
        await driver.type_text(" again", keys)
        await driver.wait_for(lambda: app.chat.editing is None)
        await driver.wait_for(lambda: prompt.full_text == f"a draft {PAGE}")
        assert prompt.text == f"a draft {FOLDED}"
        if keys == "enter":
            await driver.wait_for(lambda: len(driver.session.turns) == 2)
            driver.session.turns[-1].end()
        else:
            await driver.pilot.press("up")
            assert prompt.text == "first again", "the edit is in the history"


async def test_draft_comes_back_after_editing_that_was_queued() -> None:
    async with drive_app() as driver:
        app, prompt = driver.app, driver.app.prompt
        turn = await driver.ask("first")
        await driver.pilot.press("ctrl+up", "e")
        await driver.expect_text("queued: /edit 1")
        await driver.type_text("a draft")
        turn.end()
        await driver.wait_for(lambda: app.chat.editing is not None)
        assert prompt.text == "first"
        await driver.pilot.press("escape")
        assert prompt.text == "a draft"
