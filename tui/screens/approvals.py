"""The screen of approvals: what the person allowed, what it means, and taking it back."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets.option_list import Option

from tools.policy.approval_store import StoredApproval
from tools.policy.approvals import Policy
from tui.keymap import bind_fixed
from tui.screens.dialogs import ConfirmDialog
from tui.screens.list_screen import ListScreen
from tui.util.format import display_text


class ApprovalsScreen(ListScreen[None]):
    """Lists approvals of this session and the stored ones; a revoked one asks at the next call."""

    HEADING = "Approvals"
    KEY_HINT = "Ctrl-D revoke · Esc back"
    EMPTY_TEXT = "No approvals are stored. When a call asks, a (session) and A (always) store one."
    BINDINGS = bind_fixed({"ctrl+d": "revoke"}, priority=True)

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy
        self._approvals: dict[str, StoredApproval] = {}

    def make_rows(self, search: str) -> Sequence[Option]:
        self._approvals = {approval.id: approval for approval in self._policy.approvals()}
        return [
            Option(self._label(approval), row_id)
            for row_id, approval in self._approvals.items()
            if search.lower() in f"{approval.title}\n{approval.folder}".lower()
        ]

    def _label(self, approval: StoredApproval) -> Content:
        title = display_text(approval.title).replace("\n", "⏎")
        return Content.assemble(title, "\n", (display_text(approval.folder), "$text-muted"))

    def row_details(self, row_id: str, search: str) -> Content:
        approval = self._approvals[row_id]
        parts = (approval.title, approval.explanation, f"Folder: {approval.folder}")
        return Content("\n\n".join(map(display_text, parts)))

    async def action_revoke(self) -> None:
        if (approval := self._approvals.get(self.highlighted_id or "")) is None:
            return

        def revoke(confirmed: bool | None) -> None:
            if not confirmed:
                return
            try:
                self._policy.revoke(approval)
            except OSError as error:
                self.notify(f"It cannot be revoked: {error.strerror}.", severity="error")
            self.refresh_rows()

        question = f"Revoke “{display_text(approval.title)}”? The next such call asks again."
        await self.app.push_screen(ConfirmDialog(question, "revoke"), revoke)
