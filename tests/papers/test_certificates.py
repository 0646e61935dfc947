"""Certificates against slow enumeration, other arithmetic, and parameters that must fail."""

from __future__ import annotations

import itertools
import json
import math
import sys
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from tacit.errors import TacitError
from tacit.papers import certificates, count_ratios
from tacit.papers.certificates import as_row, certify, search
from tacit.papers.count_ratios import integer_ratio, tilted_ratio
from tacit.sampling.certificates import (
    Certificate,
    Method,
    PureShuffleParameters,
    TableRow,
    groups,
    load_table,
    lookup,
)

flint = pytest.importorskip("flint")

TINY = [
    PureShuffleParameters(1, 1, Fraction(1), 2, Fraction(1, 10)),
    PureShuffleParameters(2, 1, Fraction(3, 4), 3, Fraction(1, 100)),
    PureShuffleParameters(3, 1, Fraction(1, 2), 2, Fraction(1, 1000)),
    PureShuffleParameters(4, 1, Fraction(2), 1, Fraction(1, 50)),
]
DESIGN = (
    Fraction(4, 5),
    20,
    Fraction(1, 10**6),
)  # noise epsilon, tau, mixture of the design's measurements


def device_distribution(parameters: PureShuffleParameters, bit: int) -> list[mpmath.mpf]:
    """The distribution of a device's count from the definition: a sum over pairs of Pólya
    variables, in 60 digits.
    """
    with mpmath.workdps(60):
        share = mpmath.mpf(1) / parameters.users
        base = mpmath.exp(
            -mpmath.mpf(parameters.noise_epsilon.numerator) / parameters.noise_epsilon.denominator
        )
        terms = math.ceil(150 / float(parameters.noise_epsilon))
        polya = [
            mpmath.gamma(x + share)
            / mpmath.factorial(x)
            / mpmath.gamma(share)
            * base**x
            * (1 - base) ** share
            for x in range(terms + parameters.tau)
        ]
        tau, bits = parameters.tau, parameters.bits
        difference = [
            mpmath.fsum(polya[x] * polya[x + abs(j)] for x in range(terms))
            for j in range(-tau, tau + 1)
        ]
        mixture = mpmath.mpf(parameters.mixture.numerator) / parameters.mixture.denominator
        distribution = [mixture / (bits + 1)] * (bits + 1)
        for j in range(-tau, tau + 1):
            distribution[tau + bit + j] += (
                (1 - mixture) * difference[j + tau] / mpmath.fsum(difference)
            )
        return distribution


def enumerated_epsilon(parameters: PureShuffleParameters) -> mpmath.mpf:
    """The worst log ratio over every data set, every neighbour and every combination of the users'
    counts.
    """
    distributions = [device_distribution(parameters, bit) for bit in (0, 1)]
    views = {}
    with mpmath.workdps(60):
        for data in itertools.product((0, 1), repeat=parameters.users):
            view = [mpmath.mpf(0)] * (parameters.users * parameters.bits + 1)
            for counts in itertools.product(range(parameters.bits + 1), repeat=parameters.users):
                view[sum(counts)] += mpmath.fprod(
                    distributions[bit][c] for bit, c in zip(data, counts, strict=True)
                )
            views[data] = view
        return max(
            abs(mpmath.log(p / q))
            for data, other in itertools.permutations(views, 2)
            if sum(a != b for a, b in zip(data, other, strict=True)) == 1
            for p, q in zip(views[data], views[other], strict=True)
        )


@pytest.mark.parametrize("parameters", TINY, ids=lambda p: f"{p.users}-users")
@pytest.mark.parametrize("method", ["integers", "tilted"])
def test_a_certificate_agrees_with_full_enumeration(
    parameters: PureShuffleParameters, method: Method
) -> None:
    truth = Fraction(str(enumerated_epsilon(parameters)))
    bound = (integer_ratio if method == "integers" else tilted_ratio)(
        parameters, range(parameters.users)
    )
    assert truth - Fraction(1, 10**14) <= bound <= truth + Fraction(1, 10**10)
    assert certify(parameters, method=method).epsilon >= bound


@pytest.mark.extended
@pytest.mark.parametrize(
    ("users", "epsilon"), [(2, 0.906), (4, 0.845), (8, 0.821), (16, 0.810), (32, 0.805)]
)
def test_the_design_measurements_are_reproduced(users: int, epsilon: float) -> None:
    certificate = certify(PureShuffleParameters(users, 1, *DESIGN))
    assert certificate.kind == "every-k"
    assert float(certificate.epsilon) == pytest.approx(epsilon, abs=5e-4)


