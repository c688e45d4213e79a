"""The shell server: one command at a time, confined to the root folder."""
