"""Harmony, as gpt-oss writes and reads it."""
