"""A token of a plain request passes few functions of this program on its way to a line of JSON."""

import io
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from agent.cli.render import JsonLinesRenderer
from agent.cli.run import OutputThread
from agent.config.paths import Paths
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.llama.token_stream import TokenStream
from agent.engine.protocol import Sampling
from agent.models import resolve
from agent.turn.decoder import GenerationDecoder
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from agent.turn.output import MessageWriter
from tests.support.program import ROOT
from tests.support.runtimes import MakeRuntime

MOST_FUNCTIONS = 40
OURS = tuple(str(ROOT / package) for package in ("agent", "tui", "tools"))


class Calls:
    """The functions of this program that all threads enter, in order."""

    def __init__(self) -> None:
        self.entered: list[CodeType] = []

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.entered.append(frame.f_code)

    def within_message(self) -> list[CodeType]:
        """What was entered from the first token of the answer's text to the last one."""
        opened = self._last(MessageWriter.__init__)
        closed = self._last(MessageWriter.close)
        deltas = [
            at for at in range(opened, closed) if self.entered[at] is MessageWriter.delta.__code__
        ]
        return self.entered[deltas[4] : deltas[-4]]

    def _last(self, function: Callable[..., Any]) -> int:
        code = function.__code__
        return max(at for at, entered in enumerate(self.entered) if entered is code)


async def test_token_passes_few_functions(
    make_runtime: MakeRuntime, tmp_path: Path, model_cache: Path
) -> None:
    paths = Paths(tmp_path / "config", model_cache, tmp_path / "state")
    calls, options = Calls(), TurnOptions(sampling=Sampling(seed=1))
    # The engine's thread starts with the runtime.
    threading.setprofile(calls.profile)
    try:
        # A plain request: the embedded model's hedges want log probabilities.
        model = replace(resolve.resolve_model("tiny", paths), hedge_below=0.0)
        runtime = await make_runtime(model=model)
        for _ in range(2):  # in the first turn the texts of ids become known
            prompt = [User("Tell me a long story about a dog.")]
            turn = Turn(runtime, Conversation("conv_1"), prompt, options).start()
            lines = io.StringIO()
            calls.entered.clear()
            sys.setprofile(calls.profile)
            await OutputThread(JsonLinesRenderer(lines)).follow(turn.log)
            sys.setprofile(None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert '"type":"response.completed"' in lines.getvalue()
    entered = calls.within_message()
    names = sorted({code.co_qualname for code in entered})
    assert TokenStream.put_token.__code__ in entered, "the engine's thread is not seen"
    assert GenerationDecoder.feed.__code__ in entered and "JsonLinesRenderer.show" in names
    assert len(names) <= MOST_FUNCTIONS, names
