"""The model without a turn: ``/v1/completions``, ``/tokenize``, ``/v1/models``."""
