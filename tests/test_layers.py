"""Imports point one way: no module imports a layer above its own, and none are in a circle.

Imports inside functions and under ``TYPE_CHECKING`` count like any other. The picture is in
``docs/architecture.md``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = (
    ("agent.errors", "agent.events", "agent.util"),
    ("tools",),
    ("agent.config",),
    ("agent.engine",),
    ("agent.formats",),
    ("agent.conversation",),
    ("agent.tiny",),
    ("agent.models",),
    ("agent.runtime",),
    ("agent.turn",),
    ("agent.observability",),
    ("agent.store",),
    ("agent.bootstrap",),
    ("agent.server",),
    ("agent.acp",),
    ("tui",),
    ("agent.cli", "agent.__main__"),
)
"""The lowest first; a layer imports what stands before it, and its own modules."""
INNER_LAYERS = {
    "agent.server": (
        ("http",), ("input",), ("responses",), ("chat",), ("messages",), ("raw",), ("batch",),
        ("page",), ("openapi", "app"), ("serve",), ("mcp",),
    ),
    "tools": (
        ("types", "audit", "results", "sanitize", "version", "process_groups", "networks",
         "builtin_server", "safe_fetch"),
        ("config",), ("run_later", "git"), ("sandbox",), ("mcp",), ("policy",), ("builtin",),
        ("selection", "demo", "tool_index"), ("factory",),
    ),
    "tui": (
        ("util", "guarded", "base_screen", "keymap", "theme", "markdown"), ("terminal", "state"),
        ("session_storage", "next_prompt", "session"), ("written_turn", "widgets"),
        ("live_display",), ("app_context",), ("screens",), ("controllers",), ("commands",),
        ("main_screen",), ("app",), ("main",),
    ),
}  # fmt: skip
"""The same inside of three packages, by the names below them."""


def modules() -> dict[str, Path]:
    """Every module of the program by its dotted name."""
    paths = [path for top in ("agent", "tools", "tui") for path in (ROOT / top).rglob("*.py")]
    return {dotted(path): path for path in sorted(paths)}


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The program's own modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name in known)
            case ast.ImportFrom(module=str(module), names=names):
                for name in names:
                    inner = f"{module}.{name.name}"
                    if inner in known or module in known:
                        yield inner if inner in known else module


def layer(module: str) -> int:
    for number, prefixes in enumerate(LAYERS):
        if any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes):
            return number
    return 0  # a package itself: agent/__init__.py


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imports(path, known)) - {name} for name, path in known.items()}


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in arrows[module]:
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(group := stack[at:]) > 1:
                result.append(sorted(group))
            del stack[at:]

    for module in arrows:
        if module not in index:
            visit(module)
    return result


def test_imports_follow_the_layers() -> None:
    upward = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        for target in sorted(targets)
        if layer(target) > layer(module)
    ]
    assert upward == []


@pytest.mark.parametrize("package", INNER_LAYERS)
def test_imports_inside_follow_the_layers(package: str) -> None:
    order = {name: n for n, names in enumerate(INNER_LAYERS[package]) for name in names}

    def inner_layer(module: str) -> int:
        return order[module.removeprefix(f"{package}.").split(".")[0]]

    inside = {m: ts for m, ts in graph().items() if m.startswith(f"{package}.")}
    upward = [
        f"{module} imports {target}"
        for module, targets in inside.items()
        for target in sorted(targets & inside.keys())
        if inner_layer(target) > inner_layer(module)
    ]
    assert upward == []


def test_no_modules_are_in_a_circle() -> None:
    assert circles(graph()) == []


def test_the_top_of_agent_has_leaves_packages_and_one_composition_module() -> None:
    files = {path.name for path in (ROOT / "agent").glob("*.py")}
    assert files == {"__init__.py", "__main__.py", "bootstrap.py", "errors.py", "events.py"}
