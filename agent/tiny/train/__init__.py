"""Training and evaluation of the embedded model; not a part of the wheel."""
