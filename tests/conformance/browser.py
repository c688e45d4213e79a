"""The browser of the person who logs in: opens one page and follows its redirects."""

from __future__ import annotations

import sys

import httpx2

if __name__ == "__main__":
    with httpx2.Client(follow_redirects=True, timeout=60) as client:
        client.get(sys.argv[1])
