"""Anthropic's ``/v1/messages``, translated to the Responses API."""
