"""What models write as a recipient, and which tool they mean."""

import pytest

from agent.formats.recipients import TOOL_ALIASES, Recipients

TOOLS = Recipients(
    ["functions.files__read", "functions.get_weather", "functions.git__log", "functions.hg__log"]
    + ["python", "browser.search", "container.exec"],
    TOOL_ALIASES,
)


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("functions.get_weather", "functions.get_weather"),
        ("get_weather", "functions.get_weather"),
        ("mcp.get_weather", "functions.get_weather"),
        ("functions.python", "python"),
        ("mcp.python", "python"),
        ("files__read", "functions.files__read"),
        ("files.read", "functions.files__read"),
        ("mcp.files.read", "functions.files__read"),
        ("functions.files.read", "functions.files__read"),
        ("mcp.functions.files__read", "functions.files__read"),
        ("read", "functions.files__read"),
        ("functions.read", "functions.files__read"),
        ("search", "browser.search"),
        ("browser__search", "browser.search"),
        ("exec", "container.exec"),
        ("code_interpreter", "python"),
        ("python.run", "python"),
        ("web_search", "browser.search"),
        ("mcp.code_interpreter", "python"),
        ("code_interpreter.exec", "python"),
        ("mcp.code_interpreter.python", "python"),
        ("functions.code_interpreter__python", "python"),
        ("functions. get_weather", "functions.get_weather"),
        ("functions*get_weather", "functions.get_weather"),
        ("functions. files read", "functions.files__read"),
        ("functions.get-weather", None),
        ("functions.get_weather, functions.files__read", None),
        ("get_weather.commentary", "functions.get_weather"),
        ("functions.get_weather..commentary", "functions.get_weather"),
        ("functions.get_weather<|channel|>analysis", "functions.get_weather"),
        ("<|channel|>get_weather", "functions.get_weather"),
        ("nothing.commentary", None),
        ("<|channel|>", None),
        ("log", None),
        ("repo_browser.read", None),
        ("functions", None),
        ("", None),
        (".", None),
        ("code_interpreters", None),
    ],
)
def test_resolve_spelling_finds_declared_name(raw: str, meant: str | None) -> None:
    assert TOOLS.resolve(raw) == meant


def test_resolve_exact_name_beats_alias() -> None:
    tools = Recipients(["read", "functions.read", "python"], {"read": "python"})
    assert tools.resolve("read") == "read"
    assert tools.resolve("functions.read") == "functions.read"


def test_resolve_declared_name_like_a_channel() -> None:
    tools = Recipients(["functions.f", "functions.f.commentary"])
    assert tools.resolve("f.commentary") == "functions.f.commentary"


def test_resolve_alias_of_undeclared_tool_is_none() -> None:
    assert Recipients(["functions.f"], TOOL_ALIASES).resolve("code_interpreter") is None


def test_nearest_unknown_name_lists_similar() -> None:
    assert TOOLS.nearest("functions.get_wether")[0] == "functions.get_weather"
    assert "functions.files__read" in TOOLS.nearest("repo_browser.read")
    assert len(TOOLS.nearest("log")) <= 3
    shell = Recipients(["functions.files__search", "python", "container.exec"])
    for name in ("functions.bash", "run_terminal_cmd", "execute-command", "sh"):
        assert shell.nearest(name)[0] == "container.exec"
    assert len(TOOLS.nearest("zzz")) == 3, "none looks like it"
    assert Recipients([]).nearest("x") == []


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("functions.get-weather", "functions.get_weather"),
        ("functions.Get_Weather", "functions.get_weather"),
        ("getWeather", "functions.get_weather"),
        ("tools.get_weather", "functions.get_weather"),
        ("function.files-read", "functions.files__read"),
        ("multi_tool_use.get_weather", "functions.get_weather"),
        ("tools.Python", "python"),
        ("nothing", None),
        ("tools.", None),
        ("...", None),
    ],
)
def test_certain_recipient_resolves_by_its_letters(raw: str, meant: str | None) -> None:
    tools = Recipients([*TOOLS.declared, "functions.___"])
    assert tools.resolve_recipient(raw) == meant


def test_letters_of_two_tools_mean_neither() -> None:
    tools = Recipients(["functions.get_weather", "functions.getWeather"])
    assert tools.resolve_recipient("functions.GetWeather") is None
    assert tools.resolve_recipient("functions.getWeather") == "functions.getWeather"
