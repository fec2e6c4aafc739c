import json
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch

from tableless.embedding.ids import to_ids
from tableless.recommender.run_directory import RunDirectory
from tableless.serving.bulk.embed_files import connected, embed_file, embed_files
from tableless.serving.bulk.paths_and_uris import find_sources

from .small_runs import make_run

GROUP, BLOCK = 400, 1000  # rows: a block has three row groups


def write_run(directory, *, scheme="dhe", backbone="gmf"):
    """Users and items 1000, 1001, … are known; an open scheme answers for others, too."""
    make_run(directory, users=scheme, items=scheme, backbone=backbone)
    return directory


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


def write_ids(path, ids, column="id"):
    path.parent.mkdir(parents=True, exist_ok=True)
    other = np.arange(len(ids))
    pl.DataFrame({"other": other, column: ids}).write_parquet(path, row_group_size=GROUP)


@pytest.fixture
def folder(tmp_path):
    """5,600 ids over the whole range in three files, one of them in a directory of its own."""
    random = np.random.default_rng(0)
    for name, count in {"a": 2500, "b": 100, "more/a": 3000}.items():
        write_ids(tmp_path / "ids" / f"{name}.parquet", random.integers(-(2**63), 2**63 - 1, count))
    return tmp_path / "ids"


def parts(out):
    """What is in a directory of vectors: name of the part -> its frame."""
    return {str(path.relative_to(out)): pl.read_parquet(path) for path in sorted(out.rglob("*.parquet"))}


def embed(run, ids, out, **options):
    return embed_files(run, str(ids), str(out), side="item", block_rows=BLOCK, **options)


def test_every_id_of_every_file_gets_its_vector_in_order(run, folder, tmp_path):
    result = embed(run, folder, tmp_path / "out")
    assert (result.vectors, result.found) == (5600, 0)
    found = parts(tmp_path / "out")
    assert list(found) == [
        *("a-00000.parquet", "a-00001.parquet", "a-00002.parquet"),
        "b-00000.parquet",
        *("more/a-00000.parquet", "more/a-00001.parquet", "more/a-00002.parquet"),
    ]
    for source in ("a", "b", "more/a"):
        frame = pl.concat([part for name, part in found.items() if name.startswith(f"{source}-")])
        ids = pl.read_parquet(folder / f"{source}.parquet")["id"]
        assert frame["id"].equals(ids)
        with torch.no_grad():
            expected = RunDirectory(run).read().model.items(to_ids(ids))
        torch.testing.assert_close(torch.from_numpy(frame["vector"].to_numpy().copy()), expected, atol=1e-5, rtol=0)
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["vectors"] == 5600


def test_a_restart_writes_what_is_missing_and_nothing_else(run, folder, tmp_path):
    out = tmp_path / "out"
    embed(run, folder, out)
    before = parts(out)
    (out / "a-00001.parquet").unlink()
    (out / "a-00001.parquet.0123456789ab.part").write_bytes(b"cut off")
    old = (out / "b-00000.parquet").stat().st_mtime_ns
    told = []
    result = embed(run, folder, out, on_block=lambda done, total: told.append((done, total)))
    assert (result.vectors, result.found) == (5600, 4600 - 200)  # a block of 1,200: three row groups of 400
    assert told == [(5600, 5600)]
    assert all(frame.equals(before[name]) for name, frame in parts(out).items())
    assert (out / "b-00000.parquet").stat().st_mtime_ns == old
    assert not list(out.rglob("*.part"))


def test_new_and_changed_files_are_embedded_and_the_others_left_alone(run, folder, tmp_path):
    out = tmp_path / "out"
    embed(run, folder, out)
    before = parts(out)
    write_ids(folder / "a.parquet", np.arange(50))
    write_ids(folder / "c.parquet", np.arange(60))
    assert embed(run, folder, out).vectors == 50 + 60 + 3100
    after = parts(out)
    assert after.keys() == (before.keys() - {"a-00001.parquet", "a-00002.parquet"}) | {"c-00000.parquet"}
    assert after["a-00000.parquet"]["id"].to_list() == list(range(50))


@pytest.mark.parametrize("change", ["model", "side", "column", "ids", "block_rows"])
def test_a_restart_with_something_else_is_refused(run, folder, tmp_path, change):
    embed(run, folder, tmp_path / "out")
    before = parts(tmp_path / "out")
    arguments = {"run": run, "ids": str(folder), "side": "item", "column": None, "block_rows": BLOCK}
    other = {"model": {"run": write_run(tmp_path / "other", backbone="mlp")}, "side": {"side": "user"}}
    other |= {"column": {"column": "other"}, "ids": {"ids": f"{folder}/*.parquet"}, "block_rows": {"block_rows": 9}}
    with pytest.raises(ValueError, match=f"begun with another {change} .* give another --out, or delete"):
        embed_files(out=str(tmp_path / "out"), **(arguments | other[change]))
    assert all(frame.equals(before[name]) for name, frame in parts(tmp_path / "out").items())


