"""Runs whose weights have few bits: trained in floats, measured, written and read in few bits."""

import json
from dataclasses import replace

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

import tableless
from tableless.data.config import DataConfig
from tableless.recommender.measurement import measure
from tableless.recommender.run_directory import RunDirectory
from tableless.recommender.runs import ModelConfig, as_trained, build_model, train_and_measure
from tableless.recommender.stream_runs import run_stream
from tableless.recommender.training import TrainConfig
from tests.data.tiny import small_split

DATA = DataConfig(data="world:users=200,items=120,actions=6000,clusters=4")
TRAINING = TrainConfig(epochs=3, batch_size=256, learning_rate=1e-2, recipe="paper")
NETWORK = {"depth": 2, "num_hashes": 16, "normalization": "none", "num_experts": 1}
MODELS = {
    "dhe": ModelConfig(scheme="dhe", budget="1/4", options={**NETWORK, "weight_bits": 8}),
    "dhe, experts, 5 bits": ModelConfig(
        scheme="dhe", budget="1/4", options={**NETWORK, "num_experts": 2, "weight_bits": 5}, backbone="mlp"
    ),
    "head-and-tail": ModelConfig(scheme="head-and-tail", budget="1/2", options={**NETWORK, "weight_bits": 8}),
    "low-rank": ModelConfig(scheme="low-rank", budget="1/4", options={"weight_bits": 4}),
}


class Crash(Exception):
    pass


def crash_after(folder, epochs):
    def on_epoch(report):
        metrics = folder / "metrics.jsonl"  # not there yet while a table is trained
        if metrics.exists() and len(metrics.read_text().splitlines()) == epochs:
            raise Crash

    return on_epoch


@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_has_ended_is_packed_and_what_was_measured_is_what_is_stored(name, tmp_path):
    split = small_split()
    model, results = train_and_measure(DATA, MODELS[name], TRAINING, split, out=tmp_path)
    assert model.users.packed
    assert model.items.packed
    config = json.loads((tmp_path / "config.json").read_text())
    assert all(config["model"][side]["arguments"]["packed"] for side in ("users", "items"))
    assert results["model"] == config["model"]
    again, _ = RunDirectory(tmp_path).read_model()
    assert measure(again, split)["auc"] == results["auc"]
    before = build_model(MODELS[name], split, seed=0)
    assert results["num_parameters"] == before.num_parameters
    assert results["embedding_parameters"] == before.embedding_parameters
    stored = sum(scheme.num_bytes for scheme in (again.users, again.items))
    others = sum(own.numel() * 4 for own in again.parameters()) if name == "dhe, experts, 5 bits" else 200
    assert stored < (tmp_path / "model.safetensors").stat().st_size < stored + others + 6_000  # names of tensors
    answers = tableless.load(tmp_path)
    users = torch.arange(5) if not again.users.open_vocabulary else torch.tensor(list(split.train.user_ids[:5]))
    torch.testing.assert_close(
        answers.embed(torch.tensor(list(split.train.user_ids[:5])), side="user"), again.users(users).detach(),
        atol=1e-6, rtol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_was_cut_off_loads_and_goes_on_to_the_same_end(name, tmp_path):
    split, whole, parts = small_split(), tmp_path / "whole", tmp_path / "parts"
    train_and_measure(DATA, MODELS[name], TRAINING, split, out=whole)
    with pytest.raises(Crash):
        train_and_measure(DATA, MODELS[name], TRAINING, split, out=parts, on_epoch=crash_after(parts, 2))
    best_so_far, config = RunDirectory(parts).read_model()
    assert not best_so_far.users.packed
    assert not config["model"]["users"]["arguments"]["packed"]
    train_and_measure(DATA, MODELS[name], TRAINING, split, out=parts, resume=True)
    for file in ("model.safetensors", "resume.safetensors"):
        one, other = load_file(whole / file), load_file(parts / file)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert RunDirectory(parts).read_model()[0].users.packed


def test_a_run_that_has_ended_can_be_trained_on(tmp_path):
    split, more = small_split(), replace(TRAINING, epochs=5)
    train_and_measure(DATA, MODELS["dhe"], more, split, out=tmp_path / "whole")
    train_and_measure(DATA, MODELS["dhe"], TRAINING, split, out=tmp_path / "parts")
    with pytest.raises(Crash):  # after an epoch was written over the packed model
        train_and_measure(
            DATA, MODELS["dhe"], more, split, out=tmp_path / "parts", resume=True,
            on_epoch=crash_after(tmp_path / "parts", 4),
        )  # fmt: skip
    RunDirectory(tmp_path / "parts").read_model()
    train_and_measure(DATA, MODELS["dhe"], more, split, out=tmp_path / "parts", resume=True)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(one[key], other[key]) for key in one.keys() | other.keys())