def test_the_design_measurement_of_64_users_is_reproduced() -> None:
    parameters = PureShuffleParameters(64, 1, Fraction(19, 20), 20, Fraction(1, 10**6))
    assert float(certify(parameters, method="tilted").epsilon) == pytest.approx(0.952, abs=5e-4)


@pytest.mark.parametrize(
    "parameters", [*TINY, PureShuffleParameters(64, 1, *DESIGN)], ids=lambda p: f"{p.users}-users"
)
def test_the_interval_bounds_contain_the_distribution_of_the_device(
    parameters: PureShuffleParameters,
) -> None:
    for ball, value in zip(
        count_ratios.count_distribution(parameters), device_distribution(parameters, 0), strict=True
    ):
        with flint.ctx.workprec(400):
            digits = mpmath.nstr(value, 50)
            assert abs(ball - flint.arb(digits)) < flint.arb("1e-45")
            assert ball.rel_accuracy_bits() > 150


def test_the_distribution_of_a_one_mirrors_that_of_a_zero() -> None:
    for zero, one in zip(
        device_distribution(TINY[1], 0), reversed(device_distribution(TINY[1], 1)), strict=True
    ):
        assert mpmath.almosteq(zero, one, rel_eps=mpmath.mpf(10) ** -50)


def test_k_and_its_mirror_image_have_the_same_ratios_at_mirrored_counts() -> None:
    distribution = count_ratios.count_distribution(PureShuffleParameters(9, 1, *DESIGN))
    zero, one = flint.arb_poly(distribution), flint.arb_poly(distribution[::-1])
    for k in range(9):
        others, mirrored = zero ** (8 - k) * one**k, zero**k * one ** (8 - k)
        here = [
            p / q for p, q in zip((others * zero).coeffs(), (others * one).coeffs(), strict=True)
        ]
        there = [
            q / p
            for p, q in zip((mirrored * zero).coeffs(), (mirrored * one).coeffs(), strict=True)
        ]
        assert all(a.overlaps(b) for a, b in zip(here, reversed(there), strict=True))


@pytest.mark.parametrize("k", [0, 3, 8])
def test_the_ratio_is_symmetric_in_the_number_of_ones(k: int) -> None:
    parameters = PureShuffleParameters(9, 1, *DESIGN)
    assert integer_ratio(parameters, [k]) == integer_ratio(parameters, [8 - k])


@pytest.mark.parametrize("users", [3, 8, 24])
def test_integers_and_tilted_polynomials_agree_for_each_k(users: int) -> None:
    parameters = PureShuffleParameters(users, 1, *DESIGN)
    for k in range(users):
        exact, tilted = integer_ratio(parameters, [k]), tilted_ratio(parameters, [k])
        assert abs(exact - tilted) < Fraction(1, 10**10)


@pytest.mark.extended
@pytest.mark.parametrize("k", [0, 17, 63])
def test_tilted_polynomials_agree_with_balls_at_128_users(k: int) -> None:
    parameters = PureShuffleParameters(128, 1, Fraction(19, 20), 20, Fraction(1, 2**27))
    distribution = count_ratios.count_distribution(parameters)
    with flint.ctx.workprec(256):
        zero, one = flint.arb_poly(distribution), flint.arb_poly(distribution[::-1])
        others = zero ** (127 - k) * one**k
        pairs = zip((others * zero).coeffs(), (others * one).coeffs(), strict=True)
        worst = max(float(abs((p / q).log()).upper()) for p, q in pairs)
    assert float(tilted_ratio(parameters, [k])) == pytest.approx(worst, abs=1e-10)


