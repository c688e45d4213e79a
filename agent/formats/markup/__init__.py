"""Formats of models that write markup in text: Qwen3, Qwen3-Coder, Llama 3, and plain text.

Prompts come from the model's own chat template (`chat_template`), generations are parsed by the tags
of its `dialects`. The format of calls is that of the models' own documentation: Hermes' JSON in
``<tool_call>`` (https://github.com/NousResearch/Hermes-Function-Calling) for Qwen3, tags for
Qwen3-Coder (https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct), bare JSON or
``<|python_tag|>`` for Llama 3 (https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/).

The parser mends malformed generations and reports each repair. The repairs, by ``rule``:

- Thinking: ``think_unclosed`` (a call or the end came first; after the call reasoning continues),
  ``think_unopened`` (``</think>`` in the answer), ``think_repeated``.
- Calls: ``call_unclosed`` (the closing tag is missing), ``call_unopened`` (``<function=`` without
  ``<tool_call>``), ``call_text`` (text of a call other than name and arguments), ``call_malformed``
  (``<tool_call>`` without a call), ``call_cut`` (the stream ended before its name),
  ``parameter_unclosed``.
- ``turn_invented``: another role's message begins, which ends the generation.
- ``stray_tag``, ``stray_token``: markup without a meaning at that point.
"""
