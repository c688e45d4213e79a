"""Loads the fixtures of ``tests/support`` for every test."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import zlib
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from _pytest._code.code import ExceptionRepr
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.support import forks

# In the background of a script pytest ignores Ctrl-C, and under nohup the end of the terminal. So would
# every program that it starts, but for a handler: it is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# Where processes share the cores, llama.cpp's threads wait for each other: two need 2.7 times the CPU
# time of one, and are no faster.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_THREAD_LIMIT", "1")

# Programs are started with their byte code, as people start them; compiling takes a third of a start.
# Without it pytest would also rewrite the assertions of all test modules in each run, for 10 seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No example is too slow on a busy machine; more of them with `--hypothesis-profile=more`.
for profile, examples in {"bounded": 60, "more": 5_000}.items():
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("bounded")

# Hypothesis would parse all of our modules, for constants to try: seven seconds in each process.
providers._get_local_constants = lambda: providers._local_constants

collect_ignore = ["clients"]  # they run in an environment of their own: make test-clients
PLUGINS = [
    "tests.support.program",
    "tests.support.runtimes",
    "tests.support.turns",
    "tests.support.engines",
    "tests.support.endpoint",
    "tests.support.hosts",
    "tests.support.commands",
    "tests.support.model_hub",
    "tests.support.package_index",
    "tests.support.oauth",
    "tests.support.quiet_loop",
    "tests.support.shared_styles",
]
LONG_FILES = (
    "engine/remote/test_generation.py", "terminal/test_screen.py", "e2e/test_mcp.py",
    "e2e/test_servers.py", "e2e/test_models.py", "load/test_replicas.py", "load/test_faults.py",
    "e2e/test_run.py", "attack/test_attack.py", "tui/test_snapshots.py", "tui/test_pictures.py",
    "turn/test_token_choices.py", "mcp/test_hostile_servers.py", "llama/test_disk_cache.py",
    "builtin/test_shell_protection.py", "builtin/test_shell.py", "runtime/test_sharing.py",
    "load/test_load.py", "controllers/test_served_tabs.py", "e2e/test_commands.py",
)  # fmt: skip
"""Those of half a minute and more. The two that start vLLM are apart: it needs both cores."""
SLOW = (
    "agent/acp/test_serve.py", "agent/engine/llama/", "agent/engine/remote/test_generation.py",
    "agent/formats/harmony/test_encoding.py", "agent/formats/harmony/test_reference.py",
    "agent/models/test_download.py", "agent/models/test_hub.py", "agent/observability/",
    "agent/runtime/", "agent/server/test_batches.py", "agent/server/test_chat_fields.py",
    "agent/server/test_client_mcp.py", "agent/server/test_completions.py",
    "agent/server/test_constraints.py", "agent/server/test_fuzz.py",
    "agent/server/test_hosted_tools.py", "agent/server/test_mcp_server.py",
    "agent/server/test_openapi_answers.py", "agent/server/test_openapi_types.py",
    "agent/server/test_request_fields.py", "agent/server/test_routes_compaction.py",
    "agent/server/test_sampling.py", "agent/server/test_serve.py",
    "agent/server/test_tool_selection.py", "agent/store/test_recorder.py",
    "agent/store/test_responses.py", "agent/tiny/", "agent/turn/test_approval.py",
    "agent/turn/test_further_calls.py", "agent/turn/test_hedge.py",
    "agent/turn/test_long_results.py", "agent/turn/test_token_choices.py",
    "agent/turn/test_token_probabilities.py", "agent/turn/test_written_generations.py", "attack/",
    "e2e/", "load/", "test_ci.py", "test_docs.py", "test_gpu.py", "test_install.py",
    "test_layers.py", "test_names.py", "test_programs.py", "test_texts.py", "tools/builtin/",
    "tools/mcp/test_client_requests.py", "tools/mcp/test_host.py",
    "tools/mcp/test_hostile_servers.py", "tools/mcp/test_http.py", "tools/mcp/test_negotiation.py",
    "tools/mcp/test_real_servers.py", "tools/mcp/test_sandboxed.py", "tools/policy/test_safety.py",
    "tools/policy/test_taint.py", "tools/test_folder_limits.py", "tui/commands/",
    "tui/controllers/", "tui/markdown/test_streaming.py", "tui/screens/", "tui/terminal/",
    "tui/test_app.py", "tui/test_guarded.py", "tui/test_pictures.py", "tui/test_snapshots.py",
    "tui/test_theme.py", "tui/test_wide.py", "tui/widgets/",
)  # fmt: skip
"""Files and folders whose tests take most of the CPU time: `make test-fast` leaves them
out, as it does tests that are marked so one by one."""
FAST = ("e2e/test_seeds.py", "tools/builtin/test_files.py")
"""What stays of these."""
TESTS = Path(__file__).parent
GC_THRESHOLD = 50000
"""Objects between two collections of garbage: with Python's 700, parsing all modules takes four times
as long."""
ALARM_SECONDS = 20
"""Seconds from one alarm of a test that takes too long to the next."""


SAMPLED = {
    "tests/agent/acp/": 4,
    "tests/agent/engine/llama/test_sampler.py": 3,
    "tests/agent/formats/families/": 7,
    "tests/agent/formats/harmony/test_parser.py::test_parse_repeated": 6,
    "tests/agent/formats/markup/test_call_constraints.py": 5,
    "tests/agent/formats/markup/test_chat_template.py::test_real_template": 7,
    "tests/agent/formats/markup/test_composition.py": 6,
    "tests/agent/formats/markup/test_dialects.py::test_parse_repeated": 6,
    "tests/agent/formats/test_truncated_calls.py": 4,
    "tests/agent/server/test_openapi": 3,
    "tests/agent/tiny/": 4,
    "tests/attack/": 6,
    "tests/e2e/test_commands.py::test_stdio_closed": 3,
    "tests/load/": 2,
    "tests/tools/builtin/test_shell": 2,
    "tests/tools/builtin/test_shell_projects.py": 2,
    "tests/tools/mcp/test_http.py::test_http_transports": 3,
    "tests/tools/mcp/test_sandboxed.py": 2,
    "tests/tui/markdown/test_streaming.py": 3,
    "tests/tui/test_app.py::test_search_finds": 4,
    "tests/tui/terminal/test_screen.py": 3,
    "tests/tui/test_snapshots.py": 6,
    "tests/tui/test_theme.py": 5,
    "tests/tui/widgets/test_approval_card.py": 4,
}
"""Beginnings of the names of tests with many cases that take long: `make test` runs one in this many of
each test's cases, and `make test-all` all. So it is with tests that are marked ``sampled(n)``."""


