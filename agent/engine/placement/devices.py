"""Reports what a machine can run a model on: devices of llama.cpp's backends
(https://github.com/ggml-org/ggml/blob/master/include/ggml-backend.h), and free memory."""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DeviceKind = Literal["cpu", "gpu", "igpu", "accel", "meta"]
"""A device's type, as ggml's enum ggml_backend_dev_type numbers them."""
_DEVICE_KINDS: tuple[DeviceKind, ...] = ("cpu", "gpu", "igpu", "accel", "meta")
CGROUP_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a backend; ``free`` and ``total`` in bytes, 0 where the backend does not say."""

    name: str
    description: str
    kind: DeviceKind
    free: int
    total: int

    @property
    def shares_memory(self) -> bool:
        return self.kind == "igpu" or self.name.startswith(("Metal", "MTL"))


def list_devices() -> list[Device]:
    """List all devices in the order in which llama.cpp takes them."""
    from agent.engine.llama.bindings import ggml_function  # here, since it loads the native library

    count = ggml_function("ggml_backend_dev_count", ctypes.c_size_t)
    get = ggml_function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    size = ctypes.POINTER(ctypes.c_size_t)
    memory = ggml_function("ggml_backend_dev_memory", None, ctypes.c_void_p, size, size)
    name = ggml_function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
    description = ggml_function("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
    kind_number = ggml_function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
    devices = []
    for handle in map(get, range(count())):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory(handle, ctypes.byref(free), ctypes.byref(total))
        texts = [text(handle).decode(errors="replace") for text in (name, description)]
        kind = _DEVICE_KINDS[kind_number(handle)]
        devices.append(Device(texts[0], texts[1], kind, free.value, total.value))
    return devices


def free_memory(cgroup_root: Path = CGROUP_ROOT) -> int:
    """Return the bytes of memory that this process may still take; the file cache counts as free. A
    container's limit counts, by either version of cgroups
    (https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files,
    https://docs.kernel.org/admin-guide/cgroup-v1/memory.html)."""
    import psutil

    return min(
        psutil.virtual_memory().available,
        _cgroup_budget(cgroup_root, "memory.max", "memory.current"),
        _cgroup_budget(cgroup_root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    )


def _cgroup_budget(folder: Path, limit: str, usage: str) -> int:
    try:
        limit_bytes, used_bytes = (int((folder / name).read_text()) for name in (limit, usage))
        stat = (folder / "memory.stat").read_text()
        lines = dict[str, str](line.split() for line in stat.splitlines())
    except (OSError, ValueError):  # no container, or one without a limit
        return _UNLIMITED_BYTES
    cached_bytes = int(lines.get("total_inactive_file") or lines.get("inactive_file") or 0)
    return max(limit_bytes - used_bytes + cached_bytes, 0)
