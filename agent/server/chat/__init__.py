"""``/v1/chat/completions``, translated to the Responses API."""
