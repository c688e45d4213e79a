"""What a person did wrong, in one sentence."""


class UserError(Exception):
    """Wrong options or files; printed on stderr as it is, exit code 2."""
