"""Commands that compute guarantees: results as JSON, and errors in one line for any input."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.commands import Command, rejected, result
from tests.tables import each_row

from tacit.privacy.audit import Audit


def test_the_examples_of_the_help_work(command: Command) -> None:
    found = result(
        command(
            "calibrate",
            "--noise",
            "binomial",
            "--sensitivity",
            1,
            "--epsilon",
            1,
            "--delta",
            1e-5,
            "--json",
        )
    )
    assert found["trials"] == 62
    assert {
        "epsilon",
        "delta",
        "variance",
        "std",
        "trials",
        "meets_target",
        "guarantee",
    } <= found.keys()
    found = result(
        command(
            "privacy",
            "--noise",
            "skellam",
            "--variance",
            1388,
            "--sensitivity",
            10,
            "--delta",
            1e-5,
            "--json",
        )
    )
    assert found["epsilon"] == pytest.approx(1.0, abs=1e-3)
    found = result(
        command(
            "privacy",
            "--noise",
            "skellam",
            "--variance",
            1388,
            "--sensitivity",
            10,
            "--epsilon",
            1,
            "--json",
        )
    )
    assert found["delta"] == pytest.approx(1e-5, rel=1e-2)
    found = result(
        command("compose", "--epsilon", 0.1, "--participations", 100, "--delta", 1e-5, "--json")
    )
    assert found["best"] == found["exact"] < found["renyi"] < found["advanced"]
    found = result(
        command("amplify", "--epsilon0", 1, "--users", 10_000, "--delta", 1e-6, "--json")
    )
    assert found["epsilon"] == pytest.approx(0.0432, abs=1e-3)
    found = result(
        command(
            *("audit", "--noise", "discrete-laplace", "--epsilon", 1, "--noise-factor", 0.5),
            *("--samples", 20_000, "--json"),
        )
    )
    assert found["refuted"] is True


@pytest.mark.parametrize(
    "words",
    [("--sensitivity", "3"), ("--users", "1e3", "--sensitivity", "10"), ("--dimension", "3")],
)
def test_calibrate_and_privacy_agree(command: Command, words: tuple[str, ...]) -> None:
    found = result(
        command(
            "calibrate", "--noise", "skellam", "--epsilon", 2, "--delta", 1e-6, *words, "--json"
        )
    )
    options = [
        "--noise",
        "skellam",
        "--variance",
        found["variance"],
        "--sensitivity",
        found["sensitivity"],
        "--delta",
        1e-6,
        "--json",
    ]
    again = result(
        command("privacy", *options, *(["--participations", 3] if "--dimension" in words else []))
    )
    assert again["epsilon"] == pytest.approx(found["epsilon"], rel=1e-4)
    assert again["epsilon"] <= 2.0001


WIDTHS = {
    "skellam": ("variance", 10),
    "discrete-gaussian": ("sigma", 3),
    "gaussian": ("sigma", 3),
    "discrete-laplace": ("scale", 7),
}


@pytest.mark.parametrize("kind", WIDTHS)
@pytest.mark.parametrize("epsilon", [1, 0.01])
def test_calibrate_rounds_noise_up(command: Command, kind: str, epsilon: float) -> None:
    """To the nearest digit it gave an epsilon of up to 1.0004 where the table says 1."""
    name, sensitivity = WIDTHS[kind]
    common = ("--noise", kind, "--sensitivity", sensitivity, "--delta")
    delta = 0 if kind == "discrete-laplace" else 1e-5
    code, table, _ = command("calibrate", *common, delta, "--epsilon", epsilon)
    assert code == 0
    (row,) = re.findall(rf"^{name} +(\S+)", table, re.MULTILINE)
    asked = ("--as", "pure") if delta == 0 else ("--delta", delta)
    found = result(
        command("privacy", *common[:-1], *asked, f"--{name}", row.replace(",", ""), "--json")
    )
    assert epsilon * 0.998 <= found["epsilon"] <= epsilon


TABLES = [
    ("calibrate", "--noise", "skellam", "--epsilon", 1, "--delta", 1e-5),
    ("privacy", "--noise", "gaussian", "--sigma", 2, "--delta", 0.1),
]


@pytest.mark.parametrize("words", TABLES)
def test_without_json_a_table_is_printed(command: Command, words: tuple[object, ...]) -> None:
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    assert "epsilon" in out
    assert not out.startswith("{")


def test_an_infinite_epsilon_is_null_in_json(command: Command) -> None:
    assert (
        result(
            command(
                "privacy",
                "--noise",
                "binomial",
                "--trials",
                5,
                "--sensitivity",
                10,
                "--delta",
                0.1,
                "--json",
            )
        )["epsilon"]
        is None
    )
    found = result(
        command(
            "compose",
            "--epsilon",
            0.1,
            "--batch-delta",
            1e-6,
            "--participations",
            100,
            "--delta",
            1e-5,
            "--json",
        )
    )
    assert found["best"] is None


def test_help_and_version_are_printed(command: Command) -> None:
    code, out, _ = command("--version")
    assert code == 0
    assert out.startswith("tacit 0.")
    for words in (("--help",), ("calibrate", "-h"), ("privacy", "--help")):
        code, out, err = command(*words)
        assert (code, err) == (0, "")
        assert "Usage" in out
    code, out, err = command()
    assert "Usage" in out
    assert err == ""


CALIBRATE = ("calibrate", "--noise", "skellam")
PRIVACY = ("privacy", "--noise", "skellam", "--variance", 10)
BAD: list[tuple[str, tuple[object, ...]]] = [
    ("epsilon is 0", (*CALIBRATE, "--epsilon", 0, "--delta", 1e-5)),
    ("epsilon is -1", (*CALIBRATE, "--epsilon", -1, "--delta", 1e-5)),
    ("epsilon is nan", (*CALIBRATE, "--epsilon", "nan", "--delta", 1e-5)),
    ("epsilon is inf", (*CALIBRATE, "--epsilon", "inf", "--delta", 1e-5)),
    ("epsilon is inf", (*CALIBRATE, "--epsilon", "1e400", "--delta", 1e-5)),
    ("no meaningful privacy", (*CALIBRATE, "--epsilon", 1e6, "--delta", 1e-5)),
    ("delta is 1", (*CALIBRATE, "--epsilon", 1, "--delta", 1)),
    ("delta is -0.1", (*CALIBRATE, "--epsilon", 1, "--delta", -0.1)),
    ("delta is nan", (*CALIBRATE, "--epsilon", 1, "--delta", "nan")),
    ("delta is inf", (*CALIBRATE, "--epsilon", 1, "--delta", "inf")),
    ("give a delta", (*CALIBRATE, "--epsilon", 1)),
    ("sensitivity is 0", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--sensitivity", 0)),
    ("sensitivity is 0.5", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--sensitivity", 0.5)),
    ("sensitivity is nan", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--sensitivity", "nan")),
    ("sensitivity is inf", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--sensitivity", "1e400")),
    ("scale the query", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--sensitivity", 1e20)),
    ("users is 0", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--users", 0)),
    ("users is 2.5", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--users", 2.5)),
    ("users is inf", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--users", "inf")),
    ("dimension is 0", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--dimension", 0)),
    ("for binomial noise", (*CALIBRATE, "--epsilon", 1, "--delta", 1e-5, "--bits", 3)),
    (
        "too few even when they are fair",
        (
            "calibrate",
            "--noise",
            "binomial",
            "--epsilon",
            1,
            "--delta",
            1e-5,
            "--users",
            10,
            "--bits",
            3,
        ),
    ),
    ("give exactly one of --delta", PRIVACY),
    ("give exactly one of --delta", (*PRIVACY, "--epsilon", 1, "--delta", 0.1)),
    ("sensitivity is 0", (*PRIVACY, "--epsilon", 1, "--sensitivity", 0)),
    ("delta is 2", (*PRIVACY, "--delta", 2)),
    ("epsilon is -2", (*PRIVACY, "--epsilon", -2)),
    ("epsilon is nan", ("privacy", "--noise", "gaussian", "--sigma", 1, "--epsilon", "nan")),
    ("epsilon is -1", ("privacy", "--noise", "gaussian", "--sigma", 1, "--epsilon", -1)),
    ("sigma is -1", ("privacy", "--noise", "gaussian", "--sigma", -1, "--epsilon", 1)),
    ("skellam noise needs --variance: give", ("privacy", "--noise", "skellam", "--epsilon", 1)),
    ("variance is 0", ("privacy", "--noise", "skellam", "--variance", 0, "--epsilon", 1)),
    (
        "variance is -4",
        ("privacy", "--noise", "discrete-gaussian", "--variance", -4, "--epsilon", 1),
    ),
    ("trials is 0", ("privacy", "--noise", "binomial", "--trials", 0, "--epsilon", 1)),
    ("p is 1.5", ("privacy", "--noise", "binomial", "--trials", 10, "--bias", 1.5, "--epsilon", 1)),
    ("arriving is 0", (*PRIVACY, "--epsilon", 1, "--arriving", 0)),
    ("arriving is nan", (*PRIVACY, "--epsilon", 1, "--arriving", "nan")),
    ("participations is 0", (*PRIVACY, "--epsilon", 1, "--participations", 0)),
    ("lose digits", ("privacy", "--noise", "binomial", "--trials", 1e18, "--delta", 0.1)),
    ("participations is 0", ("compose", "--epsilon", 1, "--delta", 1e-5, "--participations", 0)),
    ("delta is 0", ("compose", "--epsilon", 1, "--delta", 0, "--participations", 2)),
    ("epsilon0 is -1", ("amplify", "--epsilon0", -1, "--users", 10, "--delta", 1e-5)),
    ("no meaningful privacy", ("amplify", "--epsilon0", 1e5, "--users", 10, "--delta", 1e-5)),
    ("users is 0", ("amplify", "--epsilon0", 1, "--users", 0, "--delta", 1e-5)),
    ("samples is 50", ("audit", "--noise", "discrete-laplace", "--epsilon", 1, "--samples", 50)),
    (
        "samples is 1e+15",
        ("audit", "--noise", "discrete-laplace", "--epsilon", 1, "--samples", 1e15),
    ),
    ("exactly one of --noise", ("audit", "--epsilon", 1)),
    ("exactly one of --noise", ("audit", "--noise", "skellam", "--algorithm", "dist-dp-se")),
    (
        "--samples is 1000.0, but it is for --noise only",
        ("audit", "--algorithm", "cdp-se", "--samples", 1000),
    ),
    (
        "--through is mixing, but it is for --algorithm only",
        ("audit", "--noise", "skellam", "--through", "mixing"),
    ),
    ("needs the claimed --epsilon", ("audit", "--noise", "skellam")),
    ("no guarantee to audit", ("audit", "--algorithm", "ucb1")),
    (
        "noise factor is 0",
        ("audit", "--noise", "discrete-laplace", "--epsilon", 1, "--noise-factor", 0),
    ),
    ("'--epsilon'", (*CALIBRATE, "--epsilon", "much")),
    ("'--noise'", ("calibrate", "--noise", "white", "--epsilon", 1)),
    ("--nose", ("calibrate", "--nose", "skellam")),
    ("--epsilon, not --rho,", CALIBRATE),
    ("conjure", ("conjure",)),
]


@each_row(("message", "words"), BAD)
def test_a_bad_value_is_one_line_and_exit_code_2(
    command: Command, message: str, words: tuple[object, ...]
) -> None:
    assert message in rejected(command(*words))
    assert message in rejected(command(*words, "--json"))


ODD = st.sampled_from(
    [
        "-1",
        "0",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e-400",
        "1e-300",
        "1e-12",
        "0.5",
        "1",
        "2",
        "3.5",
        "7",
        "40",
        "1e3",
        "1e9",
        "1e300",
        "",
        "x",
    ]
)


@pytest.mark.extended
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(data=st.data())
def test_arbitrary_values_give_json_or_one_error_line(
    command: Command, data: st.DataObject
) -> None:
    """Whatever is typed: a result in JSON, or one line and exit code 2."""
    kind = data.draw(
        st.sampled_from(
            ["discrete-laplace", "skellam", "discrete-gaussian", "gaussian", "binomial"]
        )
    )
    options = {
        "calibrate": ["epsilon", "delta", "sensitivity", "users", "bits", "bias", "dimension"],
        "privacy": [
            "epsilon",
            "delta",
            "sensitivity",
            "scale",
            "variance",
            "sigma",
            "trials",
            "bias",
            "arriving",
            "participations",
        ],
        "compose": ["epsilon", "delta", "participations", "batch-delta"],
        "amplify": ["epsilon0", "users", "delta"],
    }
    name = data.draw(st.sampled_from(sorted(options)))
    usual = {
        "epsilon": "1",
        "delta": "1e-5",
        "sensitivity": "2",
        "participations": "2",
        "epsilon0": "1",
        "users": "50",
    }
    fitting = {"discrete-laplace": "scale", "skellam": "variance", "binomial": "trials"}.get(
        kind, "sigma"
    )
    values = {option: usual[option] for option in options[name] if option in usual}
    if name == "privacy":
        values.pop(data.draw(st.sampled_from(["epsilon", "delta"])))
        values[fitting] = "100"
    for option in data.draw(
        st.lists(st.sampled_from(options[name]), min_size=1, max_size=2, unique=True)
    ):
        values[option] = data.draw(ODD)
    words = [word for option, value in values.items() for word in (f"--{option}={value}",)]
    ended = command(
        name, *(["--noise", kind] if name in ("calibrate", "privacy") else []), *words, "--json"
    )
    if ended[0]:
        rejected(ended)
    else:
        found = result(ended)
        assert not any(isinstance(value, float) and math.isnan(value) for value in found.values())


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("privacy", "--noise", "skellam", "--variance", 1388, "--sensitivity", 10,
          "--delta", 1e-5), {"epsilon": "1.001"}),
        (("privacy", "--noise", "gaussian", "--sigma", 2, "--epsilon", 1.5),
         {"delta": "0.0003938"}),
        (("calibrate", "--noise", "gaussian", "--constants", "paper", "--epsilon", 1.00004,
          "--delta", 1e-5), {"target epsilon": "1.001"}),
        (("compose", "--epsilon", 0.1, "--participations", 100, "--delta", 1e-5),
         {"renyi": "4.616", "advanced": "5.851"}),
        (("amplify", "--epsilon0", 1, "--users", 1000, "--delta", 1e-6),
         {"epsilon": None, "randomized response epsilon": None}),
    ],
)  # fmt: skip
def test_participant_facing_guarantees_are_rounded_up(
    command: Command, words: tuple[object, ...], names: dict[str, str | None]
) -> None:
    exact = result(command(*words, "--json"))
    _, out, _ = command(*words)
    for name, expected in names.items():
        shown = next(line for line in out.splitlines() if line.startswith(name + "  "))
        number = shown.removeprefix(name).strip()
        assert expected is None or number == expected
        assert exact[name.replace(" ", "_")] <= float(number) * (1 + 1e-12)


def test_continuous_noise_is_labelled_for_simulation(command: Command) -> None:
    found = result(
        command("privacy", "--noise", "gaussian", "--sigma", 2, "--delta", 0.1, "--json")
    )
    assert found["guarantee"]["arithmetic"] == "ideal"
    assert "simulation only" in found["guarantee"]["text"]


def test_a_calibrated_guarantee_is_printed_as_data(command: Command) -> None:
    asked = ("calibrate", "--noise", "discrete-laplace", "--epsilon", 1, "--users", 64)
    found = result(command(*asked, "--json"))["guarantee"]
    assert (found["epsilon"], found["delta"], found["participations"]) == (1.0, 0.0, 1)
    assert (found["view"], found["arithmetic"]) == ("opened-sum", "exact")
    nobody = {"id": "dishonest-at-most", "scope": "round", "count": 0, "fraction": "0"}
    assert nobody in found["assumptions"]
    assert {"id": "released-only-above", "fraction": "1"} in found["assumptions"]
    assert found["text"].startswith("(1, 0)-DP: to an adversary who sees the released sums")
    assert "guarantee: (1, 0)-DP" in command(*asked)[1]


def test_corrections_round_no_epsilon_or_delta_down(command: Command) -> None:
    rows = result(command("corrections", "--json"))["corrections"]
    shown = [line.split()[-1] for line in command("corrections")[1].splitlines() if line]
    numbers = [float(last.replace(",", "")) for last in shown if re.fullmatch(r"[\d,.e-]+", last)]
    wanted = [row for row in rows if "epsilon" in row["what"] or "delta" in row["what"]]
    assert len(wanted) > 10
    for row in wanted:
        near = [number for number in numbers if abs(number / row["true"] - 1) < 1e-3]
        assert any(number >= row["true"] * (1 - 1e-12) for number in near), row


FIELDS = {"epsilon", "delta", "view", "neighbours", "participations", "arithmetic"}
FIELDS |= {"assumptions", "text"}


@pytest.mark.parametrize(
    ("words", "wanted", "assumed"),
    [
        (
            (*PRIVACY, "--delta", 1e-5, "--arriving", 0.5, "--participations", 3),
            ("epsilon", "delta", 3, "opened-sum"),
            {"id": "released-only-above", "fraction": "1/2"},
        ),
        (
            ("privacy", "--noise", "gaussian", "--sigma", 2, "--epsilon", 1),
            ("epsilon", "delta", 1, "opened-sum"),
            {"id": "semi-honest-server"},
        ),
        (
            ("compose", "--epsilon", 0.1, "--participations", 100, "--delta", 1e-5),
            ("best", "delta", 100, "opened-sum"),
            {"id": "private-messages", "epsilon": 0.1, "delta": 0.0},
        ),
        (
            ("amplify", "--epsilon0", 1, "--users", 1000, "--delta", 1e-6),
            ("epsilon", "delta", 1, "shuffled"),
            {"id": "dishonest-at-most", "scope": "round", "count": 0, "fraction": "0"},
        ),
    ],
)
def test_a_computed_guarantee_is_printed_as_data_and_a_sentence(
    command: Command, words: tuple[Any, ...], wanted: tuple[Any, ...], assumed: dict[str, Any]
) -> None:
    record = result(command(*words, "--json"))
    found = record["guarantee"]
    assert set(found) == FIELDS
    assert (found["epsilon"], found["delta"]) == (record[wanted[0]], record[wanted[1]])
    assert (found["participations"], found["view"]) == wanted[2:]
    assert assumed in found["assumptions"]
    assert ({"id": "distinct-rounds"} in found["assumptions"]) == (found["participations"] > 1)
    assert f"guarantee: {found['text']}" in " ".join(command(*words)[1].split())


def test_noise_without_a_guarantee_prints_none(command: Command) -> None:
    record = result(command(*PRIVACY, "--delta", 0, "--json"))
    assert (record["epsilon"], record["guarantee"]) == (None, None)
    assert "guarantee" not in command(*PRIVACY, "--delta", 0)[1]


@pytest.mark.parametrize(
    "words",
    [
        ("--noise", "discrete-laplace", "--epsilon", 1, "--samples", 1000),
        ("--algorithm", "cdp-se", "--seconds", 0.2),
    ],
)
def test_lower_bounds_of_attacks_are_never_rounded_up(
    command: Command, words: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also under a name of its own: beside a guarantee an ε is read as guaranteed."""
    proved = Audit(0.98768, 0.999, 1000, 0.0, True, False)
    monkeypatch.setattr("tacit.privacy.audit", lambda *_, **__: proved)
    monkeypatch.setattr("tacit.studies.audit.lower_bound", lambda *_, **__: proved)
    code, out, _ = command("audit", *words)
    assert code == 0
    assert re.search(r"^epsilon at least +0\.9876 *$", out, re.MULTILINE)
    assert not re.search(r"^epsilon  ", out, re.MULTILINE)


def test_audited_values_are_printed_fully_and_never_rounded_down(command: Command) -> None:
    words = ("audit", "--noise", "skellam", "--epsilon", 1.00001, "--delta", 1e-5)
    code, out, _ = command(*words, "--samples", 1000)
    assert code == 0
    assert re.search(r"claimed +1\.001", out)
    found = result(command(*words, "--samples", 1000, "--json"))["guarantee"]
    assert set(found) == FIELDS
    assert 1 < found["epsilon"] <= 1.00001
    whole = result(command("audit", "--algorithm", "dist-dp-se", "--seconds", 3, "--json"))
    assert set(whole["guarantee"]) == FIELDS
    one = {"id": "dishonest-at-most", "scope": "round", "count": 1, "fraction": "0"}
    assert one in whole["guarantee"]["assumptions"]
