"""How long a turn waits for a server that starts, by what is seen of it; the time is made up."""

from collections.abc import Callable

import pytest

from tools.mcp import start_wait
from tools.mcp.start_wait import StartActivity, StartWait

STEP_SECONDS = 0.2


@pytest.fixture(autouse=True)
def own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the limits that the program has; in other tests they are longer."""
    monkeypatch.setattr(start_wait, "MAX_IDLE_SECONDS", 1.0)
    monkeypatch.setattr(start_wait, "MAX_UNPRODUCTIVE_SECONDS", 5.0)


def seconds_waited(activity: Callable[[int], StartActivity]) -> float:
    """Return how long a server is waited for; ``activity``: what it does at a step; at most 60 s."""
    wait = StartWait()
    for step in range(int(60 / STEP_SECONDS)):
        if wait.is_exhausted(activity(step), step * STEP_SECONDS):
            return step * STEP_SECONDS
    return 60.0


@pytest.mark.parametrize(
    ("activity", "seconds"),
    [
        (lambda step: StartActivity(0, 0), 1),
        (lambda step: StartActivity(0, step), 5),
        (lambda step: StartActivity(min(step, 15), step), 8),
        (lambda step: StartActivity(step // 20, step), 5),
        (lambda step: StartActivity(step // 2, step), 60),
        (lambda step: StartActivity(step), 60),
        (lambda step: StartActivity(0, step, answers=True), 60),
        (lambda step: StartActivity(0, 0, answers=True), 1),
    ],
    ids=[
        "nothing",
        "writes",
        "worked_then_writes",
        "writes_and_hardly_works",
        "works_half_of_the_time",
        "works",
        "answers",
        "answered_then_nothing",
    ],
)
def test_wait_is_longer_for_servers_that_work(
    activity: Callable[[int], StartActivity], seconds: float
) -> None:
    assert seconds <= seconds_waited(activity) <= seconds + 1


def test_wait_goes_on_while_this_process_has_no_processor() -> None:
    wait = StartWait()
    looks = [wait.is_exhausted(StartActivity(0, 0), now) for now in (0.0, 0.6, 30.0, 60.0)]
    assert looks == [False] * 4
