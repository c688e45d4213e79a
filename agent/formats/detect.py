"""Chooses a model's format: by its name in models.toml, or by ``general.architecture``,
``tokenizer.chat_template`` and ``tokenizer.ggml.*`` of its GGUF
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), as llama.cpp does
(https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError
from agent.formats.markup.dialects import DIALECTS

# The rest of the other families' formats is imported where a model is of one: GPT-OSS loads sooner.
if TYPE_CHECKING:
    from agent.formats.markup.format import MarkupFormat
    from agent.formats.markup.gguf_vocabulary import GgufVocabulary

log = logging.getLogger(__name__)

AUTO, HARMONY = "auto", "harmony"
FORMAT_NAMES = (AUTO, HARMONY, *DIALECTS)
"""The values of ``format =`` in models.toml."""


def detect_format(values: dict[str, gguf_header.MetadataValue]) -> str:
    """Return the name of the format, by a GGUF's architecture and the tags in its chat template."""
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


def load_format(path: Path, name: str) -> MarkupFormat | None:
    """The format of the model at ``path``, None for Harmony. ``name``: one of `FORMAT_NAMES`. Raises
    EngineError for another name or an unusable file."""
    if name not in FORMAT_NAMES:
        raise EngineError(
            f"There is no format {name!r}: models.toml may say {', '.join(FORMAT_NAMES)}."
        )
    if name == HARMONY:
        return None
    # The architecture is the header's first key: of a GPT-OSS file nothing else has to be read.
    architecture = gguf_header.read_metadata(path, last="general.architecture").get(
        "general.architecture"
    )
    if name == AUTO and architecture == "gpt-oss":
        return None
    values = gguf_header.read_metadata(path)
    name = detect_format(values) if name == AUTO else name
    if name == HARMONY:
        return None
    from agent.formats.markup.chat_template import ChatTemplate, start_renderer
    from agent.formats.markup.default_templates import TEMPLATES
    from agent.formats.markup.format import MarkupFormat
    from agent.formats.markup.gguf_vocabulary import GgufVocabulary
    from agent.formats.markup.template_process import UnusableTemplateError

    source = values.get("tokenizer.chat_template")
    # Its process starts while the vocabulary is read.
    renderer = start_renderer(source) if isinstance(source, str) else None
    vocabulary = GgufVocabulary(path, values)
    begin, end = (_special_text(values, vocabulary, key) for key in ("bos", "eos"))
    try:
        if isinstance(source, str):
            template = ChatTemplate(source, renderer, begin=begin, end=end)
            return MarkupFormat(DIALECTS[name], vocabulary, template)
    except UnusableTemplateError as error:
        log.warning("the model's chat template is not used: %s", error)
    return MarkupFormat(DIALECTS[name], vocabulary, ChatTemplate(TEMPLATES[name]))


def byte_format(name: str) -> MarkupFormat | None:
    """Make a format without a model's file: an id for each byte, our template; None for Harmony."""
    if name not in DIALECTS:
        return None
    from agent.formats.markup.chat_template import ChatTemplate
    from agent.formats.markup.default_templates import TEMPLATES
    from agent.formats.markup.format import MarkupFormat
    from agent.formats.markup.vocabulary import ByteVocabulary

    dialect = DIALECTS[name]
    return MarkupFormat(dialect, ByteVocabulary(dialect.specials), ChatTemplate(TEMPLATES[name]))


def _special_text(
    values: dict[str, gguf_header.MetadataValue], vocabulary: GgufVocabulary, key: str
) -> str:
    token = values.get(f"tokenizer.ggml.{key}_token_id")
    raw = vocabulary.token_bytes(token) if isinstance(token, int) else None
    return (raw or b"").decode("utf-8", "replace")
