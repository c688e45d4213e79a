"""The built-in tool servers: python, files, shell and browser."""
