"""The browser hand: pages as numbered lines, found by a search and by their links."""

from tools.browser.hand import Browser
from tools.browser.settings import BrowserSettings

__all__ = ["Browser", "BrowserSettings"]
