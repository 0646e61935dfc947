"""Live experiments with many options whose mean answers are linear in public features."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.deployed import KEYS, definition_of, deployed
from tests.service.served import ADMIN, Served, served, wait_for

from tacit.algorithms import lookup
from tacit.errors import TacitError
from tacit.service import definition, definition_files, forecast, party
from tacit.service.pages import experimenter, participant
from tacit.service.party import exact_noise
from tacit.studies.plan import plan
from tacit.terms import cosign

NEAR = 0.06  # a tenth of the difference between the worst and the best option
COLUMNS = ("price", "length", "colour")


def offers(count: int, seed: int = 1) -> tuple[str, dict[str, float]]:
    """A table of options, and mean answers that are linear in their features: 0.2 to 0.8."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(0, 10, (count, len(COLUMNS))).round(2)
    values = features @ [0.05, -0.03, 0.02]
    means = 0.2 + 0.6 * (values - values.min()) / np.ptp(values)
    names = [f"offer {n}" for n in range(count)]
    cells = [",".join([name, *map(str, row)]) for name, row in zip(names, features, strict=True)]
    text = "\n".join([",".join(["option", *COLUMNS]), *cells])
    return text, dict(zip(names, means.tolist(), strict=True))


def linear_definition(trust: str, table: str, **changed: Any) -> definition.Definition:
    return definition_of(trust, options=None, options_table=table, **changed)


def near_best(best: str | None, means: dict[str, float]) -> bool:
    return best is not None and max(means.values()) - means[best] <= NEAR


# Whole experiments


@pytest.mark.extended
def test_two_hundred_options_end_with_one_of_the_best(tmp_path: Path) -> None:
    """Over two servers, in one process; the same simulation is wrong in 0 of 400 seeds."""
    table, means = offers(200)
    defined = linear_definition("two-servers", table, participants=450)
    with deployed(defined, tmp_path) as one:
        assert near_best(one.run(means, seed=1), means)
        status = one.coordinator.status(one.digest)
        assert status["state"] == "finished"
        assert status["linear"]
        assert len({row["option"] for row in status["rounds"]}) < 40  # of 200
        rows = one.coordinator.estimates(one.digest)["options"]
        covered = [row["low"] <= means[row["option"]] <= row["high"] for row in rows]
        assert all(covered)  # all at once with 95% probability; seeded
        assert all(row["always"] for row in rows)
        page = "".join(
            experimenter.parts(one.coordinator.view(one.digest), helper_reachable=True).values()
        )
        assert "180 more options are not listed" in page
        assert len(page) < 60_000


@pytest.mark.extended
@pytest.mark.parametrize(
    ("trust", "how"),
    [
        ("local", {"participants": 3000, "epsilon": 3}),
        ("shuffler", {"participants": 1500}),
        ("secure-aggregation", {"participants": 600, "missing": 0, "dishonest": 0}),
    ],
)
def test_every_trust_model_serves_options_with_features(
    trust: str, how: dict[str, Any], tmp_path: Path
) -> None:
    table, means = offers(40)
    with deployed(linear_definition(trust, table, **how), tmp_path) as one:
        assert near_best(one.run(means, seed=1), means)


def test_an_aborted_round_of_a_phase_is_repeated(tmp_path: Path) -> None:
    table, means = offers(30)
    defined = linear_definition("two-servers", table, participants=900)
    rng = random.Random(1)
    with deployed(defined, tmp_path) as one:
        one.hold(lambda name: (int(rng.random() < means[name]),), come=0.35)
        before = one.coordinator.status(one.digest)["rounds"]
        aborted = {row["option"] for row in before if row["stage"] == "refused"}
        one.step(2)
        again = {row["option"] for row in one.coordinator.status(one.digest)["rounds"]}
        stages = [row["stage"] for row in one.coordinator.status(one.digest)["rounds"]]
        assert aborted
        assert aborted <= again
        assert stages.count("open") == len(aborted)


def settled(both: Served, digest: bytes) -> dict[str, Any] | None:
    """The status once a round has free slots, or the experiment has ended."""
    status: dict[str, Any] = both.status(digest)
    free = any(row["stage"] == "open" and row["given"] < row["places"] for row in status["rounds"])
    return status if free or status["state"] == "finished" else None


