"""The embedded demonstration model: its file, its expander and (with torch) its training."""
