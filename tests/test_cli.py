import json

import pytest
from typer.testing import CliRunner

from tableless import cli


def run(*arguments):
    return CliRunner().invoke(cli.app, list(arguments))


def test_inspect_prints_the_table_of_the_paper_and_saves_a_picture(tmp_path):
    picture = tmp_path / "new" / "encodings.png"
    result = run("inspect", "--num-ids", "500", "--num-hashes", "128", "--picture", str(picture))
    assert result.exit_code == 0
    assert "dense hash" in result.stdout
    assert "✓" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_inspect_for_machines_ends_in_one_json_object():
    result = run("inspect", "--num-ids", "500", "--num-hashes", "128", "--json")
    report = json.loads(result.stdout.splitlines()[-1])
    assert [encoding["name"] for encoding in report["encodings"]][-1] == "dense hash"
    assert report["encodings"][-1]["unique"]


def test_a_mistake_ends_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tableless", "inspect", "--num-ids", "1"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "command", [command.name or command.callback.__name__ for command in cli.app.registered_commands]
)
def test_every_command_shows_an_example_in_its_help(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: tableless {command}" in result.stdout.replace("\n", " ")
