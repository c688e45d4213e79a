"""``agent`` with a model of another family, which is a file with the chat template ``TEMPLATE`` where
that is set. The prompts that a scripted engine reads are written to ``PROMPTS``, a JSON text a line."""

import json
import os
from pathlib import Path
from typing import Any

from agent.cli import main as commands
from agent.engine import scripted
from tests.support import random_qwen_gguf


class RecordingEngine(scripted.ScriptEngine):
    """A scripted engine that records its prompts."""

    def generate(self, request: Any) -> Any:
        if request.max_tokens != 0 and not request.auxiliary:
            encoder: Any = self._encode.__self__  # type: ignore[attr-defined]
            pieces = map(encoder._vocabulary.token_bytes, request.prompt)
            text = b"".join(piece or b"" for piece in pieces).decode()
            with Path(os.environ["PROMPTS"]).open("a") as prompts:
                prompts.write(json.dumps(text) + "\n")
        return super().generate(request)


scripted.ScriptEngine = RecordingEngine  # type: ignore[misc]
if template := os.environ.get("TEMPLATE"):
    specials, end = json.loads(os.environ["SPECIALS"]), os.environ["END"]
    random_qwen_gguf.write_model(
        Path(os.environ["GGUF"]),
        dict.fromkeys(specials, 4) | {end: 3},
        Path(template).read_text(),
        end=end,
    )
commands.main()
