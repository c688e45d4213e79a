"""A configuration of the Codex CLI, and the replies of a model that it drives."""

from __future__ import annotations

from tests.support.scripts import call, final, thought

ECHO_COMMAND = "echo from the shell > made.txt; cat made.txt"
NO_FURTHER_CALL = final("That is all.")
"""Codex asks for parallel calls, so the model is asked for another one behind a call."""
REPLIES = (
    thought("I use the shell.") + call("exec_command", cmd=ECHO_COMMAND),
    NO_FURTHER_CALL,
    thought("It is made.") + final("The file is made."),
    final("It is made.txt."),
)
CONFIG = """\
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
analytics.enabled = false
feedback.enabled = false
otel.metrics_exporter = "none"
features.plugins = false
features.remote_plugin = false
features.apps = false
"""
"""Its own sandbox does not work everywhere, and its commands are ours; it reports to nobody."""
