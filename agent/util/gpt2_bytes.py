"""GPT-2's spelling of bytes, which GGUF files and Hugging Face's tokenizers use."""

from itertools import count


def byte_letters() -> list[str]:
    """The printable character for each of the 256 bytes, as ``bytes_to_unicode`` in
    https://github.com/openai/gpt-2/blob/master/src/encoder.py makes them."""
    plain, others = {*range(33, 127), *range(161, 173), *range(174, 256)}, count(256)
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]
