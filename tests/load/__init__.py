"""The program under load, for a long time, and when the disk, the memory or the process fails."""
