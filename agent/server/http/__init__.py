"""Shared by all routes: connections, bodies, keys, errors, options."""