def test_a_directory_of_somebody_elses_files_is_left_alone(run, folder):
    with pytest.raises(FileExistsError, match="not from `tableless embed`; give another --out"):
        embed(run, folder, folder)


def test_vectors_below_the_directory_of_the_ids_are_not_taken_for_ids(run, folder):
    embed(run, folder, folder / "vectors")
    assert embed(run, folder, folder / "vectors").vectors == 5600


def test_a_damaged_manifest_is_named(run, folder, tmp_path):
    embed(run, folder, tmp_path / "out")
    (tmp_path / "out" / "_manifest.json").write_text('{"settings": ')
    with pytest.raises(ValueError, match=r"_manifest.json is damaged; give another --out"):
        embed(run, folder, tmp_path / "out")


def test_what_cannot_be_an_id_is_named_with_its_file_and_the_rest_is_kept(run, folder, tmp_path):
    write_ids(folder / "c.parquet", pl.Series([1, 2, None]))
    with pytest.raises(ValueError, match=r"c.parquet, counted from row 0 on: None at position 2 cannot be an id"):
        embed(run, folder, tmp_path / "out")
    assert "a-00000.parquet" in parts(tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.part"))
    write_ids(folder / "c.parquet", pl.Series([1, 2, 3]))
    assert embed(run, folder, tmp_path / "out").vectors == 5603


def test_a_file_without_the_column_is_named_before_any_work_is_done(run, folder, tmp_path):
    write_ids(folder / "z.parquet", np.arange(3), column="item")
    with pytest.raises(ValueError, match=r"z.parquet has no column 'id'; it has other, item"):
        embed(run, folder, tmp_path / "out", column="id")
    assert not (tmp_path / "out").exists()


def test_a_table_names_the_file_with_an_id_it_has_no_row_for(tmp_path):
    run = write_run(tmp_path / "run", scheme="full")
    write_ids(tmp_path / "ids" / "a.parquet", np.array([1003, 1000]))
    assert embed(run, tmp_path / "ids", tmp_path / "out").vectors == 2
    write_ids(tmp_path / "ids" / "b.parquet", np.array([1003, 7]))
    with pytest.raises(ValueError, match=r"b.parquet.* no row for item number 2"):
        embed(run, tmp_path / "ids", tmp_path / "out")


def test_strings_keep_their_names(run, tmp_path):
    write_ids(tmp_path / "ids" / "a.parquet", pl.Series(["x", "yy", "x"]))
    embed(run, tmp_path / "ids", tmp_path / "out")
    (frame,) = parts(tmp_path / "out").values()
    assert frame["id"].to_list() == ["x", "yy", "x"]
    np.testing.assert_array_equal(frame["vector"][0], frame["vector"][2])


def test_what_the_runs_data_has_decides_what_an_id_in_a_text_is(run, tmp_path):
    (tmp_path / "ids.txt").write_text("007\n7\n")
    embed_file(run, str(tmp_path / "ids.txt"), str(tmp_path / "items.parquet"), side="item")
    embed_file(run, str(tmp_path / "ids.txt"), str(tmp_path / "users.parquet"), side="user")
    items, users = (pl.read_parquet(tmp_path / f"{side}.parquet") for side in ("items", "users"))
    assert items["id"].to_list() == ["007", "7"]
    assert users["id"].to_list() == [7, 7]
    write_ids(tmp_path / "strings" / "a.parquet", pl.Series(["7"]))
    with pytest.raises(ValueError, match="user ids are integers in this run's data"):
        embed_files(run, str(tmp_path / "strings"), str(tmp_path / "out"), side="user")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.parquet", "b.parquet", "more/a.parquet"]),
        ("/*.parquet", ["a.parquet", "b.parquet"]),
        ("/a*", ["a.parquet"]),
        ("/*/a.parquet", ["more/a.parquet"]),
        ("/more/a.parquet", ["a.parquet"]),
    ],
)
def test_a_star_stands_for_anything_but_a_slash_in_paths_and_uris(folder, monkeypatch, pattern, names):
    (folder / "notes.txt").write_text("not ids")
    (folder / "_temporary.parquet").write_text("not yet data")
    assert list(find_sources(f"{folder}{pattern}")[1]) == names
    assert list(find_sources(f"file://{folder}{pattern}")[1]) == names
    monkeypatch.chdir(folder.parent)
    assert list(find_sources(f"ids{pattern}")[1]) == names


def test_files_that_are_not_there_are_named(folder):
    for text in (f"{folder}/x.parquet", f"{folder}/x*.parquet"):
        with pytest.raises(FileNotFoundError, match="x"):
            find_sources(text)


def test_a_bucket_is_read_and_written_by_the_same_code(run, folder):
    import fsspec

    bucket = fsspec.filesystem("memory")
    bucket.put(str(folder), "/bucket/ids", recursive=True)
    place = "fsspec+memory://bucket"
    assert embed(run, f"{place}/ids/*.parquet", f"{place}/out").vectors == 2600
    bucket.rm("/bucket/out/a-00000.parquet")
    assert embed(run, f"{place}/ids/*.parquet", f"{place}/out").found == 1400
    with bucket.open("/bucket/out/a-00000.parquet") as file:
        assert len(pl.read_parquet(file)) == 1200


