"""The embedded demonstration model: its packed core, and its expansion into a GGUF."""
