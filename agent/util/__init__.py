"""Leaves without knowledge of the program that any package may import."""