def mark_long_cases(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that `make test` leaves out. Which stay depends on the test's name, so that each
    isolation and each family stays in some tests."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name != item.nodeid:
            cases.setdefault(name, []).append(item)
    for name, of_test in cases.items():
        marker = of_test[0].get_closest_marker("sampled")
        steps = [n for begin, n in SAMPLED.items() if name.startswith(begin)]
        step = min(len(of_test), marker.args[0] if marker else min(steps, default=1))
        for number, item in enumerate(of_test):
            if number % step != zlib.crc32(name.encode()) % step:
                item.add_marker("long")


def is_slow(path: Path) -> bool:
    """Return whether `make test-fast` leaves out the whole file."""
    name = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
    return name.startswith(SLOW) and not name.startswith(FAST)


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, but not in the process that only hands out the tests of `make test`."""
    if config.getoption("dist", "no") == "no" or config.option.collectonly:
        for name in PLUGINS:
            config.pluginmanager.import_plugin(name)
    else:
        forks.share_origins()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file that would not run."""
    fast = config.option.markexpr == "not slow" and collection_path.suffix == ".py"
    return True if fast and is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first: `make test` gives a file to one process, and waits for none at the end."""

    def file_order(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next(
            (n for n, name in enumerate(LONG_FILES) if path.endswith(name)), len(LONG_FILES)
        )

    items.sort(key=file_order)
    mark_long_cases(items)
    for item in items:
        if is_slow(item.path) or item.get_closest_marker("long"):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from the test modules: it would visit them again and again."""
    gc.disable()
    done = yield
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
    return done


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    """Repeat the alarm of a test that takes too long: what it raises in a callback, asyncio keeps."""
    done = yield
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if left:
        signal.setitimer(signal.ITIMER_REAL, left, ALARM_SECONDS)
    return done


def pytest_internalerror(excrepr: ExceptionRepr) -> None:
    """Say at the very end what failed in pytest first, where logs are cut to their last lines."""
    atexit.register(print, f"The first error within pytest:\n{excrepr}"[-4000:])
