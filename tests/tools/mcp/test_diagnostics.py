"""Why a server cannot be used, in words."""

import sys

import pytest

from tests.support.hosts import MakeHost
from tools.config.servers import ServerConfig

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("end", "lines"), [("time.sleep(600)", range(35, 40)), ("sys.exit(1)", range(24, 40))]
)
async def test_describe_exit_quotes_last_lines_of_stderr(
    make_host: MakeHost, end: str, lines: range
) -> None:
    """The few last ones, or as many as a stack trace of one that ended may have."""
    code = (
        "import sys, time\n"
        "for number in range(40): print(f'{number}\\n\\n{number}', file=sys.stderr)\n"
        f"sys.stderr.flush()\n{end}"
    )
    host = make_host(
        ServerConfig("noisy", command=sys.executable, args=("-c", code), startup_timeout_sec=3.0)
    )
    await host.start()
    await host.wait_started()
    error = host.server_states()[0].error or ""
    assert error.endswith("; last on its stderr: " + "\n".join(map(str, lines)))
