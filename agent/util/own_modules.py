"""Names the command that runs a module of this program in a Python of its own."""

from __future__ import annotations

from pathlib import Path

_RUN_MODULE = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def module_arguments(module: str) -> tuple[str, ...]:
    """The arguments of Python that run a module; the module's own follow. An installed program has its
    packages (`packaging/wheel/agent_local`) where ``-m`` alone would not find them."""
    return "-P", "-c", _RUN_MODULE, str(Path(__file__).parents[2]), module
