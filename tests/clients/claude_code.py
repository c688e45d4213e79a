"""The environment of Claude Code: one model for everything, and no reports to anyone."""

SETTINGS = {
    "ANTHROPIC_AUTH_TOKEN": "none",
    "ANTHROPIC_MODEL": "tiny",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "tiny",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "IS_SANDBOX": "1",
}
