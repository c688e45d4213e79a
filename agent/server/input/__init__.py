"""What a request brings: its fields, items, files and tools, read and checked."""
