import functools
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tableless import SCHEMES
from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.data.splits import split_leave_one_out
from tableless.recommender.evaluation import measure_scorer
from tableless.recommender.journal import TrainingJournal
from tableless.recommender.recipes import train_teacher
from tableless.recommender.run_directory import RunDirectory
from tableless.recommender.runs import ModelConfig, as_trained, build_model, train_and_measure
from tableless.recommender.scoring import by_rows, model_scores, popularity_scores, scheme_inputs
from tableless.recommender.training import TrainConfig, has_ended
from tableless.recommender.training_loop import train_model
from tests.conftest import few_visits
from tests.data.tiny import interactions_of, small_split
from tests.recommender.two_processes import run_by_two

DATA = DataConfig(data="world:users=200,items=120,actions=6000,clusters=4")
FAST = TrainConfig(epochs=3, batch_size=256, learning_rate=1e-2, patience=10)


def test_it_finds_what_is_certain_to_be_found():
    """Two camps: each user picks only items of their own camp. The held-out item must beat the other camp's."""
    rng = np.random.default_rng(0)
    picks = [(rng.permutation(20)[:12] + 20 * (user % 2)).tolist() for user in range(60)]
    split = split_leave_one_out(interactions_of(*picks, num_items=40))
    model = build_model(ModelConfig(scheme="full", embedding_dim=8), split, seed=0)
    before = measure_scorer(model_scores(model, split), split).auc
    train_model(model, split, TrainConfig(epochs=20, batch_size=64, learning_rate=3e-2))
    assert before < 0.65
    assert measure_scorer(model_scores(model, split), split).auc > 0.8  # 20 of the other camp and half of 8: .857


NUM_CAMPS, USERS, ITEMS, PICKS = 4, 240, 120, 12


@functools.cache
def camps():
    """Each user picks only items of their own camp; all items are equally popular, so popularity knows nothing.

    Ids are scattered over 64 bits, and their order says nothing about the camp.
    """
    rng = np.random.default_rng(0)
    of_users, of_items = (rng.permutation(np.arange(count) % NUM_CAMPS) for count in (USERS, ITEMS))
    picks = [rng.permutation(np.flatnonzero(of_items == camp))[:PICKS].tolist() for camp in of_users]
    ids = [np.sort(rng.integers(-(2**62), 2**62, count)) for count in (USERS, ITEMS)]
    data = replace(interactions_of(*picks, num_items=ITEMS), user_ids=ids[0], item_ids=ids[1])
    return split_leave_one_out(data), (of_users[:, None] == of_items).astype(np.float32)


def ceiling(model):
    """The AUC of whom the true camps rank, as far as the schemes of both sides can hold them."""
    split, truth = camps()
    held = torch.from_numpy(truth).double()
    held = what_is_held(model.users, split.train.user_ids) @ held @ what_is_held(model.items, split.train.item_ids)
    return measure_scorer(by_rows(lambda users: held[torch.from_numpy(users).long()].float()), split).auc


def what_is_held(scheme, ids):
    """[n, n]: maps a value for each id to the nearest values that the scheme can have for them.

    Ids with the same vector have their mean. Sums of shared rows hold less: they are linear in the table, so the
    nearest values are a projection onto what its rows reach.
    """
    vectors = scheme(scheme_inputs(scheme, ids))
    if isinstance(scheme, SCHEMES["bloom"] | SCHEMES["hybrid"]):
        firsts = [torch.autograd.grad(row[0], list(scheme.parameters()), retain_graph=True) for row in vectors]
        reached = torch.stack([torch.cat([part.flatten() for part in parts]) for parts in firsts]).double()
        return reached @ torch.linalg.pinv(reached)
    _, twin = torch.unique(vectors.detach(), dim=0, return_inverse=True)
    alike = (twin[:, None] == twin).double()
    return alike / alike.sum(1, keepdim=True)


# An MLP is slow to train, and what it asks of a scheme is the same for all schemes that are fitted alike.
# These three are fitted in one step, learned in many, and coded.
WITH_MLP = ("hashing-trick", "dhe", "coded")
CAMP_TRAINING = TrainConfig(epochs=40, batch_size=256, learning_rate=1e-2)


@functools.cache
def camp_table(backbone):
    """The table that all schemes learn from, trained once: it is the same for all of them (test_recipes.py)."""
    split, _ = camps()
    return train_teacher(
        build_model(ModelConfig(scheme="full", backbone=backbone), split, seed=0), split, CAMP_TRAINING
    )