@pytest.mark.extended
def test_a_definition_file_with_200_options_runs_over_http(tmp_path: Path) -> None:
    """Both parties' ASGI applications in threads of this process."""
    table, means = offers(200)
    (tmp_path / "offers.csv").write_text(table)
    with served(tmp_path) as both:
        today = datetime.now(UTC).date()
        values = vars(linear_definition("two-servers", table, participants=900, window=0)) | {
            "options_file": "offers.csv",
            "first_day": today - timedelta(days=1),
            "last_day": today + timedelta(days=30),
            "helper_address": both.urls[1],
            "helper_key": both.keys[1],
            "joining": 3600,
        }
        shown = {name: value for name, value in values.items() if name != "options_table"}
        (tmp_path / "offers.toml").write_text(definition_files.write(shown))
        text = definition_files.whole_text(tmp_path / "offers.toml")
        made = both.post(0, "/experiments", json={"definition": text}, headers=ADMIN)
        digest = bytes.fromhex(made.raise_for_status().json()["digest"])
        terms = both.coordinator.terms(digest).terms
        signature = cosign(terms, both.members[1].key)
        both.helper.admit(terms, (both.coordinator.signature(digest), signature))
        path = f"/experiments/{digest.hex()}/cosignature"
        both.post(0, path, json={"signature": signature.hex()}).raise_for_status()
        rng = random.Random(1)
        for _ in range(30):
            status = wait_for(partial(settled, both, digest))
            if status["state"] == "finished":
                break
            both.hold(digest, lambda name: int(rng.random() < means[name]))
        assert status["state"] == "finished"
        assert near_best(status["best"], means)
        page = both.get(0, f"/e/{digest.hex()}").raise_for_status().text
        assert "linear in the features" in page


# The noise of the running servers


SCALE_LEVELS = 10**6
CATEGORIES = 41
LEAST = 1.0  # mean magnitude of both servers' noise in units of a scale: 1.5 on average


def released_sums(directory: Path, noise: Callable[[bytes], Any], count: int) -> list[float]:
    """The sums of so many first phases in which every answer is 0, in units of a noise's scale."""
    table = "option,kind\n" + "\n".join(f"{n},k{n}" for n in range(CATEGORIES))
    defined = linear_definition(
        "two-servers",
        table,
        levels=SCALE_LEVELS,
        labels=(),
        epsilon=Fraction(40),
        participants=800,
        min_batch_size=2,
        dropout=0,
    )
    sums: list[float] = []
    for number in range(count):
        where = directory / str(number)
        where.mkdir()
        with deployed(defined, where, options={"noise": noise}) as one:
            one.hold(lambda _name: (0,))
            rounds = one.coordinator.status(one.digest)["rounds"]
        sums += [row["sums"][0] for row in rounds if row["stage"] == "opened"]
    return [total * SCALE_LEVELS / float(defined.scale) for total in sums]


def problems(sums: list[float]) -> set[str]:
    """What is wrong with the noise in sums of zeros.

    The mean magnitude of n sums of two Laplace draws is 1.5 with a standard deviation of 1.33/√n:
    0.119 at n = 123, so that it is below 1 with probability below 2e-5. Two of the sums are equal
    with probability below 1e-2 (each scale is 25,000 levels), three below 1e-5.
    """
    found = set()
    if np.mean(np.abs(sums)) < LEAST:
        found.add("scale")
    if len(sums) - len(set(sums)) > 1:
        found.add("reused")
    return found


def halved(_identity: bytes) -> Callable[[Fraction], int]:
    return lambda scale: party._draw(scale / 2)


def missing(_identity: bytes) -> Callable[[Fraction], int]:
    return lambda _scale: 0


def reused(_identity: bytes) -> Callable[[Fraction], int]:
    return lambda scale: int(scale)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("noise", "seen", "phases"),
    [
        (exact_noise, set(), 3),
        (halved, {"scale"}, 3),
        (missing, {"scale", "reused"}, 1),
        (reused, {"reused"}, 1),
    ],
    ids=["exact", "halved", "missing", "reused"],
)
def test_the_noise_of_running_servers_matches_the_terms(
    noise: Callable[[bytes], Any], seen: set[str], phases: int, tmp_path: Path
) -> None:
    sums = released_sums(tmp_path, noise, phases)
    assert len(sums) == phases * CATEGORIES
    assert problems(sums) == seen


