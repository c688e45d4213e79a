"""Texts that end before a sequence, however they are divided into pieces."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agent.turn.stop_sequences import StopSequences

LETTERS = st.text("ab\u00e9", max_size=12)


def fed(stop: StopSequences, pieces: Sequence[str]) -> list[str]:
    taken: list[str] = []
    for piece in pieces:
        taken += [one.text for one in stop.feed(piece)]
        if stop.cut_off is not None:
            return taken
    return taken + [one.text for one in stop.flush()]


def test_stop_sequence_begin_waits() -> None:
    stop = StopSequences(["END"])
    assert [piece.text for piece in stop.feed("It is. E")] == ["It is. "]
    assert "".join(piece.text for piece in stop.feed("very ")) == "Every "
    assert stop.feed("EN") == [] and stop.cut_off is None
    assert stop.feed("D and more") == [] and stop.cut_off == "END and more"


def test_stop_sequence_first_in_text_counts() -> None:
    stop = StopSequences(["later", "soon"])
    assert fed(stop, ["a soon b later"]) == ["a "]


def test_stop_sequences_piece_with_logprobs_is_not_divided() -> None:
    stop = StopSequences(["\n\n"])
    first, second = [{"token": "a\n"}], [{"token": "b"}]
    assert stop.feed("a\n", first) == []
    assert [(p.text, p.logprobs) for p in stop.feed("b", second)] == [("a\n", first), ("b", second)]


@given(st.lists(LETTERS, max_size=8), st.lists(LETTERS.filter(bool), min_size=1, max_size=4))
def test_stop_sequences_any_division_same_text(pieces: list[str], sequences: list[str]) -> None:
    text = "".join(pieces)
    ends = [at for sequence in sequences if (at := text.find(sequence)) >= 0]
    stop = StopSequences(sequences)
    if not ends:
        assert "".join(fed(stop, pieces)) == text and stop.cut_off is None
        return
    kept = "".join(fed(stop, pieces))
    assert len(kept) in ends, "of two the one that is complete first counts"
    assert text.startswith(kept) and not any(sequence in kept for sequence in sequences)
    assert stop.cut_off is not None and stop.cut_off.startswith(tuple(sequences))