@pytest.mark.parametrize(
    ("scheme", "backbone", "recipe"),
    [
        *((scheme, "gmf", recipe) for scheme in SCHEMES for recipe in ("fast", "paper")),
        *((scheme, "mlp", "fast") for scheme in WITH_MLP),
    ],
)
def test_every_scheme_learns_most_of_what_it_can_hold(scheme, backbone, recipe):
    """A scheme that stays at one half, as popularity does here, fails; so does one that loses what its rows can say."""
    split, _ = camps()
    config = ModelConfig(scheme=scheme, budget="1/2 parameters", backbone=backbone)
    training = replace(CAMP_TRAINING, recipe=recipe)
    if SCHEMES[scheme].needs_table and recipe == "paper":
        with pytest.raises(ValueError, match="cannot be trained from nothing; take the recipe fast"):
            train_and_measure(DataConfig("camps"), config, training, split)
        return
    table = camp_table(backbone) if recipe == "fast" and scheme != "full" else None
    model, results = train_and_measure(DataConfig("camps"), config, training, split, teacher=table)
    highest = ceiling(build_model(as_trained(config, training), split, seed=0))
    assert abs(results["popularity_auc"] - 0.5) < 0.05
    assert results["auc"] > 0.5 + 0.6 * (highest - 0.5), highest
    assert results["embedding_parameters"] <= (USERS + ITEMS) * 32
    assert results["num_parameters"] == model.num_parameters
    assert results["num_parameters"] >= sum(p.numel() for p in model.parameters()), "a packed scheme has fewer left"
    floor = results["popularity"]
    assert [floor[name] for name in ("evaluated", "held_out", "auc_items")] == [
        results[name] for name in ("evaluated", "held_out", "auc_items")
    ]


def test_a_run_ends_when_it_gains_nothing_and_not_while_it_rises_slowly():
    fallen = [0.7, *[0.6] * 10]
    assert has_ended(fallen, 10, floor=0.5)
    assert not has_ended(fallen[:-1], 10, floor=0.5)
    rising = [0.7 + epoch * 3e-5 for epoch in range(100)]  # a new best in every epoch, and .0003 in ten
    assert not has_ended(rising, 10, floor=0.5)
    assert has_ended([0.7 + epoch * 1e-5 for epoch in range(100)], 10, floor=0.5)


def test_a_model_at_the_level_of_popularity_is_given_far_more_time():
    """As hash embedding does it: at popularity's level for twenty epochs, and then above it."""
    resting = [0.75, 0.80, *[0.8101] * 25]
    assert has_ended(resting, 10, floor=0.80)
    assert not has_ended(resting, 10, floor=0.812)
    assert not has_ended([*resting, 0.82, *[0.819] * 9], 10, floor=0.812)
    assert has_ended([*resting, 0.82, *[0.819] * 10], 10, floor=0.812)
    assert has_ended([0.8] * 51, 10, floor=0.812)


def test_a_run_that_ends_at_its_limit_is_marked_and_one_that_ends_by_itself_is_not():
    fast = replace(FAST, epochs=2, loss="bce")  # a table by softmax has one cycle, which has its length
    short = train_and_measure(DATA, ModelConfig(scheme="full"), fast, small_split())[1]
    assert short["capped"]
    patient = TrainConfig(epochs=60, batch_size=128, learning_rate=5e-2, patience=2, loss="bce")
    long = train_and_measure(DATA, ModelConfig(scheme="full"), patient, small_split())[1]
    assert not long["capped"]
    assert long["stages"][-1]["epochs"] < 60
    tuned = train_and_measure(DATA, ModelConfig(scheme="low-rank", budget="1/2 parameters"), patient, small_split())[1]
    assert not tuned["capped"], "the last stage is one cycle, which has its length"
    assert train_and_measure(DATA, ModelConfig(scheme="low-rank", budget="1/2 parameters"), fast, small_split())[1][
        "capped"
    ]


def test_a_full_table_s_own_size_is_recorded_and_not_the_budget_that_was_asked(tmp_path):
    train_and_measure(
        DATA,
        ModelConfig(scheme="full", budget="1/4 parameters"),
        replace(FAST, epochs=1),
        small_split(),
        out=tmp_path / "run",
    )
    assert json.loads((tmp_path / "run" / "config.json").read_text())["budget"] == "1/1"


def test_training_beats_popularity_on_the_world():
    split = load_split(DataConfig(data="world:users=600,items=300,actions=40000"))
    model = build_model(ModelConfig(scheme="full"), split, seed=0)
    train_model(model, split, TrainConfig(epochs=12, batch_size=512, learning_rate=5e-3))
    floor = measure_scorer(popularity_scores(split.train), split).auc
    assert measure_scorer(model_scores(model, split), split).auc > floor + 0.03


