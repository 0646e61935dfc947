"""The commands simulate and compare: printed output, also on recorded data."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Command, rejected, result
from tests.tables import each_row, extended_after

from tacit.algorithms.registry import algorithms, lookup
from tacit.cli.simulating import format_option

SMALL = {
    "arms": ("--arms", 3, "--horizon", 200),
    "linear": ("--dimension", 3, "--actions", 6, "--horizon", 200),
    "federated": ("--silos", 3, "--dimension", 3, "--actions", 5, "--horizon", 20, "--sync", 10),
}
PEOPLE = 400
QUICK = ("--runs", 2, "--json")


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A column per option; the second is better, and longer."""
    rows = [f"{int(i % 5 == 0)},{int(i % 2 == 0)}" for i in range(PEOPLE)]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(["old,new", *rows, *[",1"] * 50]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A row per participation; every participant has two."""
    rows = [f"{i // 2},{'ab'[i % 2]},{(i % 10) / 10}" for i in range(PEOPLE)]
    path = tmp_path / "long.csv"
    path.write_text("\n".join(["user,arm,reward", *rows]) + "\n", encoding="utf-8")
    return path


def records(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("name", ["dist-dp-se", "cdp-dpe", "secagg-fedlinucb"])
def test_a_simulation_prints_its_configuration_and_result(
    command: Command, tmp_path: Path, name: str
) -> None:
    size = SMALL[algorithms()[name].family]
    words = ("simulate", "--algorithm", name, *size, *QUICK, "--out", tmp_path / "out")
    found = result(command(*words))
    wanted = {"algorithm", "horizon", "regret_mean", "regret_sem", "time_average_regret", "rounds"}
    wanted |= {"guarantee", "seconds", "asked", "interrupted", "version", "warnings", "runs"}
    assert wanted <= found.keys()
    assert (found["asked"], len(found["runs"])) == (2, 2)
    cut = [line for line in found["warnings"] if "outside [0, 1] and clipped" in line]
    assert found["warnings"] == (cut if name == "secagg-fedlinucb" else [])
    assert found["configuration"]["epsilon"] == 1
    assert found["configuration"].get("delta") in (None, 1e-6)
    assert ("winner" in found) == (name != "secagg-fedlinucb")
    if name == "dist-dp-se":
        assert {row["option"] for row in found["estimates"]} == {f"option {k}" for k in (1, 2, 3)}
    rows = records(tmp_path / "out" / f"{name}.csv")
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{name}.csv", f"{name}.jsonl"}


def test_weak_guarantees_get_a_remark(command: Command) -> None:
    words = ("simulate", "--algorithm", "sdp-ae", *SMALL["arms"], *QUICK)
    assert result(command(*words, "--epsilon", 1, "--delta", 1e-6))["warnings"] == []
    found = result(command(*words, "--epsilon", 6, "--delta", 0.01))["warnings"]
    assert all(word in line for word, line in zip(("delta", "epsilon"), found, strict=True))


def test_a_radius_of_the_paper_without_coverage_gets_a_remark(command: Command) -> None:
    words = ("simulate", *SMALL["arms"], "--runs", 1, "--rewards", "bernoulli", "--epsilon", 0.5)
    told = {
        (name, setting): result(
            command(*words, "--algorithm", name, "--constants", setting, "--json")
        )["warnings"]
        for name in ("sdp-ae", "vb-sdp-ae")
        for setting in ("paper", "tight")
    }
    (line,) = told.pop(("vb-sdp-ae", "paper"))
    assert "√2 too narrow" in line
    assert all(lines == [] for lines in told.values())
    code, out, _ = command(*words, "--algorithm", "vb-sdp-ae", "--constants", "paper")
    assert code == 0
    assert "too narrow" in " ".join(out.split())


def test_frequent_wrap_arounds_give_no_interval_and_an_explanation(
    command: Command,
) -> None:
    asked = ("simulate", "--algorithm", "dist-dp-se", "--arms", 2, "--horizon", 3000, "--runs", 1)
    _, printed, _ = command(*asked, "--constants", "paper")
    assert "0.0000 – 1.0000" not in printed
    assert "unavailable" in printed
    assert "no 95% intervals and no decisions: the printed modulus" in " ".join(printed.split())
    _, tight, _ = command(*asked)
    assert "unavailable" not in tight
    assert "no 95% intervals" not in tight


def test_a_single_run_has_no_standard_error(command: Command) -> None:
    words = ("simulate", "--algorithm", "klucb", *SMALL["arms"], "--runs", 1)
    assert result(command(*words, "--json"))["regret_sem"] is None
    code, out, _ = command(*words)
    assert code == 0
    assert "standard error" not in out


COMPARED = {
    "arms": "private-klucb,dist-dp-se,ldp-se,klucb",
    "linear": "dpe,cdp-dpe,cdp-pe",
    "federated": "fedlinucb,secagg-fedlinucb",
}


@pytest.mark.extended
@pytest.mark.parametrize("family", extended_after(1, COMPARED))
def test_algorithms_of_every_family_are_compared(
    command: Command, tmp_path: Path, family: str
) -> None:
    names = COMPARED[family]
    words = ("compare", "--algorithms", names, *SMALL[family], "--out", tmp_path, "--runs", 2)
    found = result(command(*words, "--json"))
    assert [row["algorithm"] for row in found["results"]] == names.split(",")
    assert all(row["asked"] == 2 for row in found["results"])
    assert Path(found["picture"]).read_bytes()[:4] == b"\x89PNG"
    assert {row["algorithm"] for row in records(tmp_path / "regret.csv")} == set(names.split(","))
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    assert all(name in out for name in names.split(","))
    assert ("participants" if family == "arms" else "rounds") in out


@pytest.mark.extended
def test_comparisons_equal_single_simulations(command: Command, tmp_path: Path) -> None:
    size = (*SMALL["arms"], *QUICK)
    names = "dist-dp-se,ldp-se"
    both = result(command("compare", "--algorithms", names, *size, "--out", tmp_path))["results"]
    for name, found in zip(names.split(","), both, strict=True):
        alone = result(command("simulate", "--algorithm", name, *size))
        assert _timeless(alone) == _timeless(found)


@pytest.mark.extended
def test_a_comparison_states_the_number_of_participations(command: Command, tmp_path: Path) -> None:
    size = ("--arms", 2, "--horizon", 500, "--runs", 1, "--out", tmp_path)
    for names, often, said in (
        ("dist-dp-se,cdp-se", 1, "guarantee: for participants who take part at most once;"),
        ("dist-dp-se,ucb1", 3, "guarantee: for participants who take part at most 3 times;"),
        ("ucb1,klucb", 1, "guarantee: participants have no guarantee"),
    ):
        more = ("--participations", often) if often > 1 else ()
        code, out, _ = command("compare", "--algorithms", names, *size, *more)
        assert code == 0
        assert said in " ".join(out.split())


def _timeless(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "seconds"}


def test_a_table_is_replayed_to_its_end(command: Command, wide: Path) -> None:
    words = ("simulate", "--algorithm", "private-klucb", "--replay", wide, "--runs", 2)
    found = result(command(*words, "--json"))
    assert found["horizon"] == PEOPLE
    assert found["winner"] in ("old", "new")
    assert {row["option"] for row in found["estimates"]} == {"old", "new"}
    assert not {"rewards", "instance", "means"} & found["configuration"].keys()
    about = found["replay"]
    assert about["rows"] == 2 * PEOPLE + 50
    assert 0 < about["rows_used"] <= PEOPLE
    assert "at most once" in about["people"]
    assert about["people"] in found["guarantee"]["text"]
    code, out, _ = command(*words)
    text = " ".join(out.split())
    assert code == 0
    assert f"of {2 * PEOPLE + 50:,} recorded rows used" in text
    assert about["people"] in text


def test_a_log_is_replayed_and_its_participations_stated(command: Command, long: Path) -> None:
    words = ("simulate", "--algorithm", "dist-dp-se", "--replay", long, *QUICK)
    code, _, err = command(*words)
    assert code == 2
    assert "--participations 2" in err
    found = result(command(*words, "--participations", 2))
    assert found["horizon"] == PEOPLE // 2
    assert found["replay"]["rows"] == PEOPLE
    assert found["guarantee"]["participations"] == 2
    assert {row["option"] for row in found["estimates"]} == {"a", "b"}


def test_participants_are_resampled_only_on_request(command: Command, wide: Path) -> None:
    words = ("simulate", "--algorithm", "private-klucb", "--replay", wide, "--horizon", 5000)
    code, _, err = command(*words, *QUICK)
    assert code == 2
    assert "--resample" in err
    found = result(command(*words, *QUICK, "--resample"))
    assert found["horizon"] == 5000
    assert found["replay"]["rows_used"] is None
    assert "again and again" in found["replay"]["people"]
    assert found["guarantee"] is None


def test_clipped_rewards_are_counted(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "stars.csv"
    path.write_text("a,b\n" + "3,0.5\n0,1\n" * 20, encoding="utf-8")
    words = ("simulate", "--algorithm", "klucb", "--replay", path)
    assert "--clip" in command(*words)[2]
    assert result(command(*words, "--clip", *QUICK))["replay"]["clipped"] == 20
    assert "20 rewards outside" in command(*words, "--clip")[1]


@pytest.mark.extended
def test_algorithms_are_compared_on_recorded_data(
    command: Command, wide: Path, tmp_path: Path
) -> None:
    words = ("compare", "--algorithms", "klucb,dist-dp-se", "--replay", wide, *QUICK)
    found = result(command(*words, "--out", tmp_path / "out"))["results"]
    assert [row["horizon"] for row in found] == [PEOPLE] * 2
    assert all(row["replay"]["rows"] == 2 * PEOPLE + 50 for row in found)


TABLES = [
    ("simulate", "--algorithm", "dist-dp-se", *SMALL["arms"]),
    ("simulate", "--algorithm", "secagg-fedlinucb", *SMALL["federated"]),
    ("compare", "--algorithms", "private-klucb,split-dp-se", *SMALL["arms"]),
    ("algorithms",),
    ("calibrate", "--noise", "skellam", "--epsilon", 1, "--delta", 1e-5),
]


@pytest.mark.extended
@pytest.mark.parametrize("words", TABLES, ids=lambda words: str(words[0]))
@pytest.mark.parametrize("columns", extended_after(1, [40, 80, 300]))
def test_tables_fit_the_terminal_without_truncation(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[object, ...],
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= min(columns, 100)
    assert "…" not in out
    if columns == 80:
        assert not {"regret_mean", "bits_per_user", "batches", "interrupted"} & set(out.split())


def test_names_of_algorithms_are_listed_whole_with_what_is_deployable(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = command("algorithms")
    assert code == 0
    last = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.strip()}
    assert algorithms().keys() <= last.keys()
    assert (last["successive-elimination"], last["dist-dp-se"]) == ("no", "yes")
    assert last["private-med"] == "central"  # not central


GUARDED = ("--means", "0.2,0.3,0.4", "--control-share", "0.2", "--horizon", "30000")
RAIL = ("--guardrail", "errors", "--guardrail-means", "0.1,0.1,0.4")


def test_a_guardrail_is_simulated_and_reported(command: Command) -> None:
    words = ("simulate", "--algorithm", "private-med", *GUARDED, *RAIL, "--runs", 2)
    found = result(command(*words, "--json"))
    assert found["paused_runs"] == {"option 3": 2}
    reasons = [run["paused"]["option 3"] for run in found["runs"]]
    assert all(reason.startswith("errors is clearly worse") for reason in reasons)
    rows = found["estimates"]
    assert [row["paused"] for row in rows] == [None, None, reasons[0]]
    assert all(row["guardrail_low"] < row["guardrail"] < row["guardrail_high"] for row in rows)
    assert found["winner"] == "option 2"
    both = {"id": "metrics-per-participation", "count": 2}
    assert both in found["guarantee"]["assumptions"]
    assert found["configuration"]["guardrail"] == "errors"
    assert "times_lower_bound" not in found or found["times_lower_bound"] is None
    code, out, _ = command(*words)
    text = " ".join(out.split())
    assert code == 0
    assert "guardrail of the first run: errors, lower is better" in text
    assert "paused by the guardrail option 3 (in 2 of 2 runs)" in text
    assert "paused: option 3: errors is clearly worse than the control's" in text


def test_output_without_a_guardrail_mentions_none(command: Command) -> None:
    found = result(
        command("simulate", "--algorithm", "private-med", *GUARDED, "--runs", 1, "--json")
    )
    assert "paused_runs" not in found
    assert "paused" not in found["runs"][0]
    assert all(row["guardrail"] is row["paused"] is None for row in found["estimates"])


@each_row(
    ("words", "message"),
    [
        ((*RAIL, "--control-share", "0"), "give the control a share"),
        (RAIL[:2], "it has no means: give guardrail_means"),
        (RAIL[2:], "guardrail is missing, but its means or margin are given"),
        ((*RAIL[:3], "0.1,0.4"), "guardrail_means is 0.1,0.4: must be 3 numbers"),
        ((*RAIL[:3], "0.1,0.4,2"), "guardrail_means is 0.1,0.4,2: must be"),
        ((*RAIL, "--guardrail-better", "more"), "must be one of lower, higher"),
        ((*RAIL, "--guardrail-margin", "1.5"), "guardrail_margin is 1.5"),
        ((*RAIL, "--trust", "shuffler", "--epsilon", "0.1"), "epsilon is shared among 2 metrics"),
    ],
)
def test_invalid_guardrails_are_rejected(
    command: Command, words: tuple[str, ...], message: str
) -> None:
    code, out, err = command("simulate", "--algorithm", "private-med", *GUARDED, *words, *QUICK)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_algorithms_without_guardrails_reject_them(command: Command, wide: Path) -> None:
    code, _, err = command("simulate", "--algorithm", "dist-dp-se", *SMALL["arms"], *RAIL)
    assert code == 2
    assert "dist-dp-se has no option --guardrail" in err
    words = ("simulate", "--algorithm", "private-med", "--replay", wide, "--control-share", "0.2")
    code, _, err = command(*words, "--guardrail", "errors")
    assert code == 2
    assert "the environment has 1 metrics: must have 2" in " ".join(err.split())


@pytest.mark.extended
def test_an_attack_figure_shows_the_attack_and_the_schedules(
    command: Command, tmp_path: Path
) -> None:
    words = ("attack", "--games", 40, "--runs", 1, "--seed", 3, "--out", tmp_path / "attack")
    found = result(command(*words, "--json"))
    assert found["attack"]["games"] == 40
    assert found["attack"]["limit"] < 0.56
    schedules = found["schedules"]
    guaranteed = [row["guarantee"] is not None for row in schedules]
    assert guaranteed == [False, True, True, True]
    assert all("one participant" in row["guarantee"]["text"] for row in schedules[1:])
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in found["files"])
    assert "games is 0" in rejected(command("attack", "--games", 0))


def test_an_attack_figure_with_an_unwritable_path_is_rejected_first(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    words = ("attack", "--games", 10**9, "--out", tmp_path / "taken")
    assert "cannot write to" in rejected(command(*words))


def test_the_requested_epsilon_is_not_rounded_down(command: Command) -> None:
    words = ("simulate", "--algorithm", "cdp-se", *SMALL["arms"], "--epsilon", 8.00004)
    _, out, _ = command(*words)
    said = " ".join(out.split())
    assert "(8.001, 0)-DP" in said
    assert "epsilon 8.001," in said
    assert "epsilon 8.001 is a weak guarantee: an answer can become e^8.001 times likelier" in said


def test_budgets_of_silos_are_not_rounded_down() -> None:
    assert format_option(((0.5, 1e-6), (0.5, 1e-6), (1.00004, 1e-5))) == "2*0.5:1e-6,1.001:1e-5"


@pytest.mark.parametrize("words", [("--algorithm", "cdp-pe", "-h"), ("-h", "--algorithm=cdp-pe")])
def test_help_with_an_algorithm_shows_only_its_options_and_their_defaults(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = command("simulate", *words)
    listed = {word.strip(",.") for word in out.split() if re.match("--(?!no-)", word)}
    own = {f"--{name.replace('_', '-')}" for name in lookup("cdp-pe").options}
    common = {"--algorithm", "--help", "--runs", "--seed", "--resume", "--out", "--json"}
    assert (code, listed) == (0, own | common)
    assert "Number of rounds. [default: 1000000]" in " ".join(out.split())
    assert [panel in out for panel in ("Problem", "Privacy", "Environment", "Run", "Output")]


def test_help_without_an_algorithm_groups_all_options(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = command("simulate", "--help")
    panels = [line.split()[1] for line in out.splitlines() if line.startswith("╭─")]
    assert panels == ["Options", "Problem", "Privacy", "Environment", "Run", "Output"]
    assert "Number of silos; 100, or 10 on recorded data. (federated only)" in " ".join(out.split())
    assert "simulat" in rejected(command("simulat"))
    assert "did you mean simulate?" in rejected(command("simulat"))
