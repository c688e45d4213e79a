"""The app's own themes: dark and light greys with an accent, high contrast, the terminal's colours."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="dark",
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
        "chance-blue": "#7db3f0",
        "chance-pale-orange": "#e8c39a",
        "chance-orange": "#f0a050",
    },
)
LIGHT = Theme(
    name="light",
    dark=False,
    primary="#2f62a8",
    secondary="#5d4f9e",
    accent="#1c7553",
    foreground="#23272e",
    background="#fbfbf9",
    surface="#f3f3f0",
    panel="#e9e9e5",
    success="#1c7553",
    warning="#8a6000",
    error="#b3372f",
    variables={
        "rule": "#c9cbc6",
        "block-cursor-text-style": "none",
        "scrollbar": "#d5d6d1",
        "scrollbar-background": "#fbfbf9",
        "scrollbar-corner-color": "#fbfbf9",
        "text-muted": "#62686f",
        "chance-blue": "#1f5fae",
        "chance-pale-orange": "#7d5a1c",
        "chance-orange": "#a84400",
    },
)
CONTRAST = Theme(
    name="high-contrast",
    dark=True,
    primary="#79c0ff",
    secondary="#d2a8ff",
    accent="#56f0a0",
    foreground="#ffffff",
    background="#000000",
    surface="#121212",
    panel="#262626",
    success="#56f0a0",
    warning="#ffd33d",
    error="#ff8f87",
    variables={
        "rule": "#b0b0b0",
        "block-cursor-text-style": "none",
        "scrollbar": "#b0b0b0",
        "scrollbar-background": "#000000",
        "scrollbar-corner-color": "#000000",
        "text": "#ffffff",
        "button-color-foreground": "#000000",
        "text-muted": "#d6d6d6",
        "chance-blue": "#79c0ff",
        "chance-pale-orange": "#ffd9a8",
        "chance-orange": "#ffa64d",
    },
)
ANSI = Theme(
    name="ansi",
    dark=True,
    ansi=True,
    primary="ansi_blue",
    secondary="ansi_magenta",
    accent="ansi_green",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    variables={
        "rule": "ansi_bright_black",
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "block-cursor-text-style": "reverse",
        "border-blurred": "ansi_bright_black",
        "input-cursor-foreground": "ansi_default",
        "input-cursor-background": "ansi_default",
        "input-cursor-text-style": "reverse",
        "scrollbar": "ansi_bright_black",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
        "scrollbar-corner-color": "ansi_default",
        "text-muted": "ansi_bright_black",
        "chance-blue": "ansi_cyan",
        "chance-pale-orange": "ansi_yellow",
        "chance-orange": "ansi_yellow",
    },
)
"""Uses the terminal's own sixteen colours; the theme where NO_COLOR is set."""
THEMES = (DARK, LIGHT, CONTRAST, ANSI)
"""The app's own themes, in the order in which F4 goes through them."""
DEFAULT_VARIABLES = {
    "rule": "#808080 60%",
    "chance-blue": "#4a90d9",
    "chance-pale-orange": "#b98a4a",
    "chance-orange": "#d07a1f",
}
"""The variables of the app's styles that Textual's themes do not define."""


def next_theme(name: str) -> str:
    """The app's own theme that follows this one; the first, for any other theme."""
    names = [theme.name for theme in THEMES]
    return names[(names.index(name) + 1) % len(names)] if name in names else names[0]
