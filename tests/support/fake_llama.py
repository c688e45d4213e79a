"""A model whose logits depend on the tokens before them alone: no rounding, no kernels."""

from collections.abc import Callable, Sequence

import numpy as np

from agent.engine.llama.model import BatchSpan, DecodeOutcome, Logits


class FakeLlamaModel:
    """What `StepLoop` uses of a `LlamaModel`: each position's logits are made of the last two tokens,
    so the model repeats itself as text does."""

    sliding_window = 0
    can_save_ranges = True
    spare_sequence = 64

    def __init__(self, *, vocabulary_size: int = 12, context_length: int = 400) -> None:
        self.vocabulary_size, self.context_length = vocabulary_size, context_length
        self.ubatch = 64
        self.cells: dict[int, list[int]] = {}
        """The tokens of each sequence."""
        self.decoded_tokens: list[int] = []
        """Tokens of each batch."""
        self.on_decode: Callable[[], object] = lambda: None
        """Called before each batch."""
        self._rows: list[Logits] = []

    def decode(self, spans: Sequence[BatchSpan]) -> DecodeOutcome:
        self.on_decode()
        count = sum(len(span.ids) for span in spans)
        assert 0 < count <= self.ubatch
        if count + sum(map(len, self.cells.values())) > self.context_length:
            return "full"
        self._rows = []
        for seq_id, ids, start, outputs in spans:
            cells = self.cells.setdefault(seq_id, [])
            assert start == len(cells), "positions follow each other"
            for index, token in enumerate(ids):
                cells.append(token)
                if index >= len(ids) - outputs:
                    self._rows.append(self._logits(cells[-2:]))
        self.decoded_tokens.append(count)
        return "done"

    def _logits(self, last: list[int]) -> Logits:
        random = np.random.default_rng(last)
        return random.normal(0, 3, self.vocabulary_size).astype(np.float32)

    def logits(self, output: int = 0) -> Logits:
        return self._rows[output]

    def first_position(self, seq_id: int) -> int:
        return 0 if self.cells.get(seq_id) else -1

    def truncate(self, seq_id: int, count: int) -> bool:
        del self.cells.setdefault(seq_id, [])[count:]
        return True

    def copy_prefix(self, source: int, target: int, count: int) -> None:
        self.cells[target] = self.cells[source][:count]

    def clear(self) -> None:
        self.cells.clear()

    def synchronize(self) -> None:
        pass

    def clear_abort(self) -> None:
        pass
