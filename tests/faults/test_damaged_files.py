"""Files that were changed, cut short or exchanged after they were written."""

import json
import os
import random
from functools import partial

import polars as pl
import pytest
import torch

import tableless
from tableless import load_scheme, save_scheme
from tableless.data.config import DataConfig
from tableless.files.whole import append_line, load_tensors, read_lines, save_tensors
from tableless.recommender.comparison import Plan, run_comparison
from tableless.recommender.journal import TrainingJournal
from tableless.recommender.run_directory import RunDirectory
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.training import TrainConfig
from tests.data.tiny import small_split
from tests.serving.http.tiny_run import write_run

DATA = DataConfig(data="world:users=200,items=120,actions=6000,clusters=4")
SCHEME = {"embedding_dim": 4, "width": 8, "depth": 2, "num_hashes": 8}


def coded():
    """Not fitted, so that no table is needed: the codes are random ones."""
    return tableless.SCHEMES["coded"](4, vocab_size=50, num_bits=20, check_bits=4)


KINDS = {f"{bits} bits": partial(tableless.DeepHashEmbedding, **SCHEME, weight_bits=bits) for bits in (32, 5)}
KINDS["coded"] = coded


@pytest.fixture(params=KINDS)
def saved(request, tmp_path):
    save_scheme(KINDS[request.param](), tmp_path)
    return tmp_path


def test_a_flipped_bit_anywhere_in_the_weights_is_noticed_or_changes_nothing(saved):
    path = saved / "model.safetensors"
    good, ids = path.read_bytes(), torch.arange(20)
    expected = load_scheme(saved)(ids)
    source = random.Random(0)
    places = [*range(0, 8), *(source.randrange(len(good)) for _ in range(150))]
    refused = []
    for place in places:
        bad = bytearray(good)
        bad[place] ^= 1 << source.randrange(8)
        path.write_bytes(bad)
        try:
            vectors = load_scheme(saved)(ids)
        except ValueError as error:
            refused.append(str(error))
        else:
            assert torch.equal(vectors, expected)  # as where the checksum itself is called otherwise
    assert len(refused) > 0.9 * len(places)
    assert all("model.safetensors" in sentence and "\n" not in sentence for sentence in refused)


@pytest.mark.parametrize("length", [0, 4, 8, 100, 500, -1])
def test_weights_cut_short_are_refused(saved, length):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"model.safetensors is cut short, damaged, or no safetensors file"):
        load_scheme(saved)


def test_weights_without_a_checksum_are_from_an_earlier_version_and_are_read(saved):
    from safetensors.torch import save_file

    weights = load_tensors(saved / "model.safetensors")
    expected = load_scheme(saved)(torch.arange(5))
    save_file(weights, saved / "model.safetensors")
    assert torch.equal(load_scheme(saved)(torch.arange(5)), expected)


def test_tensors_of_every_kind_come_back_as_they_were(tmp_path):
    tensors = {
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(7),
        "turned": torch.arange(6.0).view(2, 3).T,
        "half": torch.arange(3, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
    }
    save_tensors(tensors, tmp_path / "x")
    again = load_tensors(tmp_path / "x")
    assert all(torch.equal(again[name], own) and again[name].dtype == own.dtype for name, own in tensors.items())


@pytest.mark.parametrize("text", ["", "{", '{"scheme": "dhe"', "[1, 2]", '"dhe"', "\xff", "[" * 100_000])
def test_a_config_that_is_no_json_object_is_refused(saved, text):
    (saved / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"config.json (is damaged, or not JSON|holds no JSON object)"):
        load_scheme(saved)


@pytest.mark.parametrize(
    "change", [{"width": 9, "num_bits": 28}, {"depth": 3, "gain_bits": 5}, {"embedding_dim": 5}], ids=str
)
def test_weights_of_another_scheme_are_refused(saved, change, tmp_path):
    config = json.loads((saved / "config.json").read_text())
    change = {name: value for name, value in change.items() if name in config["arguments"]}
    save_scheme(tableless.SCHEMES[config["scheme"]](**(config["arguments"] | change)), tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(saved / "model.safetensors")
    with pytest.raises(ValueError, match=r"does not belong to the config.json beside it: .*(size mismatch|key)"):
        load_scheme(saved)


def test_a_scheme_saved_over_another_is_never_mixed_with_it(saved, monkeypatch):
    """As if killed after the weights got their name and before the config did."""
    replace = os.replace

    def killed(source, target):
        if target == saved / "config.json":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_scheme(tableless.DeepHashEmbedding(**SCHEME, seed=1), saved)
    assert [path.name for path in saved.iterdir()] == ["model.safetensors"]


def test_a_run_that_has_not_come_to_its_end_says_so(tmp_path):
    write_run(tmp_path)
    (tmp_path / "items.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"has not come to its end \(there is no items.parquet\)"):
        tableless.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"has not come to its end \(there is no model.safetensors\)"):
        RunDirectory(tmp_path).read()


@pytest.mark.parametrize("content", [b"", b"PAR1 but no parquet", b"\x80\x04"])
def test_a_damaged_list_of_items_is_named(tmp_path, content):
    (write_run(tmp_path) / "items.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"items.parquet cannot be read"):
        tableless.load(tmp_path)


def test_a_list_without_its_columns_is_named(tmp_path):
    pl.DataFrame({"thing": [1]}).write_parquet(write_run(tmp_path) / "items.parquet")
    with pytest.raises(ValueError, match=r"items.parquet has no column 'item'"):
        tableless.load(tmp_path)


def test_a_damaged_state_cannot_be_resumed_and_the_model_is_left_alone(tmp_path):
    training = TrainConfig(epochs=1, batch_size=512)
    train_and_measure(DATA, ModelConfig(scheme="full"), training, small_split(), out=tmp_path)
    model = (tmp_path / "model.safetensors").read_bytes()
    config = json.loads((tmp_path / "config.json").read_text())
    metrics = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(metrics[:10])
    with pytest.raises(ValueError, match=r"metrics.jsonl is damaged"):
        TrainingJournal(tmp_path, config, resume=True).resume()
    (tmp_path / "metrics.jsonl").write_text(metrics)
    state = bytearray((tmp_path / "resume.safetensors").read_bytes())
    state[-5] ^= 1
    (tmp_path / "resume.safetensors").write_bytes(state)
    with pytest.raises(ValueError, match=r"resume.safetensors is damaged"):
        train_and_measure(DATA, ModelConfig(scheme="full"), training, small_split(), out=tmp_path, resume=True)
    assert (tmp_path / "model.safetensors").read_bytes() == model


def test_lines_that_a_crash_or_a_bad_disk_left_behind_are_passed_over_and_done_again(tmp_path):
    out = tmp_path / "results.jsonl"
    plan = Plan(schemes=["full"], budgets=[], backbones=["gmf"], seeds=1)
    expected = run_comparison(plan, DATA, TrainConfig(epochs=1, batch_size=512), small_split(), out=out)
    whole = out.read_bytes()
    out.write_bytes(b'\xff\xfe{"data"\n[1]\n7\n{"foreign": 1}\n' + b"[" * 100_000 + b"\n" + whole[:-30])
    assert read_lines(out) == [{"foreign": 1}]
    again = run_comparison(plan, DATA, TrainConfig(epochs=1, batch_size=512), small_split(), out=out)
    assert again[0]["results"]["auc"] == expected[0]["results"]["auc"]
    append_line(out, {"last": 1})
    assert read_lines(out)[-1] == {"last": 1}
