"""Widgets and screens whose handlers may raise: the app shows the error and continues."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar, TypeVar

from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen

Result = TypeVar("Result")


class Guarded(MessagePump):
    """Handles further messages after a handler has raised, which Textual 8.2 does not. The app's
    ``_handle_exception`` decides what becomes of the error."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            self.app._handle_exception(error)


class GuardedScreen(Guarded, Screen[Result]):
    """A screen that is closed once, however often a key is pressed that closes it."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Run no action of a key before the screen has its widgets (extends Textual's)."""
        return super().check_action(action, parameters) if self.is_mounted else False

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close the screen with this result, unless it is closed already (extends Textual's)."""
        # Not `is_current`: that is true below a dialog, which would be closed in place of this one.
        return super().dismiss(result) if self.is_active else AwaitComplete()


class GuardedDialog(GuardedScreen[Result], ModalScreen[Result]):
    """A `GuardedScreen` over the one below, which stays visible."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back", show=False)]
    DEFAULT_CSS = "GuardedDialog { align: center middle; }"


def run_latest(
    node: DOMNode, group: str, work: Callable[..., Coroutine[Any, Any, None]], *values: object
) -> None:
    """Run ``work(*values)`` as a worker of ``node``, in place of what runs in the group. A worker that
    is cancelled before it begins makes no coroutine, which would never be awaited."""
    start: Any = partial(work, *values)
    node.run_worker(start, group=group, exclusive=True)