@pytest.mark.parametrize("tilt", [-0.9, 0.0, 0.7])
def test_counted_roundings_cover_the_true_error_of_a_tilted_product(tilt: float) -> None:
    distribution = count_ratios.count_distribution(PureShuffleParameters(128, 1, *DESIGN))
    zero, one, _ = count_ratios._tilted_pair(distribution, tilt)
    _, with_zero, _ = next(iter(count_ratios._views(zero, one, 128, [40])))
    with flint.ctx.workprec(256):
        terms = [p * (flint.arb(tilt) * c).exp() for c, p in enumerate(distribution)]
        back = [p * (flint.arb(tilt) * c).exp() for c, p in enumerate(distribution[::-1])]
        true_zero, true_one = (
            flint.arb_poly([t / sum(ts, flint.arb(0)) for t in ts]) for ts in (terms, back)
        )
        truth = (true_zero**88 * true_one**40).coeffs()
        radius = with_zero.trusted_roundings() * 2.0**-53
        for count, value in enumerate(with_zero.values, start=with_zero.start):
            if value >= count_ratios.SMALLEST_TRUSTED:
                assert abs(flint.arb(float(value)) / truth[count] - 1) < radius
    assert np.count_nonzero(with_zero.values >= count_ratios.SMALLEST_TRUSTED) > 1000


def test_a_count_outside_every_tilt_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_ratios, "_tilts", lambda _distribution, _users: [0.0])
    with pytest.raises(TacitError, match="beyond every tilt"):
        tilted_ratio(PureShuffleParameters(256, 1, *DESIGN), [0])


def test_more_bits_than_double_precision_can_hold_are_rejected() -> None:
    with pytest.raises(TacitError, match="Cut the batch into groups"):
        certify(PureShuffleParameters(10**6, 1, *DESIGN))


def test_the_two_kinds_of_certificates_state_different_claims() -> None:
    parameters = PureShuffleParameters(6, 1, *DESIGN)
    every, extreme = certify(parameters), certify(parameters, kind="extreme-k")
    assert every.ks_checked == (0, 1, 2, 3, 4, 5)
    assert extreme.ks_checked == (0, 3, 5)
    assert extreme.epsilon <= every.epsilon
    assert "whatever the other 5 users hold" in every.statement
    assert "not yet a proof" in extreme.statement
    assert all(
        "exactly 6 users" in c.statement and "fewer messages" in c.statement
        for c in (every, extreme)
    )


def test_beyond_1024_users_only_extreme_ks_are_claimed() -> None:
    certificate = certify(PureShuffleParameters(1026, 1, Fraction(2), 8, Fraction(1, 2**20)))
    assert certificate.kind == "extreme-k"
    assert certificate.ks_checked == (0, 513, 1025)


def test_other_precisions_are_rejected() -> None:
    with pytest.raises(TacitError, match="precision is 2"):
        certify(PureShuffleParameters(4, 2, *DESIGN))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("users", 0),
        ("precision", 0),
        ("noise_epsilon", 0),
        ("tau", 0),
        ("mixture", 0),
        ("mixture", 1),
    ],
)
def test_impossible_parameters_are_rejected(field: str, value: int) -> None:
    with pytest.raises(TacitError, match=field):
        replace(TINY[0], **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("users", "epsilon"), [(1, 1.0), (2, 0.5), (6, 1.0), (20, 2.0)])
def test_search_finds_certified_parameters(users: int, epsilon: float) -> None:
    certificate = search(users, epsilon)
    parameters = certificate.parameters
    assert certificate.kind == "every-k"
    assert certificate.epsilon <= epsilon
    assert parameters.users * parameters.mixture <= Fraction(1, 10**6)
    assert parameters.noise_epsilon >= 0.83 * epsilon
    assert (
        certify(
            replace(parameters, noise_epsilon=parameters.noise_epsilon + Fraction(1, 50))
        ).epsilon
        > epsilon
    )


def test_a_search_without_a_result_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "tilted_ratio", lambda _parameters, _ks: Fraction(3))
    with pytest.raises(TacitError, match="larger batch or a larger epsilon"):
        search(2, 1)


def test_noise_too_small_to_enclose_is_rejected() -> None:
    with pytest.raises(TacitError, match="noise_epsilon is 1e-06"):
        certify(replace(TINY[1], noise_epsilon=Fraction(1, 10**6)))


def test_search_reaches_small_epsilons() -> None:
    certificate = search(2, 0.2, spoil=0.01)
    assert certificate.method == "tilted"
    assert certificate.epsilon <= Fraction(0.2)


def row_name(row: TableRow) -> str:
    return f"{row.users}-at-{float(row.target):g}"


SMALL = [row for row in load_table() if row.users <= 32]
LARGE = [row for row in load_table() if row.users > 32]


def assert_holds(row: TableRow) -> None:
    stored = row.certificate
    found = certify(stored.parameters, stored.kind, stored.method)
    assert found.epsilon <= stored.epsilon <= row.target
    assert stored.epsilon - found.epsilon <= Fraction(1, 10**6)