# Definitions


def test_a_definition_names_a_file_of_options(tmp_path: Path) -> None:
    table, means = offers(5)
    (tmp_path / "offers.csv").write_text(table)
    values = vars(linear_definition("local", table)) | {"options_file": "offers.csv"}
    shown = {name: value for name, value in values.items() if name != "options_table"}
    (tmp_path / "x.toml").write_text(definition_files.write(shown))
    found = definition_files.load(tmp_path / "x.toml")
    assert found.options == tuple(means)
    assert found.algorithm == "private-pe"
    assert found.table is not None
    assert found.table.names == COLUMNS
    assert definition_files.parse(definition_files.whole_text(tmp_path / "x.toml")) == found
    with pytest.raises(TacitError, match="but its content is missing: publish with tacit"):
        definition_files.parse((tmp_path / "x.toml").read_text())
    (tmp_path / "offers.csv").unlink()
    with pytest.raises(TacitError, match="which cannot be read"):
        definition_files.load(tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"algorithm": "private-med"}, "private-med uses no features of options: use private-pe"),
        ({"algorithm": "ldp-dpe"}, "try more options from phase to phase"),
        ({"algorithm": "ldp-pe"}, "noise of real numbers terms cannot state: use private-pe"),
        ({"control_share": "1/5"}, "which private-pe does not support"),
        ({"guardrail": "complaints"}, "which private-pe does not support"),
        ({"options": ("a", "b")}, "options differs from the table"),
        ({"options_table": "option\na\nb"}, 'columns "option" and one for each feature'),
        ({"options_table": "option,x\na,1\nb"}, "line 3 has 1 cells"),
        ({"options_table": "option,x\na,1\nb,"}, "without empty cells: see line 3, x"),
        ({"options_table": "option,x\na,1"}, "2 to 2,000 options, not 1"),
        ({"options_table": "option,x\na,1\na,2"}, 'names "a" twice'),
        ({"participants": 50}, "must be at least 96 for 4 options side by side"),
    ],
)
def test_an_invalid_table_is_rejected_with_a_remedy(changed: dict[str, Any], words: str) -> None:
    table, _ = offers(8)
    given = {"options": None, "options_table": table} | changed
    with pytest.raises(TacitError, match=words):
        definition_of("local", **given)


def test_an_algorithm_for_features_needs_a_table() -> None:
    with pytest.raises(TacitError, match="private-pe needs a table of options with features"):
        definition_of("local", algorithm="private-pe")


def test_the_registry_states_deployable_trust_models() -> None:
    served = lookup("private-pe").deployable.split(", ")
    assert set(served) == {"secure-aggregation", "shuffler", "local", "two-servers"}
    assert not lookup("secagg-dpe").deployable


def test_a_plan_refers_to_the_forecast_of_a_table() -> None:
    with pytest.raises(TacitError, match="depends on the features"):
        plan(gap=0.1, algorithm="private-pe")


def test_terms_and_pages_of_a_thousand_options_are_short() -> None:
    table, _ = offers(1000)
    defined = linear_definition("two-servers", table, participants=20_000)
    terms = defined.terms("https://coordinator.example", KEYS[0])
    assert len(terms.options) == 1000
    assert len(terms.encode()) < 1 << 15
    page = participant.page(terms, "running", "")
    assert "offer 4 and 995 others" in page
    assert "offer 500" not in page
    told = forecast.explained(defined)["What you ask"]
    assert "Options differ in 3 features: price, length, colour." in told[2]


def test_a_forecast_simulates_the_table() -> None:
    table, _ = offers(40)
    defined = linear_definition("two-servers", table, participants=4000, baseline="0.2", lift="2")
    found = forecast.forecast(defined, runs=3)
    assert isinstance(found, forecast.LinearForecast)
    assert (found.people, round(found.worst, 9), round(found.best, 9)) == (4000, 0.2, 0.6)
    assert found.near >= 2 / 3
    assert "of 3 simulated experiments" in next(found.sentences())
