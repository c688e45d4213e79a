"""Which format a model speaks, and that format, ready to use."""

from __future__ import annotations

import logging
from pathlib import Path

from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError
from agent.formats.markup.chat_template import ChatTemplate, TemplateUnusable
from agent.formats.markup.default_templates import TEMPLATES
from agent.formats.markup.dialects import FAMILIES
from agent.formats.markup.format import MarkupFormat
from agent.formats.markup.gguf_vocabulary import GgufVocabulary
from agent.formats.markup.vocabulary import Bytes

log = logging.getLogger(__name__)

AUTO, HARMONY = "auto", "harmony"
NAMES = (AUTO, HARMONY, *FAMILIES)
"""What ``format =`` in models.toml may say."""


def told(values: dict[str, gguf_header.Value]) -> str:
    """The format that a GGUF's header tells of: by its architecture, and its template's own tags."""
    template = values.get("tokenizer.chat_template")
    text = template if isinstance(template, str) else ""
    if values.get("general.architecture") == "gpt-oss" or "<|channel|>" in text:
        return HARMONY
    if "<function=" in text and "<parameter=" in text:
        return "qwen3-coder"
    if "<tool_call>" in text:
        return "qwen3"
    if "<|start_header_id|>" in text or "<|python_tag|>" in text:
        return "llama3"
    return "plain"


def of_file(path: Path, name: str) -> MarkupFormat | None:
    """The format of the model in ``path``; None: Harmony. Raises EngineError."""
    if name not in NAMES:
        raise EngineError(f"There is no format {name!r}: models.toml may say {', '.join(NAMES)}.")
    if name == HARMONY:
        return None
    # The architecture stands first: of a GPT-OSS file nothing else has to be read.
    architecture = gguf_header.read(path, last="general.architecture").get("general.architecture")
    if name == AUTO and architecture == "gpt-oss":
        return None
    values = gguf_header.read(path)
    name = told(values) if name == AUTO else name
    if name == HARMONY:
        return None
    vocabulary = GgufVocabulary(path, values)
    return MarkupFormat(FAMILIES[name], vocabulary, _template(name, values, vocabulary))


def of_bytes(name: str) -> MarkupFormat | None:
    """A format without a model's file: one id a byte, our own template; None: Harmony."""
    if name not in FAMILIES:
        return None
    family = FAMILIES[name]
    return MarkupFormat(family, Bytes(family.specials), ChatTemplate(TEMPLATES[name]))


def _template(
    name: str, values: dict[str, gguf_header.Value], vocabulary: GgufVocabulary
) -> ChatTemplate:
    """The file's own template, or ours where that cannot be used."""
    source = values.get("tokenizer.chat_template")
    if isinstance(source, str):
        begin, end = (_spelled(values, vocabulary, key) for key in ("bos", "eos"))
        try:
            return ChatTemplate(source, begin=begin, end=end)
        except TemplateUnusable as error:
            log.warning("the model's chat template is not used: %s", error)
    return ChatTemplate(TEMPLATES[name])


def _spelled(values: dict[str, gguf_header.Value], vocabulary: GgufVocabulary, key: str) -> str:
    token = values.get(f"tokenizer.ggml.{key}_token_id")
    raw = vocabulary.raw(token) if isinstance(token, int) else None
    return (raw or b"").decode("utf-8", "replace")
