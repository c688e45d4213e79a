"""Harmony, as gpt-oss writes and reads it.

The parser mends what is malformed and says so. Its repairs, by ``rule``:

- A message's frame: ``start_missing``, ``start_repeated``, ``end_missing``, ``header_missing`` (bare
  text: the answer), ``message_missing`` (the header's text is the body), ``header_abandoned`` (another
  began before it said anything), ``header_in_body`` (the header was repeated in the body),
  ``stop_token`` (a call ended as a message, or a message as a call), ``stray_token`` (markup that means
  nothing there, or an id that does not exist).
- Role: ``role_repeated``, ``role_unknown``, ``role_is_channel``, ``role_is_tool``.
- Channel: ``channel_misspelt``, ``channel_repeated`` (the last one counts), ``channel_unknown`` (it is
  reasoning then), ``channel_is_tool``.
- Recipient: ``recipient_bare`` (no ``to=``), ``recipient_repeated`` (the first one counts),
  ``recipient_dropped`` (thoughts follow instead of a call).
- ``arguments_in_header``; ``header_text``: anything else.
"""
