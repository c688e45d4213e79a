"""`agent approvals …`: lists and revokes lasting approvals. The docstrings are the help texts."""

import json
import sys
from pathlib import Path

import typer

from agent.cli.completion import complete_approval
from agent.cli.options import flag
from agent.config.paths import user_paths
from agent.errors import UserError, user_errors
from agent.util.sanitize import echo, sanitize
from tools.policy.approval_store import ApprovalStore, StoredApproval

app = typer.Typer(rich_markup_mode=None)


@app.command("list", epilog="Example: agent approvals list --json | jq -r '.[].allows'")
def list_(as_json: bool = flag("--json", help="Print a JSON array.")) -> None:
    """List lasting approvals by folder, each with its meaning."""
    approvals = _store().approvals()
    if as_json:
        rows = [
            {"id": a.id, "folder": a.folder, "kind": a.kind, "allows": a.title} for a in approvals
        ]
        echo(json.dumps(rows, ensure_ascii=False))
        return
    if not approvals:
        print(
            "Nothing is allowed for good; answer A (always) in the app to allow something.",
            file=sys.stderr,
        )
    folder = None
    for approval in approvals:
        if approval.folder != folder:
            folder = approval.folder
            echo(folder)
        echo(f"  {approval.id}  {_line(approval)}\n            {approval.explanation}")


@app.command(
    epilog="Examples: agent approvals revoke 1f2e3d4c  ·  agent approvals revoke 'run git status …'"
    "  ·  agent approvals revoke --all"
)
def revoke(
    approvals: list[str] | None = typer.Argument(
        None,
        metavar="ID|RULE…",
        help="An id from agent approvals list, or a rule's text (of this folder).",
        autocompletion=complete_approval,
    ),
    everything: bool = flag("--all", help="Revoke all, of every folder."),
) -> None:
    """Take approvals back; the next such call asks again, also in an app that is open."""
    store = _store()
    if bool(approvals) == everything:
        raise UserError("Name an approval, as agent approvals list shows it, or pass --all.")
    stored = store.approvals()
    chosen = stored if everything else [_find(name, stored) for name in approvals or ()]
    for approval in dict.fromkeys(chosen):
        with user_errors(OSError, failure=f"Cannot write {store.path}"):
            store.revoke(approval)
        echo(f"Revoked in {approval.folder}: {_line(approval)}")


def _find(name: str, stored: list[StoredApproval]) -> StoredApproval:
    """The approval with this id, or with this text in this folder. Raises UserError."""
    here = str(_here())
    named = [a for a in stored if name == a.id or (name == a.title and a.folder == here)]
    if len(named) != 1:
        what = "more than one" if named else "no"
        raise UserError(f"There is {what} approval {name!r}; agent approvals list shows all ids.")
    return named[0]


def _line(approval: StoredApproval) -> str:
    return sanitize(approval.title.replace("\n", "⏎"))


def _store() -> ApprovalStore:
    return ApprovalStore(user_paths().approvals, _here())


def _here() -> Path:
    try:
        return Path.cwd().resolve()
    except FileNotFoundError:  # it was deleted; those of other folders are there
        return Path("/")
