"""models.toml: what its entries may say, and that a wrong one takes nothing from the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.settings import Places
from agent.engine.protocol import EngineError, Sampling
from agent.models import catalog


@pytest.fixture
def where(tmp_path: Path) -> Places:
    (tmp_path / "config").mkdir()
    return Places(tmp_path / "config", tmp_path / "cache", tmp_path / "state")


def write(where: Places, text: str) -> None:
    (where.config / "models.toml").write_text(text)


SERVER = 'engine = "vllm"\nurl = "http://127.0.0.1:8000"\n'


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("[bad]\ncontxt = 5", "there is no setting contxt"),
        ("[bad]\nmodel = 5", "model is a text in quotes"),
        ("[bad]\npath = 5", "path is a text in quotes"),
        ('[bad]\npath = "~nobody-of-that-name/x.gguf"', "home directory"),
        ('[bad]\naliases = "b"', "aliases is a list of names"),
        ("[bad]\naliases = [1]", "aliases is a list of names"),
        ('[bad]\nkeep_alive = "long"', "keep_alive is a number of seconds"),
        ("[bad]\nkeep_alive = nan", "keep_alive is a number of seconds"),
        ("[bad]\ncontext = -1", "context is a number"),
        ("[bad]\nsampling = 1", "sampling is a table"),
        ("[bad]\nsampling = { temprature = 1 }", "sampling has no setting temprature"),
        ('[bad]\nsampling = { temperature = "hot" }', "temperature is a number"),
        ("[bad]\nsampling = { top_k = 0.5 }", "top_k is a whole number"),
        ("[bad]\nsampling = { temperature = nan }", "temperature is a number"),
        ("[bad]\nsampling = { repeat_penalty = 0 }", "repeat_penalty is a number from 0.1 to 10"),
        ("[bad]\nsampling = { logit_bias = [1] }", "logit_bias is a list of"),
        ('[bad]\nengine = "other"', "engine is one of"),
        ('[bad]\nengine = "vllm"', "url is where its server is"),
        (f"[bad]\n{SERVER}wait = -1", "wait is a number of seconds"),
        ("[bad]\nwait = 60", "wait needs engine = "),
        ('[bad]\nkey_env = "KEY"', "key_env needs engine = "),
        ('["bad/name"]\nkeep_alive = 1', "its name has other characters"),
        ("bad = 1", "it is no table: begin it with [bad]"),
    ],
)
def test_a_wrong_entry_is_named_and_the_others_work(where: Places, entry: str, why: str) -> None:
    right = f'[right]\n{SERVER}aliases = ["r"]\n'
    write(where, f"{entry}\n{right}")
    known = catalog.known(where)
    wrong = [model for model in known.values() if model.problem]
    assert [model.name for model in wrong] == ["bad/name" if "/name" in entry else "bad"]
    with pytest.raises(EngineError) as caught:
        catalog.choose(wrong[0].name, where)
    told = str(caught.value)
    assert why in told and told.startswith(f"The entry [{wrong[0].name}] of {where.config}")
    assert catalog.choose("r", where).name == "right" and "tiny" in known
    assert catalog.default(where) == "right"


def test_a_wrong_entry_goes_by_its_aliases_too(where: Places) -> None:
    write(where, '[bad]\naliases = ["b"]\nkeep_alive = -1\n')
    with pytest.raises(EngineError, match=r"The entry \[bad\] .* keep_alive"):
        catalog.choose("b", where)


def test_a_wrong_setting_of_a_model_of_ours_is_its_alone(where: Places) -> None:
    write(where, "[gpt-oss-20b]\ncontext = true\n")
    known = catalog.known(where)
    assert "context is a number" in (known["gpt-oss-20b"].problem or "")
    assert not known["gpt-oss-120b"].problem


def test_a_file_that_is_no_toml_is_an_error(where: Places) -> None:
    write(where, "[mine\n")
    with pytest.raises(EngineError, match=r"Cannot read .*models\.toml"):
        catalog.known(where)


def test_sampling_is_as_it_is_written(where: Places) -> None:
    write(where, "[m]\nsampling = { temperature = 1, top_k = 5, logit_bias = [[7, -1.5]] }\n")
    found = catalog.known(where)["m"].sampling
    assert found == Sampling(temperature=1.0, top_k=5, logit_bias=((7, -1.5),))


def test_how_long_a_server_is_waited_for(where: Places) -> None:
    write(where, f"[m]\n{SERVER}wait = 300\n")
    address = catalog.known(where)["m"].address
    assert address is not None and address.wait == 300.0
