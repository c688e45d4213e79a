"""Names every setting of config.toml, its default and its meaning, for `agent config show`, shell
completion and the tables of docs/configuration.md."""

from __future__ import annotations

from typing import NamedTuple

from agent.config.keys import ACTIONS


class SettingText(NamedTuple):
    """The texts about a setting."""

    default: str
    meaning: str
    elsewhere: str = ""
    """Other ways to set it: options of the command line, variables, commands of the app."""
    values: str = ""
    """Its values; empty: as `agent.config.settings.SETTINGS` says."""


SETTING_TEXTS = {
    "model": SettingText(
        "installed, else tiny", "the model that answers", "`--model`, `agent models default`"
    ),
    "effort": SettingText("medium", "how much the model reasons", "`--effort`, `/effort`"),
    "max_reasoning_tokens": SettingText(
        "no limit",
        "maximum number of reasoning tokens before a call or the answer; 0: none",
        "`--max-reasoning-tokens`",
    ),
    "temperature": SettingText(
        "the model's", "0: always the likeliest token", "`--temperature`, `/sampling`"
    ),
    "top_p": SettingText(
        "the model's",
        "nucleus sampling: the smallest set of tokens with this total probability",
        "`--top-p`, `/sampling`",
    ),
    "top_k": SettingText(
        "the model's", "sample from the k most likely tokens (0 = all)", "`--top-k`, `/sampling`"
    ),
    "min_p": SettingText(
        "the model's",
        "drop tokens below this fraction of the top probability",
        "`--min-p`, `/sampling`",
    ),
    "keep_alive": SettingText(
        "never",
        "how long the model stays loaded without a turn",
        "`agent serve --keep-alive`, `models.toml`",
    ),
    "prefix_cache": SettingText(
        "at most 8",
        "gigabytes of prompts on disk as models have read them; unset: 10 % of what is free",
        "`agent models cache`",
    ),
    "compact": SettingText(
        "auto in the app",
        "shorten and summarise a full context, or never",
        "`--compact`, `--no-compact`",
    ),
    "view": SettingText("panes", "how the app shows a turn that runs", "F2, `/view`"),
    "probability_scale": SettingText(
        "green-red", "the colours of tokens by probability", "`/probs`"
    ),
    "theme": SettingText("dark", "the app's colours", "F4, `/theme`, `NO_COLOR`"),
    "titles": SettingText(
        "true", "the model writes a conversation's title while it idles (never `tiny`)"
    ),
    "animations": SettingText("true", "whether anything moves by itself in the app"),
    "token_probabilities": SettingText(
        "false", "record in the app how likely each token was, and the ten likeliest others"
    ),
    "responses_days": SettingText("30", "how long responses of `/v1/responses` are stored"),
    "responses_max": SettingText("10000", "how many of them are stored"),
    "project_instructions": SettingText(
        "true", "read `AGENTS.md` files", "`--no-project-instructions`"
    ),
    "unsandboxed_python": SettingText(
        "false", "offer python where no sandbox works, and ask before each call"
    ),
    "browser.searxng": SettingText(
        "none", "the SearXNG server that searches", "`AGENT_SEARXNG`", "an address in quotes"
    ),
    "browser.search": SettingText(
        "none", "the MCP tool that searches", values="server.tool in quotes"
    ),
    "browser.allow_private": SettingText(
        "none", "private networks that the browser may open", values="a list of networks"
    ),
    "network.loopback": SettingText(
        "false", "whether each command may open ports of its own sandbox", values="true or false"
    ),
    "network.hosts": SettingText(
        "none", "hosts that commands reach without a question", values="a list of hosts"
    ),
}
"""In the order of docs/configuration.md; the keys of a table as TABLE.KEY."""
DEFAULTS = {
    **{name: text.default for name, text in SETTING_TEXTS.items()},
    **{f"keys.{name}": action.keys for name, action in ACTIONS.items()},
}
"""The defaults of all settings, those of the table ``keys`` too."""
