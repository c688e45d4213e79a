"""Formats of models that write markup in text: all but gpt-oss.

Prompts come from the model's own chat template (`chat_template`). Generations are parsed by a `syntax`:
data that is derived from that template (`derive`), or `known`. The parser (`parser`, `calls`) mends
malformed generations and reports each repair. The repairs, by ``rule``:

- Thinking: ``think_unclosed`` (a call or the end came first; after the call reasoning continues),
  ``think_unopened`` (``</think>`` in the answer), ``think_repeated``.
- Calls: ``call_unclosed`` (the closing tag is missing), ``call_unopened`` (``<function=`` without
  ``<tool_call>``), ``call_text`` (text of a call other than name and arguments), ``call_malformed``
  (``<tool_call>`` without a call), ``call_cut`` (the stream ended before its name),
  ``parameter_unclosed``.
- ``turn_invented``: another role's message begins, which ends the generation.
- ``stray_tag``, ``stray_token``: markup without a meaning at that point.
"""
