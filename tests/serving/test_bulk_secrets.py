"""Keys inside a URI open a bucket; they are neither written down nor printed."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tableless import cli
from tableless.serving.bulk import embed_files as bulk
from tableless.serving.bulk import paths_and_uris as files
from tableless.serving.bulk.embed_files import embed_file, embed_files
from tableless.serving.bulk.paths_and_uris import Place, find_sources, without_secrets

from .test_bulk import write_ids, write_run

SECRETS = ("AKIA7", "wJalr", "token9")
OPEN = "s3://bucket/ids/*.parquet?region=eu-west-1"
WITH_KEY = "s3://AKIA7:wJalr@bucket/ids/*.parquet?region=eu-west-1&session_token=token9"
OUT = "s3://AKIA7:wJalr@bucket/vectors?secret_key=token9"


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A directory of this disk that is reached by s3://…bucket/…, whatever the credentials."""
    real = files.locate

    def locate(text):
        _, is_bucket, path = text.partition("bucket/")
        local = real(str(tmp_path / "bucket" / path.partition("?")[0]))
        return Place(local.filesystem, local.path) if is_bucket and text.startswith("s3://") else real(text)

    monkeypatch.setattr(files, "locate", locate)
    monkeypatch.setattr(bulk, "locate", locate)
    write_ids(tmp_path / "bucket" / "ids" / "a.parquet", np.array([5, -7, 10**12]))
    write_ids(tmp_path / "bucket" / "ids" / "b.parquet", np.array([2**62, 3]))
    return tmp_path / "bucket"


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def assert_no_secret(text):
    assert not [secret for secret in SECRETS if secret in text], text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/data/a@b/*.parquet", "/data/a@b/*.parquet"),
        (OPEN, OPEN),
        (WITH_KEY, OPEN),
        (OUT, "s3://bucket/vectors"),
        ("s3://AKIA7:wJalr/with/slashes@bucket/x", "s3://bucket/x"),
        ("s3://AKIA7:wJalr@bucket:9000/day@3/x", "s3://bucket:9000/day@3/x"),
        ("s3://bucket:9000/day@3/x", "s3://bucket:9000/day@3/x"),
        ("s3://bucket/x?endpoint_override=http://AKIA7:wJalr@host&region=r", "s3://bucket/x?region=r"),
        ("abfs://AKIA7@bucket/x?account_key=wJalr&sig=token9", "abfs://bucket/x"),
    ],
)
def test_what_may_be_secret_is_left_out_and_the_rest_of_a_place_stays(given, shown):
    assert without_secrets(given) == shown
    assert without_secrets(shown) == shown


def test_the_manifest_holds_no_key_and_another_key_goes_on_with_the_same_work(run, bucket):
    assert embed_files(run, WITH_KEY, OUT, side="item").vectors == 5
    manifest = (bucket / "vectors" / "_manifest.json").read_text()
    assert_no_secret(manifest)
    assert json.loads(manifest)["settings"]["ids"] == OPEN
    (bucket / "vectors" / "b-00000.parquet").unlink()
    for uri in (WITH_KEY.replace("AKIA7:wJalr", "NEW:KEY"), OPEN):
        assert embed_files(run, uri, OUT, side="item").vectors == 5
    assert len(pl.read_parquet(bucket / "vectors" / "b-00000.parquet")) == 2
    with pytest.raises(ValueError, match="begun with another ids") as error:
        embed_files(run, WITH_KEY.replace("/ids/*", "/ids/a*"), OUT, side="item")
    assert_no_secret(str(error.value))


def test_a_manifest_from_before_is_recognised_and_loses_its_key(run, bucket):
    embed_files(run, WITH_KEY, OUT, side="item")
    path = bucket / "vectors" / "_manifest.json"
    content = json.loads(path.read_text())
    content["settings"]["ids"] = WITH_KEY
    path.write_text(json.dumps(content))
    assert embed_files(run, WITH_KEY, OUT, side="item").found == 5
    assert_no_secret(path.read_text())


def test_the_command_prints_no_key(run, bucket):
    for options in ([], ["--json"]):
        result = CliRunner().invoke(cli.app, ["embed", str(run), "--ids", WITH_KEY, "--out", OUT, *options])
        assert result.exit_code == 0, result.output
        assert_no_secret(result.output)
        assert "s3://bucket/vectors" in result.output


@pytest.mark.parametrize(
    "call",
    [
        lambda run: find_sources(WITH_KEY.replace("*.parquet", "none.parquet")),
        lambda run: find_sources(WITH_KEY.replace("*", "none*")),
        lambda run: find_sources("s3://AKIA7:wJa lr@elsewhere/x"),  # pyarrow repeats what it can't read
        lambda run: find_sources("nope://AKIA7:wJalr@elsewhere/x*"),
        lambda run: embed_file(run, WITH_KEY, OUT, side="item"),
    ],
)
def test_an_error_repeats_no_key(run, bucket, call):
    with pytest.raises((ValueError, OSError)) as error:
        call(run)
    assert_no_secret(str(error.value))
    assert error.value.__cause__ is None


def test_ray_is_refused_for_one_file_without_repeating_the_key(run):
    out = "s3://AKIA7:wJalr@bucket/vectors.parquet"
    result = CliRunner().invoke(cli.app, ["embed", str(run), "--ids", OPEN, "--out", out, "--engine", "ray"])
    assert "s3://bucket/vectors.parquet is one" in str(result.exception)
