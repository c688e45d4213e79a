"""The bindings whose keys config.toml can change, and the keys that they have now."""

from collections.abc import Mapping

from textual.app import App
from textual.binding import Binding, BindingType

from agent.config.keys import ACTIONS, KeyBindings


class KeymapApp(App[int]):
    """The app, as those see it who name its keys."""

    key_bindings: KeyBindings = KeyBindings()


def bind(name: str, action: str, *, priority: bool = False) -> Binding:
    """Bind the keys of ``agent.config.keys.ACTIONS``; Textual's keymap replaces them by ``name``."""
    keys, meaning = ACTIONS[name]
    return Binding(keys, action, meaning, show=False, priority=priority, id=name)


def bind_fixed(actions: Mapping[str, str], *, priority: bool = False) -> list[BindingType]:
    """Bind keys that nothing changes; the action of each."""
    return [Binding(keys, action, priority=priority) for keys, action in actions.items()]