@pytest.mark.extended
@pytest.mark.parametrize("row", SMALL, ids=row_name)
def test_small_rows_of_the_table_hold(row: TableRow) -> None:
    assert_holds(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", LARGE, ids=row_name)
def test_large_rows_of_the_table_hold(row: TableRow) -> None:
    assert_holds(row)


@pytest.mark.parametrize("row", [row for row in load_table() if row.users <= 256], ids=row_name)
def test_half_the_noise_fails(row: TableRow) -> None:
    parameters = row.certificate.parameters
    halved = replace(parameters, noise_epsilon=2 * parameters.noise_epsilon)
    assert tilted_ratio(halved, [0]) > Fraction(3, 2) * row.target


def test_the_table_is_complete_and_proves_every_k() -> None:
    sizes = [2**power for power in range(11)]
    assert [(row.target, row.users) for row in load_table()] == [
        *((target, users) for target in (Fraction(1, 10), Fraction(1, 4)) for users in sizes[:7]),
        *((target, users) for target in (Fraction(1, 2), 1, 2) for users in sizes),
    ]
    for row in load_table():
        certificate = row.certificate
        assert certificate.kind == "every-k"
        assert certificate.ks_checked == tuple(range(row.users))
        spoilt = certificate.parameters.users * certificate.parameters.mixture
        assert spoilt <= Fraction(1, 10**6)
        assert certificate.parameters.bits < 100 or row.target < Fraction(1, 2)
        assert TableRow.from_dict(json.loads(json.dumps(as_row(row)))) == row


def test_lookup_takes_the_largest_target_that_is_allowed() -> None:
    assert lookup(64, 0.1).target == Fraction(1, 10)
    assert lookup(64, 0.3).target == Fraction(1, 4)
    assert lookup(64, 0.5).target == Fraction(1, 2)
    assert lookup(64, 0.99).target == Fraction(1, 2)
    assert lookup(64, 7).target == 2
    assert lookup(64, Fraction(1)).users == 64


def test_lookup_names_the_certified_sizes() -> None:
    with pytest.raises(
        TacitError, match=r"users is 48; certified batches are of 1, 2, 4, \.\.\., 1024"
    ):
        lookup(48, 1)


@pytest.mark.parametrize("users", [2, 3, 5, 1023, 1024, 1025, 2500, 10**6 + 7])
def test_groups_contain_all_participants_and_one_more_than_certified(users: int) -> None:
    cut = groups(users, 1)
    assert sum(group.participants for group in cut) == users
    assert all(group.row.certificate.epsilon <= 1 for group in cut)
    assert all(users >= group.size >= group.row.users + 1 for group in cut)
    assert all(group.count >= 1 for group in cut)
    assert len({group.row.users for group in cut}) == 1


@pytest.mark.parametrize("ask", [lookup, groups])
def test_an_epsilon_below_the_table_is_rejected(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(TacitError, match=r"epsilon is 0\.05: must be at least 0\.1, the"):
        ask(64, 0.05)
    with pytest.raises(TacitError, match=r"epsilon is 9999999/100000000: must be at least 0\.1,"):
        ask(64, Fraction(9999999, 10**8))
    with pytest.raises(TacitError, match="greater than 0"):
        ask(64, 0)
    with pytest.raises(TacitError, match="users is 0"):
        ask(0, 1)


def test_the_table_needs_no_flint_and_a_computation_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    load_table.cache_clear()
    assert lookup(2, 1).users == 2
    with pytest.raises(TacitError, match=r"pip install 'tacit\[certificates\]'"):
        certify(TINY[0])
    assert certificates.main(["--check"]) == 2


def test_the_command_proves_rows_and_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert certificates.main(["--check", "--largest", "4", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert len(results) == 15
    assert all(result["holds"] for result in results)


def test_the_command_prints_a_table_and_fails_on_an_overstated_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = lookup(2, 1)
    certificate: Certificate = replace(
        honest.certificate, epsilon=honest.certificate.epsilon - Fraction(1, 1000)
    )
    monkeypatch.setattr(
        certificates, "load_table", lambda: (honest, replace(honest, certificate=certificate))
    )
    assert certificates.main(["--check"]) == 1
    printed = capsys.readouterr().out
    assert "yes" in printed
    assert "NO" in printed
