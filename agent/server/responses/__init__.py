"""``/v1/responses`` and ``/v1/conversations``, over HTTP and WebSocket."""
