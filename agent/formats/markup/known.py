"""The syntaxes that models.toml names, and those of families whose chat templates do not show them."""

from agent.formats.markup.syntax import ANY, CallSyntax, MessageSyntax

HERMES = CallSyntax("object", open="<tool_call>\n", close="\n</tool_call>")
TAGGED = CallSyntax(
    "tags", open="<tool_call>\n<function=", after_name=">\n", close="</function>\n</tool_call>",
    key_open="<parameter=", key_close=">\n", value_close="\n</parameter>\n",
)  # fmt: skip

_ENDS, _TURNS = ("<|im_end|>", "<|endoftext|>"), ("<|im_start|>",)
_LLAMA_ENDS = ("<|eot_id|>", "<|eom_id|>")

SYNTAXES = {
    syntax.name: syntax
    for syntax in (
        MessageSyntax("qwen3", calls=(HERMES, TAGGED), ends=_ENDS, turns=_TURNS),
        MessageSyntax("qwen3-coder", calls=(TAGGED, HERMES), ends=_ENDS, turns=_TURNS),
        MessageSyntax(
            "llama3", calls=(CallSyntax("object", arguments_key="parameters"),),
            ends=(*_LLAMA_ENDS, "<|end_of_text|>"), turns=("<|start_header_id|>",),
            bare_calls=True, code_tag="<|python_tag|>",
        ),
        MessageSyntax(
            "plain", ends=(*_ENDS, "<end_of_turn>", "<|eot_id|>", "</s>"), source="none",
            turns=(*_TURNS, "<start_of_turn>", "<|start_header_id|>", "[INST]"),
        ),
    )
}  # fmt: skip
"""The syntaxes by the names that ``format =`` in models.toml has."""


_TABLE = {
    "<|open|>": MessageSyntax(
        "kimi-k3",
        calls=(CallSyntax(
            "tags", section_open="<|open|>tools<|sep|>", section_close="<|close|>tools<|sep|>",
            open='<|open|>call tool="', after_name=f'" index="{ANY}"<|sep|>',
            key_open='<|open|>argument key="', key_close=f'" type="{ANY}"<|sep|>',
            value_close="<|close|>argument<|sep|>", close="<|close|>call<|sep|>",
        ),),
        ends=("<|end_of_msg|>",),
        ignored=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        think_open="<|open|>think<|sep|>",
        think_close="<|close|>think<|sep|><|open|>response<|sep|>",
    ),
    "[BEGIN FINAL RESPONSE]": MessageSyntax(
        "apriel",
        calls=(CallSyntax(
            section_open="<tool_calls>[", section_close="]</tool_calls>", separator=", ",
        ),),
        ends=("<|end|>",), ignored=("[END FINAL RESPONSE]",), end_space="\n",
        think_open="Here are my reasoning steps:\n", think_close="\n[BEGIN FINAL RESPONSE]\n",
    ),
    "<atem:": MessageSyntax(
        "muse",
        calls=(CallSyntax(
            "tags", section_open="<atem:function_calls>\n", section_close="</atem:function_calls>",
            open='<atem:invoke name="', after_name='">\n', close="</atem:invoke>\n",
            key_open='<atem:parameter name="', key_close='">', value_close="</atem:parameter>\n",
        ),),
        ends=("<|eot|>",), ignored=("<|eom|>",),
        header=("<|start|>assistant", "<|message|>", "=self"),
        think_open="", think_close="<|eom|><|start|>assistant to=user<|message|>",
    ),
    ">>>all": MessageSyntax(
        "functionary", calls=(CallSyntax("json", open=">>>", after_name="\n", separator=""),),
        ends=_LLAMA_ENDS, ignored=(">>>all",),
    ),
}  # fmt: skip
"""Syntaxes of families, by a text that only their chat templates have."""

_PYTHON = CallSyntax(
    "python", after_name="(", separator=", ",
    section_open="<|tool_call_start|>[", section_close="]<|tool_call_end|>",
)  # fmt: skip
_CALLS = {
    "<|tool_call_start|>": _PYTHON,
    "<|tool_list_start|>": _PYTHON,
    "List of tools: ": _PYTHON,
    "<|tool_call|>": CallSyntax(section_open="<|tool_call|>[", section_close="]", separator=", "),
    "functools[": CallSyntax(section_open=" functools[", section_close="]", separator=", "),
    "Action:": CallSyntax(
        section_open="Action: ```json\n[", section_close="\n]```", separator=",\n",
        name_key="tool_name", arguments_key="parameters",
    ),
    "tool▁calls▁begin": CallSyntax(
        "json", section_open="<｜tool▁calls▁begin｜>", section_close="<｜tool▁calls▁end｜>",
        open="<｜tool▁call▁begin｜>function<｜tool▁sep｜>", after_name="\n```json\n",
        close="\n```<｜tool▁call▁end｜>",
    ),
    "<function=": TAGGED,
    "<tool_call>": HERMES,
}  # fmt: skip
"""Calls by a text in chat templates that describe them, but leave them out of histories."""


def table_syntax(source: str) -> MessageSyntax | None:
    """The syntax of a family whose chat template does not show it."""
    found = (syntax for text, syntax in _TABLE.items() if text in source)
    return None if "</thinking>" in source else next(found, None)


def described_calls(source: str) -> tuple[CallSyntax, ...]:
    """The calls that a chat template describes to the model; empty: none that are known."""
    return tuple(calls for text, calls in _CALLS.items() if text in source)[:1]


def known_syntax(source: str) -> MessageSyntax:
    """The known syntax that is nearest to an unusable chat template."""
    if "<function=" in source and "<parameter=" in source:
        return SYNTAXES["qwen3-coder"]
    if "<tool_call>" in source:
        return SYNTAXES["qwen3"]
    llama = "<|start_header_id|>" in source or "<|python_tag|>" in source
    return SYNTAXES["llama3" if llama else "plain"]
