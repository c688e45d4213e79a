"""One program of a person at a time loads a model that others may use."""

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from agent.util import private_files

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
MAX_WAIT_SECONDS = 600.0
"""Upper limit of the wait for another's load: a large model takes minutes from a slow disk."""


@asynccontextmanager
async def load_lock(socket: Path, serves: bool) -> AsyncIterator[None]:
    """Wait while another program loads a socket's model, then lock it; without ``serves`` the lock is
    not taken. The kernel releases it with the process. A suspended program is not waited for."""
    try:
        private_files.make_folder(socket.parent)
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(socket.with_suffix(".lock"), flags, 0o600)
    except OSError as error:
        log.info("no lock for loading the model: %s", error)
        yield
        return
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                # Another process holds it: no event tells.
                while not (_try(lock, serves) or _is_holder_suspended(lock)):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(lock)


def _try(lock: int, serves: bool) -> bool:
    """Take the lock, unless another program has it; without ``serves`` it is released at once."""
    try:
        fcntl.flock(lock, (fcntl.LOCK_EX if serves else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if serves:
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        else:
            fcntl.flock(lock, fcntl.LOCK_UN)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks
        log.info("no lock for loading the model: %s", error)
    return True


def _is_holder_suspended(lock: int) -> bool:
    import psutil  # most programs need not wait

    with suppress(OSError, ValueError, psutil.Error):
        status = psutil.Process(int(os.pread(lock, 20, 0))).status()
        return status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False
