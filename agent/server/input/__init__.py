"""Reads and checks requests: fields, items, files and tools."""
