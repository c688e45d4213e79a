"""The HTTP server: the Responses API, from the same turns and events as the other interfaces."""
