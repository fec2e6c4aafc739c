"""A run whose weights have few bits: loaded, served, exported, copied and embedded in bulk as it is stored."""

import shutil

import numpy as np
import onnx
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

import tableless
from tableless import SCHEMES
from tableless.recommender.models import GMF, describe_recommender
from tableless.recommender.run_directory import RunDirectory, item_list
from tableless.serving.bulk.embed_files import embed_file
from tableless.serving.export.exporting import export_run
from tableless.serving.export.formats import open_file

IDS = torch.tensor([0, 1, -1, 2**31, 2**63 - 1, -(2**63), *range(50_000, 50_400, 7)])
NETWORK = {"width": 150, "depth": 2, "num_hashes": 16, "num_experts": 2, "initial_std": 1.0}


def make(bits):
    """A network for the users, and frequent rows beside a network for the items."""
    users = SCHEMES["dhe"](8, **NETWORK, weight_bits=bits, seed=1)
    network = {**{name: value for name, value in NETWORK.items() if name != "initial_std"}, "weight_bits": bits}
    items = SCHEMES["head-and-tail"](8, num_frequent=200, network=network, row_bits=bits, initial_std=1.0, seed=2)
    items.assign_frequent(np.arange(50_000, 50_300), np.arange(300))
    return GMF(users=users, items=items, seed=3).eval()


def write(folder, model):
    config = {
        "model": describe_recommender(model),
        "kinds": {"user": "integer", "item": "integer"},
        "data": {"data": "world:users=60,items=40,actions=1200,clusters=3"},
    }
    RunDirectory(folder).write(config, model.state_dict(), items=item_list(np.arange(50_000, 50_400)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    for bits in (32, 8):
        model = make(bits)
        model.pack()
        write(folder / str(bits), model)
    return folder


@pytest.fixture(scope="module")
def model():
    return make(8)


def test_it_answers_with_the_vectors_of_the_model_that_was_trained(runs, model):
    answers = tableless.load(runs / "8")
    for side, scheme in (("user", model.users), ("item", model.items)):
        wanted = scheme(IDS).detach()
        torch.testing.assert_close(answers.embed(IDS, side=side), wanted, atol=1e-5, rtol=1e-4)
        one = answers.embed(IDS[7:8], side=side)
        torch.testing.assert_close(one, wanted[7:8], atol=1e-5, rtol=1e-4)


def test_it_is_loaded_in_the_bytes_that_it_is_stored_in(runs):
    def in_memory(run):
        model = RunDirectory(run).read_model()[0]
        return sum(own.numel() * own.element_size() for own in (*model.parameters(), *model.buffers()))

    files = {bits: (runs / str(bits) / "model.safetensors").stat().st_size for bits in (8, 32)}
    assert in_memory(runs / "8") < files[8] < 0.35 * files[32]
    assert in_memory(runs / "8") < 0.35 * in_memory(runs / "32")


@pytest.mark.parametrize("format", ["onnx", "torch"])
def test_exported_files_hold_the_stored_bytes_and_agree(runs, model, format, tmp_path):
    report = export_run(runs / "8", tmp_path / "8", format=format)
    assert all(file.precision == "fp32" for file in report.files)
    assert max(file.agreement.relative_difference for file in report.files) < 1e-5
    name = report.files[0].file
    vectors = open_file(tmp_path / "8" / name, format)(IDS)
    torch.testing.assert_close(vectors, model.users(IDS).detach(), atol=1e-5, rtol=1e-4)
    if format == "onnx":
        floats = 4 * model.users.num_parameters
        assert (tmp_path / "8" / name).stat().st_size < model.users.num_bytes + 12_000 < 0.4 * floats
        graph = onnx.load(tmp_path / "8" / name).graph
        assert {node.op_type for node in graph.node} >= {"DequantizeLinear"}
        large = [own for own in graph.initializer if np.prod(own.dims) > 1000]
        assert large
        assert all(own.data_type == onnx.TensorProto.INT8 for own in large)


def test_int8_is_refused_where_the_weights_are_int8_already(runs, tmp_path):
    with pytest.raises(ValueError, match="keeps weights of few bits as they are"):
        export_run(runs / "8", tmp_path, precision="int8")


def test_it_is_embedded_in_bulk(runs, model, tmp_path):
    pl.DataFrame({"id": IDS.numpy()}).write_parquet(tmp_path / "ids.parquet")
    embed_file(runs / "8", str(tmp_path / "ids.parquet"), str(tmp_path / "vectors.parquet"), side="user")
    vectors = np.stack(pl.read_parquet(tmp_path / "vectors.parquet")["vector"].to_numpy())
    np.testing.assert_allclose(vectors, model.users(IDS).detach().numpy(), atol=1e-5, rtol=1e-4)


def test_it_travels_as_it_is(runs, tmp_path):
    answers = tableless.load(runs / "8")
    answers.save_pretrained(tmp_path / "hub")
    answers.save(tmp_path / "copy")
    for folder in ("hub", "copy"):
        stored = (runs / "8" / "model.safetensors").read_bytes()
        assert (tmp_path / folder / "model.safetensors").read_bytes() == stored
        torch.testing.assert_close(tableless.load(tmp_path / folder).embed(IDS), answers.embed(IDS))


@pytest.mark.parametrize("kind", ["integers", "scale"])
def test_other_numbers_where_integers_belong_are_refused(runs, kind, tmp_path):
    shutil.copytree(runs / "8", tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    tensors = load_file(path)
    name = f"users.decoder.hidden.0.linear.weight.{kind}"
    tensors[name] = tensors[name].float() + 0.25
    save_file(tensors, path)
    if kind == "integers":
        with pytest.raises(ValueError, match=r"hidden.0.linear.weight.integers is of type torch.float32, and not"):
            tableless.load(tmp_path / "run")
    else:  # scales are floats, and of any type
        tableless.load(tmp_path / "run")


def test_weights_of_the_other_form_are_refused(runs, model, tmp_path):
    write(tmp_path / "run", model)
    shutil.copyfile(tmp_path / "run" / "config.json", tmp_path / "config.json")
    shutil.copytree(runs / "8", tmp_path / "mixed")
    shutil.copyfile(tmp_path / "config.json", tmp_path / "mixed" / "config.json")
    with pytest.raises(ValueError, match=r"does not belong to the config\.json beside it"):
        tableless.load(tmp_path / "mixed")
