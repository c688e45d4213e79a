"""The two themes: quiet greys, one colour for what is alive."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="agent-dark",
    dark=True,
    primary="#7aa2d8",
    secondary="#9a8fd0",
    accent="#7cc4a4",
    foreground="#d8dce2",
    background="#14161a",
    surface="#1a1d22",
    panel="#22262d",
    success="#7cc4a4",
    warning="#e0b465",
    error="#e57f7f",
    variables={
        "rule": "#363c46",
        "block-cursor-text-style": "none",
        "scrollbar": "#2b3038",
        "scrollbar-background": "#14161a",
        "scrollbar-corner-color": "#14161a",
        "text-muted": "#8a929e",
    },
)
LIGHT = Theme(
    name="agent-light",
    dark=False,
    primary="#2f62a8",
    secondary="#5d4f9e",
    accent="#1f7a58",
    foreground="#23272e",
    background="#fbfbf9",
    surface="#f3f3f0",
    panel="#e9e9e5",
    success="#1f7a58",
    warning="#8f6400",
    error="#b3372f",
    variables={
        "rule": "#c9cbc6",
        "block-cursor-text-style": "none",
        "scrollbar": "#d5d6d1",
        "scrollbar-background": "#fbfbf9",
        "scrollbar-corner-color": "#fbfbf9",
        "text-muted": "#666c74",
    },
)
