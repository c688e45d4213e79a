"""clients.toml: every text can be filled, and JSON comes out where a client reads JSON."""

import json

import pytest

from agent.cli.launch import as_text, fields_of, filled, profiles

FIELDS = fields_of("http://127.0.0.1:5", "secret", "some-model", 32_768, "/tmp/folder")


@pytest.mark.parametrize("name", profiles())
def test_profile_has_the_address_and_the_model_in_what_the_client_reads(name: str) -> None:
    profile = profiles()[name]
    parts = (profile.arguments, profile.environment, profile.files, profile.saved)
    texts = [
        as_text(filled(dict(part) if hasattr(part, "items") else part, FIELDS)) for part in parts
    ]
    given = " ".join(texts[:3])
    assert "http://127.0.0.1:5" in given and "some-model" in given and "{" not in texts[0][:1]
    sizes = ("32768", "24576", "8192")  # the context, what a prompt and what an answer may have
    assert name == "cline" or any(size in given for size in sizes)
    assert bool(profile.path) == bool(profile.use) == bool(profile.saved)
    assert not profile.saved or "http://127.0.0.1:5" in texts[3]


def test_number_is_a_number_in_json_and_a_text_in_a_variable() -> None:
    assert json.loads(as_text(filled({"limit": "{context}"}, FIELDS))) == {"limit": 32768}
    assert as_text(filled("{output}", FIELDS)) == "8192"
    assert filled("{context_text}", FIELDS) == "32768"


def test_unknown_context_is_named() -> None:
    fields = fields_of("http://127.0.0.1:5", "***", "m", None, "")
    assert filled("{context}", fields) == "<context>" and filled("{prompt}", fields) == "<prompt>"


@pytest.mark.parametrize(("context", "compacts_at"), [(32_768, 26_000), (200_000, 160_000)])
def test_claude_code_compacts_within_the_context(context: int, compacts_at: int) -> None:
    fields = fields_of("http://127.0.0.1:1", "key", "tiny", context, "/folder")
    variables = filled(profiles()["claude"].environment, fields)
    window = variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"]
    assert window >= 100_000, "it takes no smaller one"
    assert window * variables["CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"] // 100 == compacts_at
