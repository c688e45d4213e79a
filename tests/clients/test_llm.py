"""llm on the command line, with its model kept in its own file."""

from __future__ import annotations

import inspect
from pathlib import Path

from tests.clients.conftest import Run
from tests.clients.weather import AGAIN, OSLO, QUESTION, ROME, get_weather


def test_llm_answers_tools_and_turns(url: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- {{model_id: local, model_name: default, api_base: '{url}', responses: true,"
        " supports_tools: true}\n"
    )
    function = f"OSLO, ROME = {OSLO!r}, {ROME!r}\n{inspect.getsource(get_weather)}"

    def llm(*arguments: str) -> str:
        return run("llm", *arguments, LLM_USER_PATH=str(tmp_path))

    assert llm("-m", "local", "--no-stream", "hello").startswith("Hello")
    assert OSLO in llm("-m", "local", "--functions", function, QUESTION)
    assert ROME in llm("-c", "--functions", function, AGAIN)
