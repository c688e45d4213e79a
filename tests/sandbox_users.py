"""Runs the sandbox's tests as other users have it: ``python -m tests.sandbox_users USER`` (as root).

As an ordinary user; as one who may make no user namespaces, where Landlock has to do; and in a
container that allows none. The interpreter and this folder must be readable for the user. Returns 1
where a test failed, 0 where none did or nothing could be run, which it says.
"""

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

PATHS = ("tests/tools/sandbox", "tests/tools/builtin", "tests/attack")
QUICK = ("-q", "-m", "not slow", "--numprocesses", "2", "--dist", "loadfile", "--tb=short")
STARTS_ITSELF = (
    "import subprocess, sys, pytest; subprocess.run([sys.executable, '-c', ''], check=True)"
)
"""``setpriv`` can begin a program in a folder that only root enters; the program itself cannot."""
NO_NAMESPACES = (
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "$@"'
)


def surroundings(uid: int, gid: int) -> Mapping[str, Sequence[str]]:
    """Commands that run another one in each of the surroundings."""
    ids = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--inh-caps=-all"]
    closed = ["unshare", "--user", "--map-root-user", "sh", "-c", NO_NAMESPACES, "sh"]
    container = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--bind", "/", "/"]
    container += ["--proc", "/proc", "--dev", "/dev"]
    return {
        "an ordinary user": ids,
        "without user namespaces": [*ids, *closed],
        "in a container": [*ids, *container],
    }


def main(user: str, paths: Sequence[str]) -> int:
    ids, failed = pwd.getpwnam(user), False
    for name, wrapper in surroundings(ids.pw_uid, ids.pw_gid).items():
        with tempfile.TemporaryDirectory(dir="/tmp") as home:
            os.chown(home, ids.pw_uid, ids.pw_gid)
            tried = subprocess.run(
                [*wrapper, sys.executable, "-c", STARTS_ITSELF], capture_output=True
            )
            if tried.returncode != 0:
                why = (tried.stderr.decode().strip().splitlines() or ["no reason given"])[-1]
                print(f"{name}: not run: {why}", flush=True)
                continue
            options = ["-o", f"cache_dir={home}/cache", f"--basetemp={home}/tests"]
            command = [*wrapper, sys.executable, "-m", "pytest", *options, *QUICK, *paths]
            environment = {**os.environ, "HOME": home, "USER": user}
            code = subprocess.run(command, env=environment).returncode
            print(f"{name}: {'failed' if code else 'passed'}", flush=True)
            failed = failed or code != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:] or PATHS))
