"""Where a model goes: devices, sizes from its file, the plan, and what works on this processor."""
