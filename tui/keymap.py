"""The bindings whose keys config.toml can change, and the keys that they have now."""

from textual.app import App
from textual.binding import Binding

from agent.config.keys import ACTIONS, KeyBindings


class KeymapApp(App[int]):
    """The app, as those see it who name its keys."""

    key_bindings: KeyBindings = KeyBindings()


def bind(name: str, action: str, *, priority: bool = False) -> Binding:
    """Bind the keys of ``agent.config.keys.ACTIONS``; Textual's keymap replaces them by ``name``."""
    keys, meaning = ACTIONS[name]
    return Binding(keys, action, meaning, show=False, priority=priority, id=name)
