import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from typer.testing import CliRunner

from tableless import SCHEMES, EmbeddingScheme, cli
from tableless.embedding import hashing
from tableless.serving.export.exporting import export_run
from tableless.serving.export.formats import write_file
from tableless.serving.export.graphs import exportables
from tests.serving.small_runs import ANYWHERE, DIM, ROWS, ids_for, make_run

NODE = Path(__file__).parent / "node"

# To trace a module takes seconds. Here are the schemes that are exported in another form than they are trained in; what
# is exported as it is, the contract of all schemes tries (tests/embedding/test_scheme_contract.py).
PAIRS = {
    "networks": {"users": "dhe, batch norm", "items": "dhe, side features", "backbone": "gmf"},
    "features": {"users": "head-and-tail", "items": "hashing-trick", "backbone": "mlp", "item_features": True},
    "few bits": {"users": "quantized", "items": "product-quantized", "backbone": "gmf"},
    "coded rows": {"users": "coded", "items": "dhe, random fourier", "backbone": "mlp"},
}
SHARED_ROWS = {"users": "bloom", "items": "hybrid", "backbone": "gmf"}
MIXED = {"users": "dhe, experts", "items": "full", "backbone": "mlp"}
"""A hash with experts behind it, and a closed table beside it."""


def test_every_scheme_with_a_form_of_its_own_is_exported_below():
    tested = {pair[side].split(",")[0] for pair in (*PAIRS.values(), MIXED) for side in ("users", "items")}
    assert tested >= {name for name, scheme in SCHEMES.items() if scheme.exported is not EmbeddingScheme.exported}


