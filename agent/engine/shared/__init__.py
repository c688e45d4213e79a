"""One engine for all programs of a person: served over a Unix socket, used as if it were local."""
