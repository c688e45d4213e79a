"""The web page of the server, a client of its API: static files, and what they need to know."""
