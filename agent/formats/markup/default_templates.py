"""Chat templates of our own, in Jinja, for models whose files have none that can be used: ChatML with
Hermes' or with tagged calls, and Llama 3's headers, as these families were trained."""

_CHATML = """\
{%- set system = messages[0].content if messages[0].role == "system" else "" %}
{%- if system or tools %}
{{- "<|im_start|>system\n" ~ system }}
{%- if tools %}
{{- ("\n\n" if system else "") ~ "# Tools\n\nThese functions can be called:\n<tools>" }}
{%- for tool in tools %}{{ "\n" ~ tool | tojson }}{% endfor %}
{{- "\n</tools>\n\n" }}
%CALLS%
{%- endif %}
{{- "<|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{{- "<|im_start|>user\n<tool_response>\n" ~ message.content ~ "\n</tool_response><|im_end|>\n" }}
{%- elif message.role != "system" or not loop.first %}
{{- "<|im_start|>" ~ message.role ~ "\n" ~ message.content }}
{%- for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}
{{- "<|im_end|>\n" }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %}"""

_HERMES = """\
{{- "A call is one JSON object with the function's name and its arguments, within tags:\n" }}
{{- '<tool_call>\n{"name": "the_name", "arguments": {"key": "value"}}\n</tool_call>' }}"""

_TAGGED = """\
{{- "A call names the function and gives each argument, within tags:\n" }}
{{- "<tool_call>\n<function=the_name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n" }}
{{- "</tool_call>" }}"""

_LLAMA3 = """\
{%- set system = messages[0].content if messages[0].role == "system" else "" %}
{{- "<|begin_of_text|>" }}
{%- if system or tools %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools %}
{{- "Environment: ipython\n\nThese functions can be called. A call is one JSON object:\n" }}
{{- '{"name": "the_name", "parameters": {"key": "value"}}\n' }}
{%- for tool in tools %}{{ "\n" ~ tool | tojson ~ "\n" }}{% endfor %}
{{- "\n" }}
{%- endif %}
{{- system ~ "<|eot_id|>" }}
{%- endif %}
{%- for message in (messages[1:] if system else messages) %}
{%- set role = "ipython" if message.role == "tool" else message.role %}
{{- "<|start_header_id|>" ~ role ~ "<|end_header_id|>\n\n" ~ message.content }}
{%- for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}
{{- "<|eot_id|>" }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- "<|start_header_id|>assistant<|end_header_id|>\n\n" }}
{%- endif %}"""

TEMPLATES = {
    "qwen3": _CHATML.replace("%CALLS%", _HERMES),
    "qwen3-coder": _CHATML.replace("%CALLS%", _TAGGED),
    "llama3": _LLAMA3,
    "plain": _CHATML.replace("%CALLS%", _HERMES),
}
