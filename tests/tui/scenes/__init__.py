"""Scenes for screenshots: each drives the app to a state in which nothing moves any more."""

from collections.abc import Awaitable, Callable

from tests.support.fake_app import AppDriver

Scene = Callable[[AppDriver], Awaitable[None]]
