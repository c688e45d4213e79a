"""Reads what a GGUF's header says with the package gguf."""

from typing import Any

from gguf import GGUFReader, GGUFValueType

LENGTH_BYTES = 8


class HeaderReader(GGUFReader):
    """Passes over lists: the package makes arrays of each value, for a vocabulary in 15 s."""

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        data, start = memoryview(self.data), orig_offs + 4
        of = GGUFValueType(int.from_bytes(data[orig_offs:start], "little"))
        end = start + LENGTH_BYTES
        count = int.from_bytes(data[start:end], "little")
        if of == GGUFValueType.STRING:
            for _ in range(count):
                end += LENGTH_BYTES + int.from_bytes(data[end : end + LENGTH_BYTES], "little")
        else:
            end += count * self.gguf_scalar_to_np[of]().itemsize
        return end - orig_offs, [], [], [GGUFValueType.ARRAY, of]
