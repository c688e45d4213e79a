"""One turn of a conversation: generate, decode, call tools, emit events (`loop.Turn`)."""
