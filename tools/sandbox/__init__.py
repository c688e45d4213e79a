"""Confines scripts and commands with what the operating system offers."""
