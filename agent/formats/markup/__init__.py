"""The families that write markup over text: Qwen3, Qwen3-Coder, Llama 3, and plain text.

The parser mends what is malformed and says so. Its repairs, by ``rule``:

- Thinking: ``think_unclosed`` (a call or the end came first; after the call it is thinking still),
  ``think_unopened`` (``</think>`` in the answer), ``think_repeated``.
- Calls: ``call_unclosed`` (the closing tag is missing), ``call_unopened`` (``<function=`` without
  ``<tool_call>``), ``call_text`` (what stood in it beside name and arguments), ``call_malformed``
  (``<tool_call>`` that no call follows), ``call_cut`` (the stream ended before its name),
  ``parameter_unclosed``.
- ``stray_tag``, ``stray_token``: markup that means nothing there.
"""