def test_the_same_seed_gives_the_same_weights_and_another_one_others():
    states = []
    for seed in (0, 0, 1):
        model = build_model(ModelConfig(scheme="full"), small_split(), seed=seed)
        train_model(model, small_split(), replace(FAST, epochs=1, seed=seed))
        states.append(model.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not torch.equal(states[0]["users.table"], states[2]["users.table"])


def test_weight_decay_makes_for_shorter_vectors():
    norms = []
    for weight_decay in (0.0, 5.0):
        model = build_model(ModelConfig(scheme="full"), small_split(), seed=0)
        train_model(model, small_split(), replace(FAST, weight_decay=weight_decay))
        norms.append(model.users.table.norm().item())
    assert norms[1] < 0.9 * norms[0]


def test_the_start_is_kept_if_it_may_be_and_no_epoch_is_better(tmp_path):
    model = build_model(ModelConfig(scheme="full"), small_split(), seed=0)
    train_model(model, small_split(), TrainConfig(epochs=30, batch_size=256, learning_rate=1e-2, patience=30))
    start = {key: value.clone() for key, value in model.state_dict().items()}
    harmful = TrainConfig(epochs=3, batch_size=256, learning_rate=1.0)
    journal = TrainingJournal(tmp_path / "run", {}, resume=False)
    reports = train_model(model, small_split(), harmful, may_keep_start=True, journal=journal)
    assert not any(report.is_best for report in reports)
    assert all(torch.equal(value, start[key]) for key, value in model.state_dict().items())
    kept = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(value, start[key]) for key, value in kept.items())
    reports = train_model(model, small_split(), harmful)
    assert any(report.is_best for report in reports)


def test_the_best_epoch_is_kept_and_training_stops_when_it_gets_no_better():
    model = build_model(ModelConfig(scheme="full"), small_split(), seed=0)
    reports = train_model(model, small_split(), TrainConfig(epochs=60, batch_size=128, learning_rate=5e-2, patience=2))
    best = max(reports, key=lambda report: report.validation_auc)
    assert best.epoch < len(reports) < 60
    assert [report.has_ended for report in reports] == [False] * (len(reports) - 1) + [True]
    validation = measure_scorer(model_scores(model, small_split()), small_split(), on="validation").auc
    assert validation == pytest.approx(best.validation_auc)


