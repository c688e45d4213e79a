"""Chooses a model's format: by its name in models.toml, or by ``general.architecture``,
``tokenizer.chat_template`` and ``tokenizer.ggml.*`` of its GGUF
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), as llama.cpp does
(https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md)."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError

# The rest of the other families' formats is imported where a model is of one: GPT-OSS loads sooner.
if TYPE_CHECKING:
    from agent.formats.markup.chat_template import ChatTemplate
    from agent.formats.markup.format import MarkupFormat
    from agent.formats.markup.gguf_vocabulary import GgufVocabulary
    from agent.formats.markup.syntax import MessageSyntax

log = logging.getLogger(__name__)

AUTO, HARMONY = "auto", "harmony"
SYNTAX_NAMES = ("qwen3", "qwen3-coder", "llama3", "plain")
FORMAT_NAMES = (AUTO, HARMONY, *SYNTAX_NAMES)
"""The values of ``format =`` in models.toml."""


def is_harmony(values: dict[str, gguf_header.MetadataValue]) -> bool:
    """Tell whether a GGUF's model writes Harmony, by its architecture and chat template."""
    template = values.get("tokenizer.chat_template")
    has_channels = isinstance(template, str) and "<|channel|>" in template
    return has_channels or values.get("general.architecture") == "gpt-oss"


def load_format(
    path: Path, name: str, response_template: dict[str, Any] | None = None
) -> MarkupFormat | None:
    """The format of the model at ``path``, None for Harmony. ``name``: one of `FORMAT_NAMES`.
    ``response_template``: models.toml's. Raises EngineError for another name or an unusable file."""
    if name not in FORMAT_NAMES:
        raise EngineError(
            f"There is no format {name!r}: models.toml may say {', '.join(FORMAT_NAMES)}."
        )
    if name == HARMONY:
        return None
    # The architecture is the header's first key: of a GPT-OSS file nothing else has to be read.
    key = "general.architecture"
    architecture = gguf_header.read_metadata(path, last=key).get(key)
    if name == AUTO and architecture == "gpt-oss":
        return None
    values = gguf_header.read_metadata(path)
    if name == AUTO and is_harmony(values):
        return None
    from agent.formats.markup.chat_template import ChatTemplate, start_renderer
    from agent.formats.markup.default_templates import TEMPLATES
    from agent.formats.markup.format import MarkupFormat
    from agent.formats.markup.gguf_vocabulary import GgufVocabulary
    from agent.formats.markup.known import SYNTAXES, known_syntax
    from agent.formats.markup.template_process import UnusableTemplateError

    source = values.get("tokenizer.chat_template")
    # Its process starts while the vocabulary is read.
    renderer = start_renderer(source) if isinstance(source, str) else None
    vocabulary = GgufVocabulary(path, values)
    begin, end = (_special_text(values, vocabulary, key) for key in ("bos", "eos"))
    try:
        if isinstance(source, str):
            template = ChatTemplate(source, renderer, begin=begin, end=end)
            if name != AUTO:
                return MarkupFormat(SYNTAXES[name], vocabulary, template)
            syntax = _configured_syntax(path, response_template, find_syntax(source, template))
            return MarkupFormat(syntax, vocabulary, template)
    except UnusableTemplateError as error:
        log.warning("the model's chat template is not used: %s", error)
    syntax = SYNTAXES.get(name) or known_syntax(source if isinstance(source, str) else "")
    return MarkupFormat(syntax, vocabulary, ChatTemplate(TEMPLATES[syntax.name]))


def find_syntax(source: str, template: ChatTemplate) -> MessageSyntax:
    from agent.formats.markup.derive import derive_syntax
    from agent.formats.markup.known import table_syntax

    return table_syntax(source) or derive_syntax(source, template)


def template_format(source: str) -> MarkupFormat:
    """Make the format of a chat template alone: an id for each byte. Raises UnusableTemplateError."""
    from agent.formats.markup.chat_template import ChatTemplate
    from agent.formats.markup.format import MarkupFormat
    from agent.formats.markup.vocabulary import ByteVocabulary

    template = ChatTemplate(source, begin="<s>", end="</s>")
    syntax = find_syntax(source, template)
    return MarkupFormat(syntax, ByteVocabulary((*syntax.specials, "<s>", "</s>")), template)


def _configured_syntax(
    path: Path, response_template: dict[str, Any] | None, derived: MessageSyntax
) -> MessageSyntax:
    """The syntax of models.toml's response template, or of the one of the model's repository; else the
    derived one. Raises EngineError if models.toml's is invalid."""
    from agent.formats.markup.response_template import load_response_template

    template, source = response_template, "models.toml"
    try:
        if template is None:
            source = "repository"
            template = json.loads(response_template_path(path).read_bytes())
        syntax = load_response_template(template, source)
    except (ValueError, RecursionError, OSError, AttributeError, TypeError) as error:
        if response_template is not None:
            raise EngineError(f"models.toml: {error}.") from error
        if not isinstance(error, FileNotFoundError):
            log.warning("the repository's response template is not used: %s", error)
        return derived
    ends = tuple(dict.fromkeys((*syntax.ends, *derived.ends)))
    return replace(syntax, ends=ends, turns=derived.turns, end_space=derived.end_space)


def response_template_path(model_path: Path) -> Path:
    """The file next to a GGUF that has the response template of the repository it was pulled from."""
    return model_path.with_name(f".{model_path.name}.response_template.json")


def byte_format(name: str) -> MarkupFormat | None:
    """Make a format without a model's file: an id for each byte, our template; None for Harmony."""
    if name not in SYNTAX_NAMES:
        return None
    from agent.formats.markup.chat_template import ChatTemplate
    from agent.formats.markup.default_templates import TEMPLATES
    from agent.formats.markup.format import MarkupFormat
    from agent.formats.markup.known import SYNTAXES
    from agent.formats.markup.vocabulary import ByteVocabulary

    syntax = SYNTAXES[name]
    return MarkupFormat(syntax, ByteVocabulary(syntax.specials), ChatTemplate(TEMPLATES[name]))


def _special_text(
    values: dict[str, gguf_header.MetadataValue], vocabulary: GgufVocabulary, key: str
) -> str:
    token = values.get(f"tokenizer.ggml.{key}_token_id")
    raw = vocabulary.token_bytes(token) if isinstance(token, int) else None
    return (raw or b"").decode("utf-8", "replace")
