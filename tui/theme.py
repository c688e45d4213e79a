"""The app's own themes: dark and light greys with an accent, high contrast, the terminal's colours."""

from typing import Any

from textual.theme import Theme

_COLOURS = """
                              dark     light    high-contrast  ansi
primary                       #7aa2d8  #2f62a8  #79c0ff        ansi_blue
secondary                     #9a8fd0  #5d4f9e  #d2a8ff        ansi_magenta
accent                        #7cc4a4  #1c7553  #56f0a0        ansi_green
foreground                    #d8dce2  #23272e  #ffffff        ansi_default
background                    #14161a  #fbfbf9  #000000        ansi_default
surface                       #1a1d22  #f3f3f0  #121212        ansi_default
panel                         #22262d  #e9e9e5  #262626        ansi_default
boost                         -        -        -              ansi_default
success                       #7cc4a4  #1c7553  #56f0a0        ansi_green
warning                       #e0b465  #8a6000  #ffd33d        ansi_yellow
error                         #e57f7f  #b3372f  #ff8f87        ansi_red
$rule                         #363c46  #c9cbc6  #b0b0b0        ansi_bright_black
$ansi-background              -        -        -              ansi_default
$ansi-foreground              -        -        -              ansi_default
$block-cursor-text-style      none     none     none           reverse
$border-blurred               -        -        -              ansi_bright_black
$button-color-foreground      -        -        #000000        -
$input-cursor-foreground      -        -        -              ansi_default
$input-cursor-background      -        -        -              ansi_default
$input-cursor-text-style      -        -        -              reverse
$scrollbar                    #2b3038  #d5d6d1  #b0b0b0        ansi_bright_black
$scrollbar-background         #14161a  #fbfbf9  #000000        ansi_default
$scrollbar-background-hover   -        -        -              ansi_default
$scrollbar-background-active  -        -        -              ansi_default
$scrollbar-corner-color       #14161a  #fbfbf9  #000000        ansi_default
$text                         -        -        #ffffff        -
$text-muted                   #8a929e  #62686f  #d6d6d6        ansi_bright_black
$chance-blue                  #7db3f0  #1f5fae  #79c0ff        ansi_cyan
$chance-pale-orange           #e8c39a  #7d5a1c  #ffd9a8        ansi_yellow
$chance-orange                #f0a050  #a84400  #ffa64d        ansi_yellow
"""
"""The colours of each theme, and behind ``$`` its variables; ``-``: Textual's own."""


def _read_table() -> list[Theme]:
    names, *rows = (line.split() for line in _COLOURS.strip().splitlines())
    themes = []
    for column, name in enumerate(names, 1):
        values = {row[0]: row[column] for row in rows if row[column] != "-"}
        colours: dict[str, Any] = {key: value for key, value in values.items() if key[0] != "$"}
        variables = {key[1:]: value for key, value in values.items() if key[0] == "$"}
        is_dark, is_ansi = name != "light", name == "ansi"
        themes.append(Theme(name, dark=is_dark, ansi=is_ansi, variables=variables, **colours))
    return themes


DARK, LIGHT, CONTRAST, ANSI = THEMES = _read_table()
"""In the order in which F4 goes through them. ``ansi`` has the terminal's colours, for NO_COLOR too."""
DEFAULT_VARIABLES = {
    "rule": "#808080 60%",
    "chance-blue": "#4a90d9",
    "chance-pale-orange": "#b98a4a",
    "chance-orange": "#d07a1f",
}


def next_theme(name: str) -> str:
    """The app's own theme that follows this one; the first, for any other theme."""
    names = [theme.name for theme in THEMES]
    return names[(names.index(name) + 1) % len(names)] if name in names else names[0]
