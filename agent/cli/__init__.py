"""The command line: parses the arguments, runs a command, shows what it does."""
