"""What the machine has to run a model on: GPUs as llama.cpp's backends report them, and memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["cpu", "gpu", "igpu", "accel", "meta"]
_KINDS: tuple[Kind, ...] = ("cpu", "gpu", "igpu", "accel", "meta")
_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a backend; sizes in bytes, 0 where the backend does not say."""

    name: str
    description: str
    kind: Kind
    free: int
    total: int

    @property
    def shared(self) -> bool:
        """Its memory is the CPU's own."""
        return self.kind == "igpu" or self.name.startswith(("Metal", "MTL"))


def ggml(name: str, result: Any, *arguments: Any) -> Any:
    """A C function of ggml, typed; the library is loaded by the first call."""
    from agent.engine.llama import bindings  # here, since it loads the native library

    return bindings.ggml(name, result, *arguments)


def devices() -> list[Device]:
    """All devices, in the order in which llama.cpp takes them."""
    count = ggml("ggml_backend_dev_count", ctypes.c_size_t)
    get = ggml("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    return [_device(ctypes.c_void_p(get(i))) for i in range(count())]


def _device(handle: ctypes.c_void_p) -> Device:
    def ask(name: str, result: Any) -> Any:
        return ggml(name, result, ctypes.c_void_p)(handle)

    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    size = ctypes.POINTER(ctypes.c_size_t)
    memory = ggml("ggml_backend_dev_memory", None, ctypes.c_void_p, size, size)
    memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Device(
        name=ask("ggml_backend_dev_name", ctypes.c_char_p).decode(errors="replace"),
        description=ask("ggml_backend_dev_description", ctypes.c_char_p).decode(errors="replace"),
        kind=_KINDS[ask("ggml_backend_dev_type", ctypes.c_int)],
        free=free.value,
        total=total.value,
    )


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override: tensors whose names match lie in buffers of this type."""

    _fields_ = [("pattern", ctypes.c_char_p), ("type", ctypes.c_void_p)]


def experts_on_cpu(layers: int) -> ctypes.Array[_Override]:
    """For the model's parameters: the experts of the first layers lie in ordinary memory."""
    overrides = (_Override * 2)()  # the second, empty, ends the list
    numbers = "|".join(map(str, range(layers)))
    overrides[0].pattern = rf"^blk\.({numbers})\.ffn_.*_exps\.".encode()
    overrides[0].type = ggml("ggml_backend_cpu_buffer_type", ctypes.c_void_p)()
    return overrides


def free_memory() -> int:
    """Bytes of memory that this process may still take, the file cache counted as free."""
    import psutil

    return min(psutil.virtual_memory().available, *_limits())


def _limits() -> list[int]:
    """What the container leaves, by either version of cgroups."""
    return [
        _left(_CGROUP / "memory.max", _CGROUP / "memory.current", _CGROUP / "memory.stat"),
        _left(
            _CGROUP / "memory/memory.limit_in_bytes",
            _CGROUP / "memory/memory.usage_in_bytes",
            _CGROUP / "memory/memory.stat",
        ),
    ]


def _left(limit: Path, usage: Path, stat: Path) -> int:
    try:
        most = int(limit.read_text())
        used = int(usage.read_text())
        lines = dict[str, str](line.split() for line in stat.read_text().splitlines())
    except (OSError, ValueError):  # no container, or one without a limit
        return _UNLIMITED
    cached = int(lines.get("total_inactive_file") or lines.get("inactive_file") or 0)
    return max(most - used + cached, 0)
