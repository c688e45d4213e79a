"""Moments of the app that people see: each scene leads a person there, and nothing moves any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.support.fake_app import Person

Scene = Callable[[Person], Awaitable[None]]
