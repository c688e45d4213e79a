"""The shell hand: one command at a time, confined to the root folder."""