@pytest.mark.parametrize("scheme", ["full", "dhe"])
def test_resuming_ends_with_the_weights_of_an_undisturbed_run(scheme, tmp_path, short_fits):
    class Crash(Exception):
        pass

    def crash_after_two_epochs(report):
        metrics = tmp_path / "parts" / "metrics.jsonl"
        if metrics.exists() and len(metrics.read_text().splitlines()) == 2:
            raise Crash

    config = ModelConfig(scheme=scheme, budget="1/2 parameters")
    training = replace(FAST, epochs=4)
    train_and_measure(DATA, config, training, small_split(), out=tmp_path / "whole")
    with pytest.raises(Crash):
        train_and_measure(
            DATA, config, training, small_split(), out=tmp_path / "parts", on_epoch=crash_after_two_epochs
        )
    train_and_measure(DATA, config, training, small_split(), out=tmp_path / "parts", resume=True)
    whole, parts = (load_file(tmp_path / name / "resume.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "parts")]
    aucs = [[json.loads(line)["validation_auc"] for line in own] for own in lines]
    assert aucs[0] == aucs[1]
    assert len(aucs[0]) == 4


def test_a_run_directory_can_be_read_back(tmp_path):
    model, results = train_and_measure(DATA, ModelConfig(scheme="full"), FAST, small_split(), out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json", "metrics.jsonl", "model.safetensors", "resume.safetensors", "results.json", "items.parquet",
        "example_users.json",
        "users.parquet", "tensorboard",
    }  # fmt: skip
    again, config = RunDirectory(tmp_path).read_model()
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in again.state_dict().items())
    assert config["data"]["data"] == DATA.data
    assert json.loads((tmp_path / "results.json").read_text())["auc"] == results["auc"]


def test_a_directory_in_use_is_not_overwritten_and_not_mixed_with_another_run(tmp_path):
    train_and_measure(DATA, ModelConfig(scheme="full"), replace(FAST, epochs=1), small_split(), out=tmp_path)
    with pytest.raises(FileExistsError, match="holds a run already"):
        train_and_measure(DATA, ModelConfig(scheme="full"), FAST, small_split(), out=tmp_path)
    with pytest.raises(ValueError, match="started with another model"):
        train_and_measure(
            DATA,
            ModelConfig(scheme="low-rank", budget="1/1"),
            FAST,
            small_split(),
            out=tmp_path,
            resume=True,
        )


def test_a_run_of_a_version_that_knew_one_loss_goes_on_and_not_by_another(tmp_path):
    fast = replace(FAST, epochs=2, loss="bce")
    train_and_measure(DATA, ModelConfig(scheme="full"), replace(fast, epochs=1), small_split(), out=tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for later in ("loss", "temperature", "similarity", "popularity", "whole_users", "select"):
        del config["train"][later]
    config["train"]["num_negatives"] = 4
    path.write_text(json.dumps(config))
    for loss in ("bpr", "auto"):
        other = replace(fast, loss=loss)
        with pytest.raises(ValueError, match="started with another train"):
            train_and_measure(DATA, ModelConfig(scheme="full"), other, small_split(), out=tmp_path, resume=True)
    _, results = train_and_measure(DATA, ModelConfig(scheme="full"), fast, small_split(), out=tmp_path, resume=True)
    assert results["epochs"] == 2


def test_a_run_that_never_finished_an_epoch_can_be_resumed(tmp_path):
    journal = TrainingJournal(tmp_path / "new", {"data": 1}, resume=True)
    assert journal.resume() == ([], {})


def test_ctrl_c_keeps_the_best_model_so_far(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from tests.recommender.test_training import *\n"
        "def interrupt(epoch, batch, total, loss):\n"
        "    if (epoch, batch) == (2, 5): os.kill(os.getpid(), signal.SIGINT)\n"
        "config, training = ModelConfig(scheme='full'), replace(FAST, epochs=9)\n"
        "_, results = train_and_measure(DATA, config, training, small_split(), out=sys.argv[1], on_batch=interrupt)\n"
        "print(results['epochs'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "2"
    model, _ = RunDirectory(tmp_path / "run").read_model()
    assert model.num_parameters > 0


def test_two_processes_train_the_same_model_and_go_on_with_it(tmp_path):
    """Two gloo processes: a result within noise of one process, and all resume from the same epoch."""
    data = DataConfig(data="world:users=300,items=150,actions=12000")
    config = ModelConfig(scheme="dhe", budget="1/1 parameters", embedding_dim=16)
    training = TrainConfig(epochs=3, batch_size=256, learning_rate=5e-3)
    with few_visits():
        one = train_and_measure(data, config, training, load_split(data))[1]
    code = (
        "by_two(lambda: command(*sys.argv[1:], '--epochs', '3'))\n"
        "by_two(lambda: command(*sys.argv[1:], '--epochs', '4', '--resume'))\n"
    )
    printed = run_by_two(
        code, "train", data.data, "--scheme", "dhe", "--budget", "1/1 parameters", "--embedding-dim", "16",
        "--batch-size", "256", "--learning-rate", "0.005", "--json", "--out", tmp_path / "two",
    )  # fmt: skip
    two, resumed = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    assert abs(one["auc"] - two["auc"]) < 0.03
    assert one["epochs"] == two["epochs"] == 3
    assert resumed["epochs"] == 4


def test_weights_and_batch_norm_statistics_are_equal_on_all_ranks(tmp_path):
    code = (
        "from tests.recommender.test_training import *\n"
        "from tableless.recommender.distributed import join_processes\n"
        "def train():\n"
        "    with join_processes() as processes:\n"
        "        config = ModelConfig(scheme='dhe', budget='1/1 parameters', options={'normalization': 'batch'})\n"
        "        model = build_model(config, small_split(), seed=0)\n"
        "        train_model(model, small_split(), replace(FAST, epochs=1), processes=processes)\n"
        "        torch.save({k: v for k, v in model.state_dict().items()}, f'{sys.argv[1]}/{processes.rank}.pt')\n"
        "by_two(train)\n"
    )
    run_by_two(code, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert any("running_mean" in key for key in first)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_user_who_chose_everything_does_not_stop_training():
    split = split_leave_one_out(interactions_of([0, 1, 2, 3], [0, 1, 2], [3, 1, 0], num_items=4))
    model = build_model(ModelConfig(scheme="full"), split, seed=0)
    reports = train_model(model, split, TrainConfig(epochs=1))
    assert np.isfinite(reports[0].loss)


def test_in_a_split_by_time_an_open_scheme_answers_for_new_ids_and_a_table_says_that_it_cannot():
    data = replace(DATA, split="global-time")
    split = load_split(data)
    assert (split.num_known_users, split.num_known_items) != (split.train.num_users, split.train.num_items)
    results = {
        scheme: train_and_measure(
            data, ModelConfig(scheme=scheme, budget="1/1 parameters"), replace(FAST, epochs=1), split
        )[1]
        for scheme in ("dhe", "full")
    }
    new = int(((split.test_users >= split.num_known_users) | (split.test_items >= split.num_known_items)).sum())
    assert results["dhe"]["unanswered"] == 0
    assert results["dhe"]["evaluated"] == len(split.test_users)
    assert results["full"]["unanswered"] == new
    assert results["full"]["evaluated"] == len(split.test_users) - new
