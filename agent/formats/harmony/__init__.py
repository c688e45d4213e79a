"""Harmony, the prompt format of gpt-oss.

The format is described in the guide at https://cookbook.openai.com/articles/openai-harmony. From it
are the roles and channels, the header's syntax, the special tokens, that a recipient may be in the
role's or in the channel's part of a header, and that ``<|return|>`` becomes ``<|end|>`` in a history.
Rendering and the tokenizer are those of openai-harmony (https://github.com/openai/harmony). Its
parser is not used, since it refuses malformed streams.

A generated message, after ``<|start|>assistant`` in the prompt::

    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>
    └──────────────────────────── header ───────────────────────────┘└ body ┘└ stop ┘

Our parser mends malformed streams and reports each repair. The repairs, by ``rule``:

- The frame of a message: ``start_missing``, ``start_repeated``, ``end_missing``, ``header_missing``
  (bare text is the answer), ``message_missing`` (the header's text is the body),
  ``header_abandoned`` (another header began before any text), ``header_in_body`` (repeated there),
  ``stop_token`` (a call ended as a message, or a message as a call), ``stray_token`` (markup without
  a meaning at that point, or an id that does not exist), ``stray_text`` (blanks and punctuation
  between two messages).
- What ends the generation: ``turn_invented`` (another role's message begins), ``answer_repeated``
  (another final message begins behind a complete one).
- Role: ``role_repeated``, ``role_unknown``, ``role_is_channel``, ``role_is_tool``.
- Channel: ``channel_misspelt``, ``channel_repeated`` (the last one counts), ``channel_unknown`` (the
  message is reasoning), ``channel_is_tool``.
- Recipient: ``recipient_bare`` (no ``to=``), ``recipient_repeated`` (the first one counts, but
  for a role before a tool), ``recipient_dropped`` (reasoning follows instead of a call).
- ``arguments_in_header``; ``header_text``: anything else.

These stay text: header words in a message that begins with special tokens (a model that has these does
not spell them), in quotation marks, with blanks or line breaks between them before a lower-case letter,
and ``final`` or ``commentary`` alone before one (``finally``).
"""