def test_a_run_of_other_bits_is_another_run(tmp_path):
    train_and_measure(DATA, MODELS["dhe"], replace(TRAINING, epochs=1), small_split(), out=tmp_path)
    other = replace(MODELS["dhe"], options={**NETWORK, "weight_bits": 6})
    with pytest.raises(ValueError, match="started with another model"):
        train_and_measure(DATA, other, TRAINING, small_split(), out=tmp_path, resume=True)


def test_a_packed_model_that_is_trained_is_unpacked_first():
    split = small_split()
    built = build_model(MODELS["dhe"], split, seed=0)
    built.pack()
    packed = train_and_measure(DATA, MODELS["dhe"], TRAINING, split, built=built)[1]
    assert packed["auc"] > 0.5
    assert packed["epochs"] == 3


def test_the_fast_recipe_ends_packed_as_well(tmp_path, short_fits):
    config = ModelConfig(scheme="dhe", budget="1/1", options=NETWORK)
    model, results = train_and_measure(DATA, config, replace(TRAINING, recipe="fast"), small_split(), out=tmp_path)
    assert model.users.packed
    assert model.users.weight_bits < 32
    assert results["auc"] == measure(RunDirectory(tmp_path).read_model()[0], small_split())["auc"]


@pytest.mark.parametrize("name", ["dhe", "head-and-tail"])
def test_the_fast_recipe_rounds_at_its_end_also_after_it_was_cut_off(name, tmp_path, short_fits):
    split, whole, parts = small_split(), tmp_path / "whole", tmp_path / "parts"
    training, notes = replace(TRAINING, recipe="fast"), []
    config = replace(MODELS[name], budget="1/1", options={**NETWORK, "weight_bits": 8})
    _, results = train_and_measure(DATA, config, training, split, out=whole, on_note=notes.append)
    assert [stage["stage"] for stage in results["stages"]] == ["table (GMF)", "fit", "tuning", "rounding"]
    assert results["epochs"] == 3
    assert all(0 < lost < 0.05 for lost in results["stages"][-1]["lost"].values())
    assert sum("weights rounded by parts" in note for note in notes) == 2
    with pytest.raises(Crash):
        train_and_measure(DATA, config, training, split, out=parts, on_epoch=crash_after(parts, 2))
    train_and_measure(DATA, config, training, split, out=parts, resume=True)
    for file in ("model.safetensors", "resume.safetensors"):
        one, other = load_file(whole / file), load_file(parts / file)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_the_fast_recipe_trains_weights_of_8_bits_as_floats(short_fits):
    """Until the end it is the training of the same network in float32, so the pair differs by rounding alone."""
    training, losses = replace(TRAINING, recipe="fast"), {}
    for bits in (8, 32):
        reports = losses[bits] = []
        config = ModelConfig(scheme="dhe", budget="1/1 parameters", options={**NETWORK, "weight_bits": bits})
        train_and_measure(DATA, config, training, small_split(), on_epoch=reports.append)
    assert [report.loss for report in losses[8]] == [report.loss for report in losses[32]]


def test_the_paper_s_network_has_floats():
    assert as_trained(ModelConfig(scheme="dhe"), TRAINING).options["weight_bits"] == 32


def test_a_stream_leaves_a_packed_run(tmp_path):
    users, items = ([f"user-{n * 7919 % 101}" for n in range(600)], [f"item-{n * n % 53}" for n in range(600)])
    pl.DataFrame({"user_id": users, "item_id": items}).write_parquet(tmp_path / "actions.parquet")
    config = ModelConfig(scheme="dhe", budget="40KB", options=NETWORK)
    run_stream(DataConfig(data=str(tmp_path / "actions.parquet")), config, TRAINING, out=tmp_path / "run")
    model, _ = RunDirectory(tmp_path / "run").read_model()
    assert model.users.packed
    assert model.users.num_bytes + model.items.num_bytes <= 40_000
