"""models.toml: what its entries may have, and that a wrong one leaves the others usable."""

import json
import os
import re
from pathlib import Path

import pytest

from agent.config import settings
from agent.config.paths import Paths
from agent.engine.protocol import EngineError, Sampling
from agent.models import catalog, resolve


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "config").mkdir()
    return Paths(tmp_path / "config", tmp_path / "cache", tmp_path / "state")


def write(paths: Paths, text: str) -> None:
    (paths.config / "models.toml").write_text(text)


SERVER = 'engine = "vllm"\nurl = "http://127.0.0.1:8000"\n'


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("[bad]\ncontxt = 5", "there is no setting contxt"),
        ("[bad]\nmodel = 5", "model must be a text in quotes"),
        ("[bad]\npath = 5", "path must be a text in quotes"),
        ('[bad]\npath = "~nobody-of-that-name/x.gguf"', "is wrong: path names no user."),
        ('[bad]\naliases = "b"', "aliases must be a list of names"),
        ("[bad]\naliases = [1]", "aliases must be a list of names"),
        ('[bad]\nkeep_alive = "long"', "keep_alive must be a number of seconds"),
        ("[bad]\nloop_guard = 3", "loop_guard must be true, false, or a table"),
        ("[bad]\nloop_guard = { tokens = 3 }", "loop_guard has no setting tokens"),
        ("[bad]\nloop_guard = { min_tokens = 0 }", "min_tokens of loop_guard must be a number"),
        ("[bad]\nhedge_below = true", "hedge_below must be a number from 0 to 1"),
        ("[bad]\nhedge_below = 1.5", "hedge_below must be a number from 0 to 1"),
        ("[bad]\nhedge_below = nan", "hedge_below must be a number from 0 to 1"),
        ("[bad]\nkeep_alive = nan", "keep_alive must be a number of seconds"),
        ("[bad]\ncontext = -1", "context must be a number"),
        ('[bad]\nspeculation = "guess"', "speculation must be one of off, lookup"),
        ("[bad]\nspeculation = true", "speculation must be one of off, lookup"),
        ("[bad]\ndraft = 5", "draft must be a text in quotes"),
        (f'[bad]\n{SERVER}draft = "tiny"', "draft needs engine = 'llama.cpp'"),
        ("[bad]\nsampling = 1", "sampling must be a table"),
        ("[bad]\nsampling = { temprature = 1 }", "sampling has no setting temprature"),
        ('[bad]\nsampling = { temperature = "hot" }', "temperature must be a number"),
        ("[bad]\nsampling = { top_k = 0.5 }", "top_k must be a whole number"),
        ("[bad]\nsampling = { temperature = nan }", "temperature must be a number"),
        (
            "[bad]\nsampling = { repeat_penalty = 0 }",
            "repeat_penalty must be a number from 0.1 to 10",
        ),
        ("[bad]\nsampling = { logit_bias = [1] }", "logit_bias must be a list of"),
        ("[bad]\nsampling = { logit_bias = [[inf, 1]] }", "logit_bias must be a list of"),
        ("[bad]\nsampling = { logit_bias = [[1, nan]] }", "logit_bias must be a list of"),
        ('[bad]\nengine = "other"', "engine must be one of"),
        ('[bad]\nengine = "vllm"', "url must be the server"),
        ('[bad]\nengine = "vllm"\nurl = []', "url must be the server"),
        ('[bad]\nengine = "vllm"\nurl = ["http://a", 5]', "url must be a text in quotes or a list"),
        ('[bad]\nengine = "vllm"\nurl = ["http://a", "http://a/v1/"]', "url has an address twice"),
        (f"[bad]\n{SERVER}wait = -1", "wait must be a number of seconds"),
        ("[bad]\nwait = 60", "wait needs engine = "),
        ('[bad]\nkey_env = "KEY"', "key_env needs engine = "),
        ('["bad/name"]\nkeep_alive = 1', "its name may have only"),
        ('[bad]\npath = "a\\u0000b"', "no path has a NUL in it"),
        ("bad = 1", "it must be a table: begin it with [bad]"),
        ("[bad]\nresponse_template = 5", "response_template must be a table, or the path"),
        ('[bad]\nresponse_template = "no.json"', "response_template: cannot read no.json: "),
        ('[bad]\nresponse_template = "/dev/null"', "response_template: cannot read /dev/null: "),
    ],
)
def test_wrong_entry_has_problem_and_others_work(paths: Paths, entry: str, why: str) -> None:
    right = f'[right]\n{SERVER}aliases = ["r"]\n'
    write(paths, f"{entry}\n{right}")
    known = catalog.load_catalog(paths)
    wrong = [model for model in known.values() if model.problem]
    assert [model.name for model in wrong] == ["bad/name" if "/name" in entry else "bad"]
    with pytest.raises(EngineError) as caught:
        resolve.resolve_model(wrong[0].name, paths)
    message = str(caught.value)
    assert why in message and message.startswith(f"The entry [{wrong[0].name}] of {paths.config}")
    assert resolve.resolve_model("r", paths).name == "right" and "tiny" in known
    assert resolve.default_name(paths) == "tiny"


def test_several_addresses_are_replicas(paths: Paths) -> None:
    write(paths, '[far]\nengine = "vllm"\nurl = ["http://a:1/v1", "http://u:secret@b"]\nwait = 7\n')
    endpoint = catalog.load_catalog(paths)["far"].endpoint
    assert endpoint is not None and str(endpoint) == "http://a:1, http://b"
    assert [(each.url, each.wait, str(each)) for each in endpoint.replicas()] == [
        ("http://a:1", 7.0, "http://a:1"),
        ("http://u:secret@b", 7.0, "http://b"),
    ]


