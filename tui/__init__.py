"""The app."""

import os

# Read where Textual is imported. With its own 60 a typed character waits up to 17 ms to be painted,
# and as long again where a paint was late.
os.environ.setdefault("TEXTUAL_FPS", "120")
