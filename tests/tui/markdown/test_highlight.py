"""Tool-call arguments: formatted when they are complete, decoded while they stream."""

import json

import pytest

from tui.markdown.highlight import ArgumentStream, format_arguments, format_preview
from tui.util.format import INSET


def read(text: str, tool: str = "") -> str:
    return "".join(piece for piece, _ in format_arguments(text, tool))


def test_format_arguments_code_patch_and_json_are_styled() -> None:
    assert read('{"code":"a = 1\\nprint(a)\\n"}', "x · python") == "a = 1\nprint(a)"
    assert ("print", "name") in format_arguments('{"code":"print(1)"}', "code_interpreter · python")
    assert read('{"expression":"2+2"}') == '{"expression": "2+2"}'
    assert read('{"half') == '{"half'
    assert json.loads(read(json.dumps({"long": "x" * 80}))) == {"long": "x" * 80}
    assert "\x1b" not in read('{"code":"\\u001b[2J\\n"}')
    assert ("+new\n", "added") in format_arguments('{"input":"*** Begin Patch\\n+new\\n-old"}')


def test_format_arguments_multiline_string_is_quoted() -> None:
    edit = {"path": "a.py", "edits": [{"old": "def f():\n    pass\n", "new": "x"}], "dry": False}
    assert read(json.dumps(edit)) == (
        '{\n  "path": "a.py",\n  "edits": [\n    {\n      "old": \ndef f():\n    pass\n'
        '      "new": "x"\n    }\n  ],\n  "dry": false\n}'
    )
    runs = format_arguments(json.dumps(edit))
    assert ("def", "keyword" + INSET) in runs and ("f", "name" + INSET) in runs
    assert {style.endswith(INSET) for piece, style in runs if '"' in piece} == {False}
    assert read('{"a":"1\\n2","path":"x.unheard-of"}').splitlines()[1:4] == ['  "a": ', "1", "2"]
    assert "\x1b" not in read('{"\\u001b[2J":1,"b":"\\u001b[2J\\n\\u001b[2J"}')
    deep = '{"a":' * 900 + '"1\\n2"' + "}" * 900
    assert "1" in read(deep) and read("[" * 100_000) == "[" * 100_000


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_argument_stream_any_pieces_decode_code(step: int) -> None:
    code = 'print("a\\n")\n\t# é🙂 \\ "'
    for text, expected in (
        (json.dumps({"code": code}), code),
        (json.dumps({"code": code}, ensure_ascii=False, separators=(",", ":")), code),
        ('{"path": "a\\n"}', '{"path": "a\\n"}'),
    ):
        written = ArgumentStream()
        pieces = [written.feed(text[at : at + step]) for at in range(0, len(text), step)]
        assert "".join(pieces) == expected


def test_format_arguments_shell_command_is_a_command_line() -> None:
    name = "shell · exec"
    script = '{"cmd":["bash","-lc","echo \'a b\' |\\n  wc -c"]'
    assert read(script + "}", name) == "echo 'a b' |\n  wc -c"
    assert read(script + ',"timeout":5}', name) == "echo 'a b' |\n  wc -c\n{\"timeout\": 5}"
    assert read('{"cmd":["ls","a b"]}', name) == "ls 'a b'"
    assert read('{"cmd":["ls",1]}', name) == '{"cmd": ["ls", 1]}'
    assert read('{"cmd":["bash","-lc","ls"]}', "mine · run") == '{"cmd": ["bash", "-lc", "ls"]}'
    assert "\x1b" not in read('{"cmd":["bash","-lc","ls \\u001b[2J"]}', name)


def test_format_preview_command_is_highlighted_and_diff_is_styled() -> None:
    runs = format_preview("/home/ada$ for f in *; do cat $f; done", "shell · exec")
    assert runs[0] == ("/home/ada$ ", "faint") and ("for", "keyword") in runs
    assert ("+cost 5$ a\n", "added") in format_preview("--- a\n+cost 5$ a\n", "shell · exec")
