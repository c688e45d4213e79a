"""The browser server: pages as numbered lines, found by a search and by their links."""
