"""The python hand: code in a stateful worker process, confined."""
