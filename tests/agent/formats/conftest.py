"""How many examples hypothesis tries; more with ``--hypothesis-profile=more``."""

from hypothesis import settings

settings.register_profile("bounded", max_examples=60, deadline=None)
settings.register_profile("more", max_examples=5_000, deadline=None)
if settings.get_current_profile_name() != "more":
    settings.load_profile("bounded")
