"""What this program uses of llama.cpp's C API is there, and llama.cpp 1.0 has it too.

1.0 removed ``llama_set_warmup``, ``defrag_thold`` and 35 functions, renamed a function of NextN,
and added an expert cache and FP8 KV caches (https://github.com/ggml-org/llama.cpp/releases/tag/v1.0.0).
The 35 are those that versions before it marked as deprecated in llama.h, as the bindings do.
"""

import ast
import inspect
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from agent.engine.llama import bindings
from agent.engine.llama.bindings import lib
from agent.engine.llama.model import LlamaModel
from agent.engine.placement.placement import Placement
from agent.engine.protocol import EngineError
from tests.support.program import ROOT

RENAMED_OR_REMOVED = {"llama_set_warmup", "llama_set_embd_state_src", "defrag_thold"}
STRUCTS = {
    "llama_model_default_params": "llama_model_params",
    "llama_context_default_params": "llama_context_params",
}
"""What makes a struct of parameters, and the struct."""
OPTIONAL = {("llama_context_params", "moe_cache_size")}
"""Fields that are only set where they are there."""


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    """The modules that name llama.cpp or its library."""
    found = []
    for folder in ("agent", "tools", "tui"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if "train" not in path.parts and re.search(
                r"\b(lib|_lib|libggml|ggml_function|llama_cpp)\b", text
            ):
                found.append((path.relative_to(ROOT), ast.parse(text)))
    return found


@cache
def used() -> tuple[set[str], set[tuple[str, str]], set[str]]:
    """Names of the C library, fields of its structs, and functions of ggml that are declared here."""
    names: set[str] = set()
    fields: set[tuple[str, str]] = set()
    functions: set[str] = set()
    for _, tree in modules():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(ast.Name("lib" | "libggml") | ast.Attribute(attr="_lib"), name):
                    names.add(name)
                case ast.Call(ast.Name("ggml_function"), [ast.Constant(str(name)), *_]):
                    functions.add(name)
                case ast.FunctionDef():
                    fields |= struct_fields(node)
    return names, fields, functions


def struct_fields(function: ast.FunctionDef) -> set[tuple[str, str]]:
    """The fields of parameter structs that a function sets."""
    structs: dict[str, str] = {}
    found = set()
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name(variable)], ast.Call(ast.Attribute(attr=maker))):
                if maker in STRUCTS:
                    structs[variable] = STRUCTS[maker]
    for node in ast.walk(function):
        match node:
            case ast.Attribute(ast.Name(variable), name, ast.Store()) if variable in structs:
                found.add((structs[variable], name))
    return found


def deprecated_functions() -> set[str]:
    """Functions that the bindings warn of."""
    return set(re.findall(r'_warn_deprecated\(\s*"(\w+)"', inspect.getsource(lib)))


def test_used_functions_and_fields_are_in_the_library() -> None:
    names, fields, functions = used()
    assert len(names) > 40 and len(fields) > 15 and len(functions) > 8
    assert {"llama_decode", "llama_state_seq_get_data_ext", "ggml_abort_callback"} <= names
    missing = [
        name for name in names if not (hasattr(lib, name) or hasattr(bindings.libggml, name))
    ]
    assert not missing
    known = defaultdict(set)
    for struct in STRUCTS.values():
        known[struct] = {name for name, *_ in getattr(lib, struct)._fields_}
    assert not [field for field in fields - OPTIONAL if field[1] not in known[field[0]]]
    assert not [name for name in functions if not hasattr(bindings.libggml, name)]


def test_nothing_is_used_that_llama_cpp_1_removed() -> None:
    names, fields, functions = used()
    removed = RENAMED_OR_REMOVED | deprecated_functions()
    assert len(removed) > 35 or not deprecated_functions(), "the bindings say it in another way"
    assert not removed & (names | functions | {name for _, name in fields})


def test_only_the_bindings_import_the_c_api() -> None:
    found = {
        str(path)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None), *(alias.name for alias in node.names)]
        if name in ("llama_cpp.llama_cpp", "llama_cpp._ggml")
    }
    assert found == {"agent/engine/llama/bindings.py"}


def test_kv_type_has_the_number_of_its_name() -> None:
    assert bindings.kv_type_number("f16") == lib.GGML_TYPE_F16
    assert bindings.kv_type_number("q8_0") == lib.GGML_TYPE_Q8_0
    assert bindings.kv_type_number("q4_0") == lib.GGML_TYPE_Q4_0
    assert bindings.kv_type_number("none") is None


def test_features_of_a_newer_build_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib.llama_context_params, "moe_cache_size", 0, raising=False)
    monkeypatch.setattr(bindings, "kv_type_number", lambda name: 40)
    monkeypatch.setattr(lib, "_lib", type("Library", (), {"llama_set_ctx_state_src": None}))
    assert bindings.features() == ["expert cache", "FP8 KV cache", "NextN"]


@pytest.mark.skipif(bool(bindings.features()), reason="this build has them")
@pytest.mark.parametrize(
    "placement", [Placement(512, kv_type="f8"), Placement(512, expert_cache=1 << 30)]
)
def test_what_an_older_build_lacks_is_named(tiny_gguf: Path, placement: Placement) -> None:
    with pytest.raises(EngineError, match=r"f8.* need llama\.cpp 1\.0 or newer"):
        LlamaModel(tiny_gguf, placement, lambda done: True)
