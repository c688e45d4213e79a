"""The log file, the metrics and the trace."""
