"""``make compare``: the same requests to three servers' /v1/responses, on the same weights."""
