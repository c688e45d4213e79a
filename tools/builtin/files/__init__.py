"""The files hand: reading below a root, and changes that can be taken back."""