def test_one_file_becomes_one_file(run, folder, tmp_path):
    assert embed_file(run, f"{folder}/a.parquet", str(tmp_path / "x.parquet"), side="user").vectors == 2500
    assert len(pl.read_parquet(tmp_path / "x.parquet")) == 2500
    with pytest.raises(ValueError, match=r"are 3 files, and x.parquet is one; give a directory"):
        embed_file(run, str(folder), "x.parquet", side="user")
    (tmp_path / "empty.csv").write_text("id\n")
    with pytest.raises(ValueError, match=r"empty.csv holds no ids"):
        embed_file(run, str(tmp_path / "empty.csv"), str(tmp_path / "y.parquet"), side="user")
    assert not list(tmp_path.glob("y.parquet*"))
    with pytest.raises(ValueError, match=r"empty.csv is not a .parquet file"):
        embed(run, tmp_path / "empty.csv", tmp_path / "out")


# Forks from a process that has imported everything but started nothing: a child is soon at work. It tells of each part
# it has written; some parts later, and at a random moment of the next ones, it is killed.
KILLS = """
    import os, random, signal, sys, time
    import tests.before_forks
    from tableless.serving.bulk.embed_files import embed_files

    run, ids, out, undisturbed, kills = *sys.argv[1:5], int(sys.argv[5])

    def start(target):
        heard, told = os.pipe()
        child = os.fork()
        if not child:
            embed_files(run, ids, target, side="item", block_rows=1000, on_block=lambda *_: os.write(told, b"."))
            os._exit(0)
        os.close(told)
        return child, heard

    random.seed(0)
    for _ in range(kills):
        child, heard = start(out)
        for _ in range(random.randrange(6)):
            os.read(heard, 1)
        time.sleep(random.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(sum(name.endswith(".parquet") for _, _, names in os.walk(out) for name in names))
    for target in (out, undisturbed):
        assert os.waitpid(start(target)[0], 0)[1] == 0
"""


def test_kill_9_at_any_moment_leaves_nothing_wrong_and_a_restart_ends_the_same(run, tmp_path):
    random = np.random.default_rng(1)
    for number in range(20):
        write_ids(tmp_path / "ids" / f"{number:02}.parquet", random.integers(-(2**63), 2**63 - 1, 3000))
    out, undisturbed = tmp_path / "out", tmp_path / "undisturbed"
    arguments = [str(run), str(tmp_path / "ids"), str(out), str(undisturbed), "6"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLS), *arguments],
        capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    expected, found = parts(undisturbed), parts(out)
    assert found.keys() == expected.keys()
    assert all(frame.equals(expected[name]) for name, frame in found.items())
    parts_after_each_kill = [int(line) for line in finished.stdout.splitlines()]
    assert len(parts_after_each_kill) == 6
    assert any(0 < count < len(expected) for count in parts_after_each_kill), "some kill came in the midst of it"


RAY = """
    import sys, ray
    from tableless.serving.bulk.embed_files import embed_files

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    run, ids, out = sys.argv[1:]
    try:
        embed_files(run, ids, out, side="item", block_rows=1000, engine="ray")
    except ValueError as error:
        print(error)
"""


def test_ray_writes_the_same_parts_and_names_what_is_wrong_when_the_rest_is_done(run, folder, tmp_path):
    pytest.importorskip("ray", reason="pip install 'tableless[scale]'")
    embed(run, folder, tmp_path / "local")
    embed(run, folder, tmp_path / "ray")
    for name in ("a-00000", "a-00002", "more/a-00001"):
        (tmp_path / "ray" / f"{name}.parquet").unlink()
    write_ids(folder / "c.parquet", pl.Series([1, 2, None]))
    arguments = map(str, [run, folder, tmp_path / "ray"])
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RAY), *arguments], capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    assert "c.parquet, counted from row 0 on: None at position 2 cannot be an id" in finished.stdout
    expected, found = parts(tmp_path / "local"), parts(tmp_path / "ray")
    assert found.keys() == expected.keys()
    assert all(frame.equals(expected[name]) for name, frame in found.items())


def test_a_cluster_of_ones_own_has_the_two_cpus_that_ray_needs(monkeypatch):
    calls = []
    context = SimpleNamespace(enable_progress_bars=True)
    data = SimpleNamespace(DataContext=SimpleNamespace(get_current=lambda: context))
    ray = SimpleNamespace(
        data=data,
        is_initialized=lambda: False,
        init=lambda **options: calls.append(options),
        shutdown=lambda: calls.append("shutdown"),
    )
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with connected(ray, None):
        pass
    assert calls[0]["num_cpus"] == 2
    assert calls[1] == "shutdown"
    with connected(ray, "auto"):
        pass
    assert calls[2]["address"] == "auto"
    assert "num_cpus" not in calls[2]
