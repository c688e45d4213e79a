"""The HTTP face: the Responses API, from the same turn and events as every other face."""
