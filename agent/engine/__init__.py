"""Engines: token ids in, token ids out, behind the protocol of `protocol`."""