def open_onnx(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [own.name for own in session.get_inputs()]
    return lambda *ids: torch.from_numpy(session.run(None, dict(zip(names, map(np.asarray, ids), strict=True)))[0])


def open_torch(path):
    return torch.export.load(path).module()


both_formats = pytest.mark.parametrize(
    ("format", "suffix", "open_file"), [("onnx", ".onnx", open_onnx), ("torch", ".pt2", open_torch)]
)


def assert_close(got, wanted):
    scale = float(wanted.abs().max()) if len(wanted) else 1.0
    torch.testing.assert_close(got, wanted, atol=1e-5 * scale, rtol=0)


def pairs_for(model):
    return ids_for(model.users), ids_for(model.items).flip(0)


@torch.no_grad()
def scores_of(model, users, items):
    return model.score(model.user_vectors(users), model.item_vectors(items).unsqueeze(1)).squeeze(1)


@torch.no_grad()
def assert_answers_as(model, folder, open_file, suffix):
    """Both embeddings and the recommender, for a full batch, a single id and none at all."""
    users, items = pairs_for(model)
    for size in (len(users), 1, 0):
        some, others = users[:size], items[:size]
        assert_close(open_file(folder / f"user_embedding{suffix}")(some), model.users(some))
        assert_close(open_file(folder / f"item_embedding{suffix}")(others), model.items(others))
        assert_close(open_file(folder / f"recommender{suffix}")(some, others), scores_of(model, some, others))


@pytest.mark.parametrize("name", PAIRS)
def test_a_recommender_of_any_schemes_answers_in_onnx_as_it_does_here(name, tmp_path):
    model = make_run(tmp_path / "run", **PAIRS[name])
    part = exportables(model)[-1]
    path = tmp_path / "recommender.onnx"
    write_file(part.module, path, "onnx", inputs=tuple(part.inputs), output=part.output)
    users, items = pairs_for(model)
    for size in (len(users), 1):
        assert_close(open_onnx(path)(users[:size], items[:size]), scores_of(model, users[:size], items[:size]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("mixed") / "run"


@pytest.fixture(scope="module")
def model(run):
    return make_run(run, **MIXED)


@pytest.fixture(scope="module")
def exported(run, model):
    """Each format and precision, written once."""
    made = {}

    def get(format, precision="fp32"):
        key = f"{format}-{precision}"
        if key not in made:
            made[key] = export_run(run, run.parent / key, format=format, precision=precision)
        return made[key]

    return get


@pytest.mark.parametrize(
    ("format", "suffix", "open_file"), [("onnx", ".onnx", open_onnx), ("torch", ".pt2", open_torch)]
)
def test_files_answer_as_the_model_does(format, suffix, open_file, model, exported):
    report = exported(format)
    assert_answers_as(model, report.out, open_file, suffix)
    names = [f"{name}{suffix}" for name in ("user_embedding", "item_embedding", "recommender")]
    assert [file.file for file in report.files] == names
    assert {path.name for path in report.out.iterdir()} == {"export.json", *names}
    assert all(file.agreement.checked == 1000 for file in report.files)
    assert all(file.agreement.relative_difference <= 1e-5 for file in report.files)


def test_a_torch_program_needs_nothing_but_torch(exported):
    program = torch.export.load(exported("torch").out / "recommender.pt2")
    operators = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert any(name.startswith("aten.") for name in operators)
    assert not any("tableless" in name for name in operators)


@pytest.mark.parametrize("format", ["onnx", "torch"])
def test_files_do_not_tell_where_they_were_made(format, exported):
    source = str(Path(hashing.__file__).parents[1]).encode()
    for path in exported(format).out.iterdir():
        assert source not in path.read_bytes(), path.name


def test_a_closed_scheme_answers_nan_for_a_row_it_lacks(exported):
    report = exported("onnx")
    vectors, scores = (open_onnx(report.out / f"{name}.onnx") for name in ("item_embedding", "recommender"))
    rows, unknown = torch.tensor([0, ROWS - 1]), torch.tensor([-1, ROWS, 2**40, -(2**63)])
    assert vectors(rows).isfinite().all()
    assert vectors(unknown).isnan().all()
    assert scores(rows, rows).isfinite().all()
    assert scores(ANYWHERE[:4], unknown).isnan().all()
    assert report.files[1].inputs[0].takes == f"rows 0 to {ROWS - 1} of the run's items.parquet; any other gives NaN"


def test_export_json_says_what_goes_in_and_what_comes_out(exported):
    report = exported("onnx")
    said = json.loads((report.out / "export.json").read_text())
    assert (said["format"], said["precision"], said["encoding_version"]) == ("onnx", "fp32", 1)
    assert "XXH64" in said["raw_ids"]["string"]
    users, items, recommender = said["files"]
    assert [(own["name"], own["kind"], own["num_rows"]) for own in recommender["inputs"]] == [
        ("user_ids", "integer", None),
        ("item_ids", "string", ROWS),
    ]
    assert (users["shape"], items["shape"], recommender["shape"]) == (["batch", DIM], ["batch", DIM], ["batch"])
    assert recommender["agreement"]["max_difference"] == report.files[2].agreement.max_difference
    for file in said["files"]:
        session = onnxruntime.InferenceSession(report.out / file["file"], providers=["CPUExecutionProvider"])
        assert [own.name for own in session.get_inputs()] == [own["name"] for own in file["inputs"]]
        assert [(own.name, own.shape) for own in session.get_outputs()] == [(file["output"], file["shape"])]


@pytest.mark.parametrize(
    ("format", "suffix", "open_file"), [("onnx", ".onnx", open_onnx), ("torch", ".pt2", open_torch)]
)
def test_int8_is_close_and_an_id_has_the_same_vector_in_any_batch(format, suffix, open_file, model, exported):
    report = exported(format, "int8")
    assert [file.precision for file in report.files] == ["int8", "fp32", "int8"], "items are a table"
    assert report.files[0].agreement.max_difference > 1e-5, "nothing was rounded"
    vectors = open_file(report.out / f"user_embedding{suffix}")
    with torch.no_grad():
        together, alone = vectors(ANYWHERE), torch.cat([vectors(ANYWHERE[row : row + 1]) for row in range(10)])
        cosine = torch.cosine_similarity(together, model.users(ANYWHERE), dim=-1)
    assert cosine.mean() > 0.99
    assert_close(alone, together[:10])


def test_int8_leaves_the_arithmetic_of_the_hash_alone(exported):
    graph = onnx.load(exported("onnx", "int8").out / "user_embedding.onnx").graph
    stored = {own.name: own.data_type for own in graph.initializer}
    widened = {node.output[0]: stored[node.input[0]] for node in graph.node if node.op_type == "DequantizeLinear"}
    products = [widened[node.input[1]] for node in graph.node if node.op_type in ("Gemm", "MatMul")]
    assert products == [onnx.TensorProto.INT8] * 6, "two experts of two hidden layers and an output layer"
    recommender = onnx.load(exported("onnx", "int8").out / "recommender.onnx").graph
    assert _floats(recommender) < 1_000 + ROWS * DIM, "weights of a network are kept as floats: here, the MLP's"
    assert not {"QuantizeLinear", "DynamicQuantizeLinear"} & {node.op_type for node in graph.node}
    remainders = [node for node in graph.node if node.op_type == "Mod"]
    assert {stored[node.input[1]] for node in remainders} == {onnx.TensorProto.INT64}


def _floats(graph):
    return sum(np.prod(own.dims) for own in graph.initializer if own.data_type == onnx.TensorProto.FLOAT)


@pytest.mark.skipif(shutil.which("node") is None or shutil.which("npm") is None, reason="node or npm is not installed")
def test_onnx_files_answer_in_node_as_the_model_does_in_python(model, exported, tmp_path):
    """The hash works outside Python, over the whole int64 range, by the WebAssembly that browsers run."""
    install_for_node()
    users, items = pairs_for(model)
    np.asarray(users).tofile(tmp_path / "users")
    np.asarray(items).tofile(tmp_path / "items")
    ids = {"user_ids": str(tmp_path / "users"), "item_ids": str(tmp_path / "items")}
    jobs = [
        {"model": str(exported("onnx", precision).out / f"{name}.onnx"), "inputs": inputs, "output": str(output)}
        for precision, name, inputs, output in (
            ("fp32", "user_embedding", {"ids": ids["user_ids"]}, tmp_path / "vectors"),
            ("fp32", "recommender", ids, tmp_path / "scores"),
            ("int8", "recommender", ids, tmp_path / "scores-int8"),
        )
    ]
    done = subprocess.run(["node", "run_onnx.mjs", json.dumps(jobs)], cwd=NODE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = partial(np.fromfile, dtype=np.float32)
    with torch.no_grad():
        assert_close(torch.from_numpy(read(tmp_path / "vectors")).view(-1, DIM), model.users(users))
    assert_close(torch.from_numpy(read(tmp_path / "scores")), scores_of(model, users, items))
    in_python = open_onnx(exported("onnx", "int8").out / "recommender.onnx")(users, items)
    assert_close(torch.from_numpy(read(tmp_path / "scores-int8")), in_python)


def install_for_node():
    """The pinned package, into a directory that git ignores; scripts of packages are not run."""
    wanted = json.loads((NODE / "package.json").read_text())["dependencies"]["onnxruntime-web"]
    found = NODE / "node_modules" / "onnxruntime-web" / "package.json"
    if not found.exists() or json.loads(found.read_text())["version"] != wanted:
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(["npm", "install", *options], cwd=NODE, check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_file_that_disagrees_is_not_kept(precision, run, model, tmp_path, monkeypatch):
    """Here the exported hash gets negative ids wrong, as a careless remainder would."""
    right = hashing.torch_buckets
    monkeypatch.setattr(hashing, "torch_buckets", lambda ids, *rest: right(ids.abs(), *rest))
    with pytest.raises(ValueError, match=r"user_embedding\.pt2 is not kept: on 1000 ids"):
        export_run(run, tmp_path / "out", format="torch", precision=precision)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_model_with_nan_in_it_is_not_exported(tmp_path):
    make_run(tmp_path / "run", **SHARED_ROWS, weights=torch.nan)
    with pytest.raises(ValueError, match=r"user_embedding\.pt2 is not kept"):
        export_run(tmp_path / "run", tmp_path / "out", format="torch")


def test_int8_is_refused_where_there_is_no_network(tmp_path):
    make_run(tmp_path / "run", **SHARED_ROWS)
    with pytest.raises(ValueError, match="this run has none; export it as fp32"):
        export_run(tmp_path / "run", tmp_path / "out", precision="int8")
    assert not (tmp_path / "out").exists()


def test_what_onnx_cannot_say_is_refused_with_a_way_out(tmp_path):
    make_run(tmp_path / "run", users="dhe, binary", items="full", backbone="gmf")
    with pytest.raises(ValueError, match="user_embedding computes something that ONNX has no operator for"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_choice_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ValueError, match="format is 'tflite'; it must be onnx or torch"):
        export_run(tmp_path, tmp_path, format="tflite")
    with pytest.raises(ValueError, match="precision is 'int4'; it must be fp32 or int8"):
        export_run(tmp_path, tmp_path, precision="int4")


def test_the_command_prints_what_it_measured_and_a_directory_holds_one_export(run, exported):
    out = exported("torch").out
    before = (out / "export.json").read_text()
    people = CliRunner().invoke(cli.app, ["export", str(run), "--out", str(out), "--format", "torch"])
    assert people.exit_code == 0, people.output
    assert people.stdout.count("largest difference") == 3
    assert f"items: rows 0 to {ROWS - 1} of the run's items.parquet; any other gives NaN" in people.stdout
    assert (out / "export.json").read_text() == before, "the same export may be written again"
    other = CliRunner().invoke(cli.app, ["export", str(run), "--out", str(out), "--format", "onnx"])
    assert "holds an export already (torch, fp32)" in str(other.exception)
