"""A conversation as token ids, and how it is compacted and converted."""
