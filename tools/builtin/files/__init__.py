"""The files server: reads below a root, and changes that can be undone."""
