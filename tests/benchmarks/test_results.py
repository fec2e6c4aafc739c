"""RESULTS.md: a run replaces what its own machine has reached, and nothing else."""

import pytest
from benchmarks.__main__ import _with_one
from benchmarks.measuring import Row, describe_machine
from benchmarks.results import HEAD, picture_of, processor_of, section, with_part, with_section

from tests.documents import ROOT

AMD, INTEL = "AMD EPYC (AVX2)", "Intel(R) Xeon(R) CPU @ 2.60GHz (AVX-512)"
BODY = "\n\n".join(
    ["measured today", section("coded", "| a |\n| --- |\n| old ## 1 |"), section("growth", "old table\n\n![it](x.png)")]
)


def two_machines():
    return with_part(with_part("", AMD, BODY), INTEL, BODY)


def test_the_first_machine_makes_the_file():
    assert with_part("", AMD, BODY) == f"{HEAD}\n\n## {AMD}\n\n{BODY}\n"


@pytest.mark.parametrize("processor", [AMD, INTEL])
def test_a_machine_replaces_its_own_part_and_keeps_the_other_where_it_is(processor):
    text = with_part(two_machines(), processor, "measured later\n\n" + section("ids", "new table"))
    assert text.count("measured today") == text.count("measured later") == text.count("new table") == 1
    assert text.startswith(f"{HEAD}\n\n## {AMD}\n\n")
    assert text.index(f"## {AMD}\n") < text.index(f"## {INTEL}\n")
    assert (text.index("measured later") > text.index(f"## {INTEL}\n")) == (processor == INTEL)
    assert text.count("### ids.py") == text.count("### coded.py") == 1
    assert with_part(text, processor, BODY) == two_machines()


@pytest.mark.parametrize("processor", [AMD, INTEL])
@pytest.mark.parametrize("name", ["coded", "growth"])
def test_one_section_is_replaced_in_the_part_of_its_machine(processor, name):
    before = two_machines()
    text = with_section(before, processor, name, "seven")
    old = BODY.replace("| a |\n| --- |\n| old ## 1 |", "seven") if name == "coded" else (
        BODY.replace("old table\n\n![it](x.png)", "seven")
    )  # fmt: skip
    assert text == with_part(before, processor, old)
    assert with_section(text, processor, name, "eight") == text.replace("seven", "eight")


def test_a_new_section_comes_last_in_its_part():
    text = with_section(two_machines(), AMD, "busy", "new table")
    assert text.index("### growth.py") < text.index("### busy.py") < text.index(f"## {INTEL}")
    assert text.replace("\n\n### busy.py\n\nnew table", "") == two_machines()


def test_a_machine_without_a_part_is_refused_one_section():
    with pytest.raises(ValueError, match=r"results of AMD EPYC \(AVX2\), and none of Intel"):
        with_section(with_part("", AMD, BODY), INTEL, "coded", "seven")
    with pytest.raises(ValueError, match="results of no machine, and none of AMD"):
        with_section("", AMD, "coded", "seven")


def test_the_kind_of_a_machine_is_its_processor_whatever_its_threads_and_versions():
    assert processor_of(f"{INTEL}, 1 thread(s), Python 3.11.7, torch 2.13.0+cpu, numpy 2.4.6") == INTEL
    assert processor_of(f"{INTEL}, 16 thread(s), Python 3.12.1, torch 2.14.0, numpy 2.5.0") == INTEL
    assert processor_of("Chip, of a kind (DEFAULT), 2 thread(s), Python 3.13.0") == "Chip, of a kind (DEFAULT)"
    assert processor_of(describe_machine())
    assert picture_of(AMD) == "growth-amd-epyc-avx2.png"
    assert picture_of(INTEL) == "growth-intel-r-xeon-r-cpu-2-60ghz-avx-512.png"


def test_a_section_by_itself_says_what_it_was_measured_on(capsys):
    machine = f"{AMD}, 1 thread(s), Python 3.12.1"
    text = _with_one(two_machines(), machine, "coded", [Row("how many?", "seven")])
    part = text.partition(f"## {INTEL}")[0]
    assert "| how many? | seven |" in part
    assert f"measured by itself: {machine}. 20" in part
    assert "how many?: seven" in capsys.readouterr().out


def test_the_committed_results_are_in_this_form():
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    for line in (line for line in text.splitlines() if line.startswith("## ")):
        processor = line.removeprefix("## ")
        part = text.partition(f"{line}\n")[2].partition("\n## ")[0]
        assert part.lstrip().startswith(f"{processor}, 1 thread(s), ")
        assert f"]({picture_of(processor)})" in part
        assert (ROOT / "benchmarks" / picture_of(processor)).exists()
