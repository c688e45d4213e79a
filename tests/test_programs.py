"""Every process that the program starts gets its executable from one function, or is Python itself."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("agent", "tools", "tui")
MODULES = ("subprocess", "webbrowser", "pty")
STARTS = {
    "Popen", "call", "check_call", "check_output", "create_subprocess_exec",
    "create_subprocess_shell", "fork_exec", "getoutput", "getstatusoutput", "popen", "run",
    "subprocess_exec", "subprocess_shell", "system",
}  # fmt: skip
"""Functions of subprocess, asyncio and os; so are those that begin with exec, spawn or posix_spawn."""
SAFE = {"find_program", "require_program", "script_command", "shell_command", "_python"}
"""Functions whose result begins with an absolute path that may run."""
INSIDE = {
    # Sandboxed already: what the model names, on a PATH that it cannot write.
    ("tools/sandbox/confine.py", "main"),
    # Gets the absolute command line of isolation.shell_command.
    ("tools/sandbox/supervise.py", "main"),
    # Their callers pass a line of isolation.shell_command, isolation.script_command, find_program.
    ("tools/builtin/shell/process.py", "start"),
    ("tools/builtin/python/session.py", "start"),
    ("tools/builtin/files/reading.py", "_ripgrep"),
    # Their caller passes what find_program has found.
    ("agent/cli/launch.py", "_add_catalog"),
    ("agent/cli/launch.py", "run_client"),
    # Built on the host by the retraining, not by the program.
    ("agent/tiny/train/strangers.py", "serve_fixture"),
}


def process_starts(tree: ast.Module) -> Iterator[tuple[str, ast.Call, dict[str, ast.expr]]]:
    """Each call that starts a process, with the function around it and what its variables are."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        values: dict[str, ast.expr] = {}
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values.setdefault(name, value)
                case ast.NamedExpr(target=ast.Name(id=name), value=value):
                    values.setdefault(name, value)
        for node in ast.walk(function):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if (
                    (name in STARTS and owner in ("subprocess", "asyncio", "os", "loop"))
                    or (owner == "os" and name.startswith(("exec", "spawn", "posix_spawn")))
                    or (owner, name)
                    in {("shutil", "which"), ("webbrowser", "open"), ("pty", "spawn")}
                ) and not (owner == "asyncio" and name == "run"):
                    yield function.name, node, values


def is_safe(words: ast.expr, values: dict[str, ast.expr]) -> bool:
    """Whether a command line begins with Python itself or with what one of SAFE returns."""
    match words:
        case ast.Starred(value=value):
            return is_safe(value, values)
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
            return is_safe(first, values)
        case ast.BinOp(left=left):
            return is_safe(left, values)
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name in SAFE
        case ast.Name(id=name) if name in values:
            return is_safe(values[name], {k: v for k, v in values.items() if k != name})
        case ast.Attribute(value=ast.Name(id="sys"), attr="executable"):
            return True
    return False


def bypasses(top: Path) -> list[str]:
    """Where a process is started otherwise, or a program looked up."""
    lines = []
    for path in sorted(path for name in CODE for path in top.glob(f"{name}/**/*.py")):
        tree, file = ast.parse(path.read_text()), str(path.relative_to(top))
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module=str(module)) if module in MODULES:
                    lines.append(f"{file}:{node.lineno}: import the module, not its functions")
                case ast.Import(names=names) if any(n.asname and n.name in MODULES for n in names):
                    lines.append(f"{file}:{node.lineno}: import the module by its name")
        for function, call, values in process_starts(tree):
            argument = 1 if call.args and ast.unparse(call.args[0]) == "_ProcessProtocol" else 0
            if (file, function) not in INSIDE and not (
                call.args[argument:] and is_safe(call.args[argument], values)
            ):
                lines.append(f"{file}:{call.lineno}: {ast.unparse(call)[:70]}")
    return sorted(set(lines))


def test_every_process_start_uses_the_one_lookup() -> None:
    assert not bypasses(ROOT)


def test_bypasses_are_seen(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    starts = [
        "subprocess.run(['git'])", "os.execvp('git', ['git'])", "shutil.which('git')",
        "asyncio.create_subprocess_exec('git')", "subprocess.Popen(words)", "os.system('git')",
        "asyncio.create_subprocess_shell('git')", "webbrowser.open(url)", "os.posix_spawnp('git')",
    ]  # fmt: skip
    body = "".join(f"    {start}\n" for start in starts)
    (tmp_path / "tools" / "a.py").write_text(f"def start(words):\n{body}")
    assert len(bypasses(tmp_path)) == len(starts)


def test_start_takes_no_module_from_checkout(tmp_path: Path) -> None:
    """An editable install has the checkout on its path: a file there stands for any missing module."""
    code = (
        "import sys, agent.__main__ as entry; entry._leave_checkout()\n"
        f"import tui.commands.context, tools.types; print({str(ROOT)!r} in sys.path)"
    )
    environment = {"AGENT_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.stdout == "False\n", ran.stderr