def test_default_model_is_on_this_machine(paths: Paths, tmp_path: Path) -> None:
    """One on a server is chosen by name only."""
    write(paths, f"[far]\n{SERVER}")
    assert resolve.default_name(paths) == "tiny"
    (tmp_path / "here.gguf").touch()
    write(paths, f'[far]\n{SERVER}[here]\npath = "{tmp_path}/here.gguf"\n')
    assert resolve.default_name(paths) == "here"
    settings.save_setting(paths, "model", "far")
    assert resolve.default_name(paths) == "far"


def test_wrong_entry_is_reported_by_alias(paths: Paths) -> None:
    write(paths, '[bad]\naliases = ["b"]\nkeep_alive = -1\n')
    with pytest.raises(EngineError, match=r"The entry \[bad\] .* keep_alive"):
        resolve.resolve_model("b", paths)


def test_wrong_field_of_shipped_entry_breaks_only_it(paths: Paths) -> None:
    write(paths, "[gpt-oss-20b]\ncontext = true\n")
    known = catalog.load_catalog(paths)
    assert "context must be a number" in (known["gpt-oss-20b"].problem or "")
    assert not known["gpt-oss-120b"].problem


def test_load_catalog_with_byte_order_mark_is_read(paths: Paths) -> None:
    write(paths, f"\ufeff[right]\r\n{SERVER}")
    assert catalog.load_catalog(paths)["right"].endpoint is not None


@pytest.mark.parametrize("text", ["[mine\n", "a = " + "[" * 3000], ids=["invalid", "nested deeply"])
def test_load_catalog_broken_toml_raises(paths: Paths, text: str) -> None:
    write(paths, text)
    with pytest.raises(EngineError, match=r"Cannot read .*models\.toml"):
        catalog.load_catalog(paths)


def test_load_catalog_pipe_raises(paths: Paths) -> None:
    os.mkfifo(paths.config / "models.toml")
    with pytest.raises(EngineError, match=r"models\.toml: it is a pipe"):
        catalog.load_catalog(paths)


def test_sampling_is_read_as_written(paths: Paths) -> None:
    write(paths, "[m]\nsampling = { temperature = 1, top_k = 5, logit_bias = [[7, -1.5]] }\n")
    sampling = catalog.load_catalog(paths)["m"].sampling
    assert sampling == Sampling(temperature=1.0, top_k=5, logit_bias=((7, -1.5),))


def test_remote_wait_is_read(paths: Paths) -> None:
    write(paths, f"[m]\n{SERVER}wait = 300\n")
    endpoint = catalog.load_catalog(paths)["m"].endpoint
    assert endpoint is not None and endpoint.wait == 300.0


def test_response_template_is_table_or_file(paths: Paths, tmp_path: Path) -> None:
    """A file may be a template, or a tokenizer_config.json that has one."""
    template = {"fields": {"content": {"open": "<a>"}}}
    (tmp_path / "bare.json").write_text(json.dumps(template))
    (tmp_path / "config.json").write_text(json.dumps({"response_template": template, "a": 1}))
    (tmp_path / "list.json").write_text("[]")
    entries = "".join(
        f"[{name}]\nresponse_template = '{tmp_path / name}.json'\n"
        for name in ("bare", "config", "list")
    )
    write(paths, entries + '[table]\nresponse_template.fields.content = { open = "<a>" }\n')
    known = catalog.load_catalog(paths)
    assert known["tiny"].response_template is None
    assert all(known[name].response_template == template for name in ("bare", "config", "table"))
    assert "list.json must hold a JSON object" in (known["list"].problem or "")


@pytest.mark.parametrize(
    ("pulled", "used"),
    [
        (["big-q4.gguf"], "big-q4.gguf"),
        (
            ["big-q4-00002-of-00002.gguf", "big-q4-00001-of-00002.gguf"],
            "big-q4-00001-of-00002.gguf",
        ),
        (["big-q4.gguf", "big-Q4.gguf"], "big-Q4.gguf"),
        (["big-q8.gguf", ".big-q4.gguf.123.part"], "big-Q4.gguf"),
        ([], "big-Q4.gguf"),
    ],
)
def test_pulled_file_of_former_name_stays_in_use(
    paths: Paths, pulled: list[str], used: str
) -> None:
    """The hub's repositories change the case of names, and merge parts."""
    folder = catalog.models_folder(paths) / "big"
    folder.mkdir(parents=True)
    for name in pulled:
        (folder / name).touch()
    write(paths, '[big]\nrepo = "o/r"\nfile = "big-Q4.gguf"\n')
    model = catalog.load_catalog(paths)["big"]
    assert (model.path, model.files) == (folder / used, ("big-Q4.gguf",))
    assert model.installed is (used in pulled)


def test_shipped_entries_can_be_pulled(paths: Paths) -> None:
    models = list(catalog.load_catalog(paths).values())
    assert not [model.problem for model in models if model.problem]
    pulled = [model for model in models if not model.embedded]
    assert all(m.repo and m.file and m.license and m.description for m in pulled)
    for model in pulled:
        sizes = re.findall(r"about ([0-9.]+) GB", model.description)
        assert [round((model.download_size or 0) / 1e9 / float(size), 1) for size in sizes] == [1.0]
