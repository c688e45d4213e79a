"""Which runs of the suite ``make test-stress`` makes."""

from tests.stress import plan_runs


def test_runs_cover_processes_orders_load_and_user() -> None:
    runs = plan_runs(quiet=5, busy=3, seed=7, user="tester")
    quiet, busy = ([run for run in runs if run.busy is kind] for kind in (False, True))
    assert (len(quiet), len(busy)) == (5, 3)
    assert {run.processes for run in quiet} == {1, 2, 4}
    assert len({run.order for run in quiet if run.order is not None}) == 3
    for kind in (quiet, busy):
        assert [run.user for run in kind].count("tester") == 1
        assert any(run.order is None and run.user is None for run in kind)
    assert all(run.user is None for run in plan_runs(5, 3, 7, None))
