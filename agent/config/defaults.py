"""Names every setting of config.toml, and what counts where it is not set, in words."""

from __future__ import annotations

DEFAULTS = {
    "model": "installed, else tiny",
    "effort": "medium",
    "temperature": "the model's",
    "top_p": "the model's",
    "top_k": "the model's",
    "min_p": "the model's",
    "keep_alive": "never",
    "compact": "auto in the app",
    "view": "panes",
    "theme": "dark",
    "animations": "true",
    "responses_days": "30",
    "responses_most": "10000",
    "project_instructions": "true",
    "unsandboxed_python": "false",
    "browser.searxng": "none",
    "browser.search": "none",
    "browser.allow_private": "none",
}
"""In the order of docs/configuration.md; the keys of a table as TABLE.KEY."""
