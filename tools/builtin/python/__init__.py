"""The python server: code in a stateful worker process, confined."""
