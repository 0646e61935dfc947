"""The catalogue of mutants: functions that a guarantee depends on, mutations, and tests that must
detect them.

Operators break a function in every place where they apply; `only` keeps those whose label contains
one of some texts. Functions are found by name and expressions by their syntax tree, so that only a
change of what is meant asks for a change here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.operators import (
    Rewrite,
    checks,
    counts,
    limits,
    noise,
    sides,
    signs,
    swap,
)


@dataclass(frozen=True)
class Target:
    """A function of the package, how to break it, and the tests that should notice."""

    path: str
    function: str
    how: tuple[Rewrite, ...]
    tests: tuple[str, ...]
    only: tuple[str, ...] = ()

    def takes(self, label: str) -> bool:
        """Whether a mutant of this label is wanted."""
        return not self.only or any(text in label for text in self.only)


DEVICES = (
    "tests/protocols/test_device_noise.py",
    "tests/protocols/test_device_source.py",
)
NOISE_OF_SUMS = (*DEVICES, "tests/protocols/test_every_protocol.py")
SUMS = ("tests/protocols/test_sums.py",)
ERRORS = ("tests/protocols/test_errors.py",)
CHECKING = ("tests/protocols/test_checking.py",)
COINS = ("tests/noise/test_coins.py",)
DRAWS = ("tests/noise/test_device_draws.py", *COINS, "tests/noise/test_samplers.py")
SHARES = (*COINS, "tests/noise/test_shares.py")
LOSS = ("tests/privacy/test_loss.py",)
COMPOSITION = ("tests/privacy/test_composition.py",)
GUARANTEES = ("tests/privacy/test_guarantees.py",)
ASSUMED = ("tests/privacy/test_assumptions.py",)
EVERY = ("tests/protocols/test_protocol_assumptions.py",)
DISTRIBUTED_NOISE = (
    "tests/privacy/test_close_shares.py",
    "tests/privacy/test_dropout.py",
    "tests/privacy/test_stated_guarantees.py",
)
RETURNING = ("tests/privacy/test_returning.py",)
SHUFFLING = ("tests/privacy/test_shuffling.py",)
VECTORS = ("tests/protocols/test_vectors.py", "tests/privacy/test_vectors.py")
CALIBRATION = ("tests/privacy/test_calibration.py",)
PURE = ("tests/protocols/test_pure.py",)
SPLITTING = ("tests/protocols/test_splitting.py",)
PREFIX = ("tests/protocols/test_continual.py",)
BALLS = ("tests/protocols/test_balls.py",)
BUDGETS = ("tests/algorithms/test_budgets.py",)
SILOS = ("tests/algorithms/test_silo_guarantees.py",)
MECHANISM = ("tests/protocols/test_mechanism.py",)
ROUNDS = ("tests/rounds",)
SHAMIR = ("tests/aggregation/test_shamir.py",)
MASKING_ATTACKS = ("tests/attacks/test_malicious_server_masking.py",)
SHARE_COMMITMENTS = ("tests/aggregation/test_share_commitments.py",)
MASKING = (
    "tests/aggregation/test_masking.py",
    "tests/aggregation/test_masking_trust.py",
    "tests/aggregation/test_vectors.py",
)
VDAF = ("tests/vdaf",)
FEATURES = ("tests/contextual/test_features.py",)
STATISTICS = ("tests/protocols/test_statistic_sums.py",)
RECORDED = ("tests/silos/test_recorded.py",)
HOSTILE = ("tests/silos/test_hostile_messages.py",)
ROUNDED_DOWN = (
    "tests/silos/test_federation.py::test_rounding_never_lifts_a_guarantee_above_the_terms",
)
RESTORED = (
    "tests/silos/test_crashes.py::test_a_restored_database_draws_no_noise_twice",
    "tests/silos/test_crashes.py::test_a_restored_database_uses_no_record_in_two_rows",
    "tests/silos/test_crashes.py::test_a_restored_database_hides_no_charge",
)
SILO_NOISE = (
    "tests/silos/test_federation.py::test_released_noise_has_the_declared_distribution",
    "tests/silos/test_released_noise.py::test_silos_draw_the_noise_of_every_evaluation",
)
FEDERATION = (
    "tests/silos/test_federation.py::test_three_silos_tolerate_no_loss_and_four_tolerate_one",
)
VERIFIED = ("tests/aggregation/test_verified.py",)
TABLE_PROOFS = ("tests/service/test_contextual_proofs.py",)
SERVER_NOISE = ("tests/service/test_server_noise.py",)
DEVICE_SHARES = ("tests/service/test_device_shares.py",)
DEVICE = ("tests/service/test_device_hostile.py",)
DESK = (
    "tests/service/test_parties.py::test_invitations_are_verified_even_without_a_free_slot",
    "tests/service/test_parties.py::test_successor_terms_add_and_remove_options_and_open_rounds_finish",
)
TWO_SERVERS = ("tests/aggregation/test_two_servers.py", "tests/aggregation/test_vectors.py")
SHUFFLER = ("tests/aggregation/test_shuffler.py",)
COORDINATOR = ("tests/attacks/test_malicious_coordinator_masking.py",)
AGREEMENT = ("tests/aggregation/test_agreement.py",)
LIVE_MOMENTS = ("tests/service/test_moments.py",)
LIVE_CORNERS = ("tests/service/test_corners_live.py",)
MASKED_CONTEXTS = ("tests/service/test_contextual_masking.py",)
TERMS = ("tests/terms/test_terms.py",)
CHOSEN = ("tests/terms/test_context.py",)
SHUFFLED_TABLES = (
    "tests/service/test_contextual_shuffler.py::test_terms_state_noise_bits_and_devices_verify_them",
    "tests/service/test_contextual_shuffler.py::test_terms_with_other_noise_or_an_evaluation_slice_are_rejected",
)
DOCUMENT = ("tests/terms/test_document.py", *TERMS)
STATED_NOISE = ("tests/terms/test_noise.py",)
LEDGER = ("tests/service/test_ledger.py",)
PARTIES = ("tests/service/test_parties.py",)
SCHEDULER = ("tests/service/test_scheduler.py",)
KEPT = ("tests/terms/test_records.py", "tests/terms/test_keyfiles.py")
FEDERATIONS = ("tests/silos/test_federation.py",)
LIVE_CONTEXTS = ("tests/service/test_contextual.py",)
LIVE_LOCAL = ("tests/service/test_local.py", *DEVICE_SHARES)
LIVE_SHUFFLER = ("tests/service/test_shuffler.py",)
SLICES = ("tests/protocols/test_slice_guarantees.py",)
STATISTIC_GUARANTEES = ("tests/protocols/test_statistic_guarantees.py",)
WORDS = ("tests/terms/test_words.py",)
LEARNERS = ("tests/bandits/test_every_learner.py",)
ACCEPTANCE = ("tests/service/test_acceptance.py",)
JOINED = ("tests/service/test_local.py::test_a_device_joins_only_under_an_accepted_trust_model",)
ANY_DEVICE = ("tests/service/test_device.py",)
INVITED = ("tests/service/test_issuers.py", "tests/service/test_device.py")
ISSUERS = ("tests/service/test_issuers.py",)
LOCAL_TABLES = ("tests/service/test_contextual_local.py",)
CERTIFIED = (
    "tests/service/test_device_shares.py::test_certified_shares_serve_one_metric_in_one_round",
    "tests/service/test_algorithms_deployed.py",
)
WEAKEST = ("tests/verify/test_live.py",)
MASKED_SLICE = (
    "tests/service/test_contextual_masking.py::test_the_evaluation_slice_beside_moments_has_laplace_shares",
)
SERVED_SLICE = (
    "tests/service/test_moments.py"
    "::test_the_evaluation_slice_beside_moments_has_laplace_noise_of_both_servers",
)
CORNERS = ("tests/contextual/test_corners.py",)
LIVE_FITS = ("tests/service/test_fitted_live.py",)
FIT_REPORTS = tuple(
    f"tests/service/test_fitted_live.py::{name}"
    for name in (
        "test_a_device_rejects_altered_policies_and_less_noise",
        "test_no_policy_moves_a_report_outside_the_ball",
        "test_no_policy_suppresses_reports_for_some_answers",
        "test_a_report_covers_every_play",
        "test_rounding_is_unbiased",
        "test_delta_matches_enumeration_over_reports_and_outputs",
    )
)
FIT_TERMS = tuple(
    f"tests/service/test_fitted_live.py::{name}"
    for name in (
        "test_a_definition_with_plays_round_trips_into_terms",
        "test_terms_state_the_guarantee_of_the_experiment",
        "test_terms_reject_noise_below_the_guarantee",
        "test_terms_of_fits_are_bounded_and_exclude_other_parts",
        "test_delta_charges_narrow_shares_for_every_number_of_a_fit",
        "test_a_device_rejects_altered_policies_and_less_noise",
        "test_missing_answers_count_as_zero",
    )
)
SERVED = ("tests/service/test_trust_models.py",)
BITS_OF_TABLES = ("tests/service/test_contextual_shuffler.py",)
LINEAR = ("tests/algorithms/test_lzj22.py",)
CONTEXTUAL = ("tests/contextual/test_experiments.py",)
EXPERIMENT = (
    "tests/test_experiment.py",
    "tests/algorithms/test_zc24.py::test_a_guarantee_of_prefix_sums_needs_a_learner_of_silos",
    "tests/bandits/test_guardrail.py::test_a_clearly_worse_option_is_paused_with_its_reason",
    "tests/protocols/test_mechanism.py::test_a_restored_guarantee_protects_what_participants_report",
)

TARGETS: tuple[Target, ...] = (
    # coins and draws of noise
    Target("sampling/coins.py", "uniform_below", (limits, counts), COINS),
    Target("sampling/coins.py", "random_bits", (limits,), COINS),
    Target("sampling/coins.py", "Chance.flip", (limits,), COINS),
    Target("sampling/coins.py", "flip_exp", (limits, counts), COINS),
    Target(
        "noise/distribution.py", "NoiseDistribution.draw", (swap("self._draw_one()", "0"),), DRAWS
    ),
    Target("sampling/draws.py", "draw_laplace", (counts, swap("random_bits(1)", "0")), DRAWS),
    Target("noise/laplace.py", "Polya._draw_one", (noise,), DRAWS),
    Target("noise/laplace.py", "PolyaDifference._draw_one", (noise, signs), DRAWS),
    Target("sampling/draws.py", "draw_skellam", (signs,), DRAWS),
    Target("noise/binomial.py", "Binomial._draw_one", (noise,), DRAWS),
    Target("sampling/draws.py", "draw_gaussian", (counts,), DRAWS),
    Target(
        "noise/wrapping.py",
        "wrap_probability",
        (sides, swap("(m - top - 1) // 2", "(m - top) // 2")),
        ("tests/noise/test_sums.py",),
        ("max(", "//"),
    ),
    # losses, composition, crowds
    Target("privacy/loss.py", "PrivacyLoss.delta", (limits,), LOSS),
    Target("rounding.py", "delta_up", (swap("math.ulp(0.0)", "0.0"),), LOSS),
    Target("privacy/loss.py", "Direction.delta", (signs,), LOSS),
    Target(
        "privacy/loss.py", "Direction.epsilon", (limits,), LOSS, ("<= delta", "infinite", "upper >")
    ),
    Target(
        "privacy/loss.py",
        "privacy_loss",
        (swap("(1, -1)", "(1,)"), swap("distribution.symmetric", "True"), checks),
        LOSS,
    ),
    Target("privacy/loss.py", "_shifts", (counts, signs), LOSS),
    Target(
        "privacy/loss.py",
        "_directions",
        (checks, swap("infinite", "0.0")),
        LOSS,
        ("LARGEST_INTEGER", "infinite"),
    ),
    Target("privacy/composition.py", "ComposedLoss.__post_init__", (checks,), COMPOSITION),
    Target(
        "privacy/composition.py",
        "ComposedLoss.delta",
        (swap("self._resolution", "0.0"),),
        COMPOSITION,
    ),
    Target(
        "privacy/composition.py",
        "ComposedLoss.epsilon",
        (swap("level - self._resolution", "level"),),
        COMPOSITION,
    ),
    Target(
        "privacy/composition.py",
        "_on_grid",
        (swap("direction.infinite + float(masses[:top].sum())", "direction.infinite"),),
        COMPOSITION,
    ),
    Target(
        "privacy/composition.py",
        "advanced_composition",
        (signs,),
        COMPOSITION,
        ("+ (count", "+ count", "1 / extra"),
    ),
    Target(
        "privacy/composition.py",
        "compose_participations",
        (
            swap("((loss, count),)", "((loss, count - 1),)"),
            swap("release.epsilon(level / (2 * count))", "release.epsilon(level / 2)"),
            swap("level / 2", "level"),
        ),
        COMPOSITION,
    ),
    Target("privacy/composition.py", "Odometer.spend", (checks,), COMPOSITION),
    Target("privacy/composition.py", "Odometer._check_budget", (checks,), COMPOSITION),
    Target("privacy/composition.py", "Odometer._check_comparable", (checks,), COMPOSITION),
    Target("privacy/threat_model.py", "ThreatModel.honest", (sides, signs), DISTRIBUTED_NOISE),
    Target(
        "privacy/accounting.py",
        "checked_target",
        (
            checks,
            swap(
                "achieved_guarantee(distribution, sensitivity, target, log_ratio, order)",
                "achieved_guarantee(distribution, sensitivity, target, 0, order)",
            ),
            swap("isinstance(target, PureDP) and not log_ratio", "isinstance(target, PureDP)"),
        ),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "privacy/accounting.py",
        "epsilon_of",
        (signs,),
        DISTRIBUTED_NOISE,
        ("log_ratio", "widened", "order"),
    ),
    Target(
        "privacy/accounting.py",
        "gaussian_mu",
        (
            swap("direction.infinite * math.exp(log_ratio) > dropped", "False"),
            swap("np.cumsum(masses) + direction.infinite", "np.cumsum(masses)"),
            swap("math.exp(log_ratio)", "1.0"),
            swap("math.exp(-log_ratio)", "1.0"),
            swap("-2 * log_ratio", "0.0"),
            swap("true - dropped", "true - 2 * dropped"),
            swap("masses * np.exp(-losses)", "masses"),
            swap("found.max(initial=ROUNDING)", "found.min(initial=1.0)"),
        ),
        RETURNING,
    ),
    Target(
        "privacy/accounting.py",
        "_as_gaussian",
        (
            swap("loss.directions", "loss.directions[:1]"),
            swap("math.sqrt(target.participations)", "1.0"),
            swap("rest", "2 * rest"),
            swap("math.isfinite(mu)", "True"),
        ),
        RETURNING,
    ),
    Target(
        "privacy/accounting.py",
        "bell_shaped",
        (swap("math.isinf(distribution.mgf_radius)", "True"), swap("SMOOTH", "0.5")),
        RETURNING,
    ),
    Target(
        "privacy/accounting.py",
        "checked_target",
        (
            swap("accounting(distribution, target, order)", "()"),
            swap("state_drawn_arithmetic(made, distribution)", "made"),
        ),
        RETURNING + EVERY,
    ),
    Target(
        "privacy/accounting.py",
        "state_drawn_arithmetic",
        (
            swap("isinstance(one, (NoiseDistribution, Chance))", "True"),
            swap("not ours", "False"),
        ),
        ASSUMED,
    ),
    Target(
        "privacy/threat_model.py", "ThreatModel.dishonest", (swap("self.curious", "0"),), ASSUMED
    ),
    Target(
        "privacy/threat_model.py",
        "ThreatModel.dishonest",
        (swap("_decimal(self.corrupt)", "_decimal(0)"),),
        ASSUMED,
    ),
    Target(
        "privacy/threat_model.py",
        "ThreatModel.assumptions",
        (swap("1 - _decimal(self.dropout)", "_decimal(1)"),),
        ASSUMED,
    ),
    Target(
        "assumptions.py",
        "uncovered",
        (swap("one.needed", "True"), swap("_implied(has, one)", "True")),
        ASSUMED,
    ),
    Target(
        "assumptions.py",
        "DishonestAtMost.limit",
        (swap("max(self.count, int(self.fraction * members))", "self.count"), signs),
        ASSUMED,
    ),
    Target(
        "assumptions.py",
        "DishonestAtMost.implies",
        (
            limits,
            swap("self.scope is other.scope", "True"),
            swap("self.count <= other.count", "True"),
            swap("self.fraction <= other.fraction", "True"),
        ),
        ASSUMED,
    ),
    Target(
        "assumptions.py",
        "ReleasedOnlyAbove.implies",
        (limits, swap("self.fraction >= other.fraction", "True")),
        ASSUMED,
    ),
    Target(
        "assumptions.py",
        "HonestServers.implies",
        (limits, swap("self.of == other.of", "True"), swap("self.count >= other.count", "True")),
        ASSUMED,
    ),
    Target(
        "assumptions.py",
        "VisitsAtMost.implies",
        (
            limits,
            swap("self.batches <= other.batches", "True"),
            swap("self.visits <= other.visits", "True"),
        ),
        ASSUMED,
    ),
    Target("assumptions.py", "MetricsPerParticipation.implies", (limits,), ASSUMED),
    Target("assumptions.py", "together", (swap("_implied(other, one)", "False"),), ASSUMED),
    Target(
        "assumptions.py",
        "_implied",
        (
            swap("_is_own(stated)", "True"),
            swap("_is_own(needed)", "True"),
            swap("type(stated) is type(needed)", "True"),
            swap("vars(stated) == vars(needed)", "True"),
        ),
        ASSUMED,
    ),
    Target(
        "privacy/joint_guarantees.py",
        "weakest",
        (
            checks,
            swap("max((item.epsilon for item in numbers))", "min(i.epsilon for i in numbers)"),
            swap("max(deltas)", "min(deltas)"),
            swap(
                "min((item.participations for item in items))",
                "max(i.participations for i in items)",
            ),
        ),
        ASSUMED,
    ),
    Target(
        "privacy/guarantees.py",
        "Arithmetic.covers",
        (limits, swap("order.index(self) >= order.index(other)", "True")),
        ASSUMED,
    ),
    Target(
        "privacy/guarantees.py",
        "Guarantee.assuming",
        (swap("self.arithmetic", "Arithmetic.EXACT"),),
        ASSUMED,
    ),
    Target(
        "privacy/accounting.py",
        "split_delta",
        (swap("DROPPED * target.delta / target.participations", "DROPPED * target.delta"),),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "privacy/accounting.py",
        "trimmed_renyi",
        (
            swap("direction.infinite > dropped", "False"),
            swap("np.cumsum(direction.masses) + direction.infinite", "np.cumsum(direction.masses)"),
            swap("loss.directions", "loss.directions[:1]"),
        ),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "protocols/vector_noise.py",
        "per_participation",
        (
            swap("((loss, times),)", "((loss, times - 1),)"),
            swap("Fraction(target.epsilon) / times", "Fraction(target.epsilon)"),
            swap("times == 1", "times <= 2"),
        ),
        DISTRIBUTED_NOISE,
    ),
    Target("privacy/joint_guarantees.py", "compose", (checks,), GUARANTEES),
    Target(
        "privacy/joint_guarantees.py",
        "_joined_assumptions",
        (
            swap("of_each((item.assumptions for item in items))", "items[0].assumptions"),
            swap("min((item.metrics for item in items))", "max(i.metrics for i in items)"),
        ),
        ASSUMED,
    ),
    Target("privacy/renyi.py", "renyi_epsilon", (signs,), GUARANTEES),
    Target("privacy/guarantees.py", "PureDP.delta_at", (limits,), GUARANTEES),
    Target(
        "rounding.py",
        "up",
        (swap("ROUND_CEILING", "'ROUND_HALF_EVEN'"), swap("Decimal('1e-12')", "Decimal('1e-6')")),
        GUARANTEES,
    ),
    Target(
        "privacy/renyi.py",
        "renyi_log_delta",
        (swap("math.log(order - 1)", "math.log(order)"),),
        GUARANTEES,
    ),
    Target("rounding.py", "no_less", (swap("near >= value", "True"),), GUARANTEES),
    Target(
        "privacy/guarantees.py",
        "Guarantee.implies",
        (
            swap("self.participations < other.participations", "False"),
            swap("isinstance(self, PureDP)", "self.epsilon_at(1e-12) < math.inf"),
            swap("all", "any"),
            swap("uncovered(self.assumptions, other.assumptions)", "()"),
            swap("self.arithmetic.covers(other.arithmetic)", "True"),
            swap("self.view is not other.view", "False"),
            swap("self.neighbours is not other.neighbours", "False"),
        ),
        GUARANTEES + ASSUMED,
    ),
    Target(
        "privacy/calibration.py",
        "_Problem._rho",
        (swap("self.times", "1"), swap("self.dimension", "1")),
        CALIBRATION,
    ),
    Target("privacy/calibration.py", "_Problem.apart", (swap("self.dimension", "1"),), CALIBRATION),
    Target(
        "privacy/calibration.py",
        "_Problem.account_of_shares",
        (swap("2 * psi", "psi"),),
        CALIBRATION,
    ),
    Target("privacy/shuffling.py", "Clones.delta", (swap("lost", "0.0"),), SHUFFLING),
    Target(
        "simulation/study.py",
        "weakest_of_runs",
        (swap("weakest([stated, *others])", "stated"), swap("one.implies(stated)", "True")),
        (
            "tests/contextual/test_experiments.py::"
            "test_the_guarantee_of_a_study_covers_the_statistic_of_every_instance",
            "tests/contextual/test_experiments.py::"
            "test_a_run_with_the_same_assumptions_and_a_larger_epsilon_weakens_the_guarantee",
        ),
    ),
    Target(
        "privacy/silos.py",
        "SilosDP.clauses",
        (swap("map(pick, columns)", "pick(self.budgets)"),),
        BUDGETS,
    ),
    Target(
        "privacy/shuffling.py",
        "_excess",
        (
            swap("_mills(counts, least)", "0.0"),
            swap("least - 1", "least"),
            swap("math.tanh(epsilon / 2)", "epsilon / 2"),
        ),
        SHUFFLING,
    ),
    Target(
        "privacy/shuffling.py",
        "_mills",
        (
            swap("2 * least - counts - 1", "2 * least - counts"),
            swap("(counts + 1)[:, None]", "counts[:, None]"),
        ),
        SHUFFLING,
    ),
    Target(
        "assumptions.py",
        "AskedFor.text",
        (swap("exactly(self.epsilon)", "f'{self.epsilon:g}'"),),
        ("tests/privacy/test_assumptions.py",),
    ),
    Target("protocols/vector_noise.py", "numbers_only", (checks,), STATISTIC_GUARANTEES),
    Target(
        "protocols/prefix_sums.py",
        "PrefixSums.__post_init__",
        (swap("largest + ROOM * widest", "largest"),),
        ("tests/protocols/test_continual.py",),
    ),
    Target(
        "protocols/integer_vectors.py",
        "LevelProtocol.encode",
        (swap("self._highest", "self.precision"),),
        ("tests/protocols/test_vectors.py",),
    ),
    Target(
        "noise/table.py",
        "_log_concave",
        (swap("np.minimum.accumulate(slopes)", "np.append(slopes[0], slopes[:-1])"),),
        ("tests/noise/test_stated_losses.py",),
    ),
    Target("privacy/shuffling.py", "RandomizedResponse.delta", (limits,), SHUFFLING),
    Target("privacy/shuffling.py", "_responses", (signs,), SHUFFLING, ("users - 1", "1 - flip")),
    Target(
        "privacy/gaussian.py",
        "GaussianLoss.delta",
        (signs,),
        LOSS,
        ("mu / 2 - at / mu ->", "other - one ->"),
    ),
    Target("privacy/vectors.py", "linf_loss", (swap("dimension", "1"),), VECTORS),
    Target(
        "privacy/vectors.py",
        "_likely_outcomes",
        (swap("0.9 * delta", "delta"),),
        ("tests/privacy/test_vectors.py",),
    ),
    Target(
        "privacy/gaussian_distance.py",
        "NearlyGaussianLoss.delta",
        (swap("2 * psi", "psi"), swap("math.exp(psi)", "1.0"), swap("inner >= 0", "True")),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "privacy/gaussian_distance.py",
        "NearlyGaussianLoss.divergence",
        (swap("self.coordinates", "1"),),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "privacy/gaussian_distance.py",
        "NearlyGaussianLoss._concentrated",
        (swap("2 * psi", "0.0"), swap("math.exp(-psi)", "1.0")),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "noise/distribution.py",
        "NoiseDistribution.loses_at_most",
        (swap("times * self.pure_loss(shift)", "self.pure_loss(shift)"),),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "protocols/factories.py",
        "pure_shuffle",
        (swap("target.participations", "1"),),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "protocols/vector_noise.py",
        "joint_epsilon",
        (swap("2 * psi", "psi"), swap("math.exp(-psi)", "1.0")),
        VECTORS,
    ),
    Target(
        "protocols/vector_noise.py",
        "shared_gaussian_noise",
        (swap("inner + 2 * psi", "inner"), swap("coordinates * share.closeness(clients)", "0.0")),
        VECTORS,
    ),
    Target(
        "protocols/vector_noise.py",
        "binomial_noise",
        (swap("clients.bit_length() - 1", "clients.bit_length()"),),
        VECTORS,
    ),
    Target(
        "protocols/integer_vectors.py",
        "LevelProtocol.encode",
        (sides,),
        VECTORS,
        ("min(",),
    ),
    Target(
        "protocols/vectors.py",
        "VectorProtocol.check",
        (checks, swap("np.clip(array, -self.bound, self.bound)", "array")),
        VECTORS,
    ),
    Target("protocols/vectors.py", "_of_group", (swap("Scope.GROUP", "one.scope"),), EVERY),
    Target(
        "protocols/integer_vectors.py",
        "ShuffledVector.__init__",
        (swap("per_participation(target)", "target"),),
        VECTORS,
    ),
    Target(
        "protocols/shuffled_bits.py",
        "ShuffledBits.__init__",
        (swap("self.noise_bits * self.honest", "self.noise_bits * self.participants"),),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "protocols/pure_shuffle.py",
        "PureShuffle.__init__",
        (swap("times * certified(self.epsilon)", "certified(self.epsilon)"),),
        PURE,
    ),
    Target(
        "privacy/analysis.py",
        "privacy_of",
        (
            swap(
                "compose_participations(loss, times, delta)",
                "compose_participations(loss, times - 1, delta)",
            ),
        ),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "protocols/randomized_bits.py",
        "RandomizedBits.__init__",
        (swap("View.MESSAGE", "View.RELEASED_SUM"),),
        ("tests/protocols/test_every_protocol.py",),
    ),
    # stated error distributions, and the checks of what is declared
    Target(
        "protocols/randomized_bits.py",
        "RandomizedResponseError.log_mgf",
        (swap("(scaled, -scaled)", "(scaled, scaled)"),),
        ERRORS,
    ),
    Target(
        "protocols/vectors.py",
        "noise_proxy",
        (swap("found if finer <= found * (1 + 1e-09) else finer", "found"),),
        ERRORS,
    ),
    Target(
        "protocols/vectors.py",
        "LocalVectors.spread",
        (swap("max(proxy, float(self.device.variance) * self.unit ** 2)", "proxy"),),
        ERRORS,
    ),
    Target(
        "protocols/sums.py",
        "Local.released_distribution",
        (swap("reports", "1"),),
        ("tests/protocols/test_every_protocol.py",),
    ),
    Target(
        "protocols/checking.py",
        "recompute",
        (checks,),
        CHECKING,
    ),
    Target(
        "protocols/checking.py",
        "recompute",
        (swap("declared * RESOLVED", "1.0"), swap("declared * RESOLVED", "declared")),
        CHECKING,
    ),
    Target("protocols/checking.py", "_check_statement", (checks,), CHECKING),
    Target("protocols/checking.py", "sample", (checks,), CHECKING),
    Target(
        "protocols/checking.py",
        "_delta",
        (swap("((p, q), (q, p))", "((p, q),)"), swap("participations == 1", "True")),
        CHECKING,
    ),
    Target(
        "protocols/checking.py",
        "_honest_reports",
        (
            swap("min(limits, default=n - 1)", "0"),
            swap("math.ceil(max(kept) * n)", "n"),
            swap("one.scope is not Scope.SILOS", "True"),
            swap("is_own(type(protocol))", "True"),
        ),
        CHECKING,
    ),
    Target("protocols/checking.py", "_check_added", (checks,), CHECKING),
    Target(
        "protocols/checking.py",
        "_rounds",
        (swap("turn * reports", "0"),),
        CHECKING,
    ),
    Target(
        "protocols/checking.py",
        "_statements",
        (swap("guarantee.epsilon / times", "guarantee.epsilon"),),
        CHECKING,
    ),
    Target("protocols/checking.py", "_released_distribution", (checks,), CHECKING),
    Target(
        "protocols/checking.py",
        "_known",
        (swap("public.encode() + _state(protocol)", "public.encode()"),),
        CHECKING,
    ),
    Target(
        "noise/goodness_of_fit.py",
        "seeded",
        (swap("first != second", "True"),),
        CHECKING,
    ),
    Target(
        "noise/goodness_of_fit.py",
        "p_value",
        (swap("size * expected[seen]", "2 * size * expected[seen]"),),
        CHECKING,
    ),
    Target(
        "bandits/linear/phased.py",
        "SingleElimination._variances",
        (swap("reports", "plays"),),
        ("tests/bandits/test_phased.py",),
    ),
    Target(
        "bandits/linear/phased.py",
        "PhasedElimination._learn",
        (swap("np.asarray(error.participants)", "np.asarray(round_.participants)"),),
        ("tests/bandits/test_phased.py",),
    ),
    Target(
        "testing/learners.py",
        "_check_counts",
        (swap("4 * REPORTS", "REPORTS"),),
        ("tests/test_contracts.py",),
    ),
    Target(
        "testing/errors.py",
        "check_error",
        (
            swap("error.radius(p)", "1e+300"),
            swap("float(error.log_mgf(s))", "1e+300"),
            swap("error.variance - widest", "0.0"),
            swap("abs(mean)", "0.0"),
        ),
        ERRORS,
    ),
    # devices of protocols
    Target("protocols/sums.py", "ModularSum.randomize", (noise,), NOISE_OF_SUMS),
    Target("protocols/sums.py", "ServedSum.combine", (noise,), NOISE_OF_SUMS),
    Target(
        "protocols/sums.py",
        "SecureSum.__init__",
        (
            swap("self.share.closeness(self.honest)", "0"),
            swap("threat.honest(self.participants)", "threat.reports(self.participants)"),
            swap("share.sum_of_shares(self.honest)", "distribution"),
        ),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "protocols/sums.py",
        "Central.__init__",
        (
            swap(
                "checked_target(centred(distribution), self.precision, target, View.SERVER_OUTPUT)",
                "checked_target(centred(distribution), 1, target, View.SERVER_OUTPUT)",
            ),
        ),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "protocols/sums.py", "Local.__init__", (swap("self.precision", "1"),), DISTRIBUTED_NOISE
    ),
    Target("protocols/shuffled_bits.py", "ShuffledBits.randomize", (noise,), NOISE_OF_SUMS),
    Target(
        "sampling/draws.py",
        "draw_certified_ones",
        (
            swap("Chance(p.mixture).flip()", "False"),
            swap("Chance(p.mixture)", "Chance(p.mixture / 2)"),
            swap("uniform_below(p.bits + 1)", "uniform_below(p.bits)"),
            swap("draw_laplace_share(1 / p.noise_epsilon, p.users)", "0"),
            limits,
        ),
        (*NOISE_OF_SUMS, *PURE),
    ),
    Target(
        "sampling/certificates.py",
        "groups",
        (
            swap("row.users + curious <= everyone", "row.users <= everyone"),
            swap("row.users + curious + left", "row.users + left"),
        ),
        PURE,
    ),
    Target(
        "privacy/accounting.py",
        "epsilon_of",
        (
            swap(
                "times * (loss.epsilon(inner / times) + 2 * log_ratio)",
                "times * (loss.epsilon(inner) + 2 * log_ratio)",
            ),
        ),
        RETURNING,
    ),
    Target("protocols/mechanism.py", "_checked", (checks,), MECHANISM),
    Target(
        "protocols/mechanism.py",
        "_checked",
        (
            swap("is_own(mechanism.make)", "True"),
            swap("isinstance(mechanism.privacy, KnownPerRound)", "False"),
        ),
        MECHANISM,
    ),
    Target("protocols/mechanism.py", "check_round", (checks,), MECHANISM),
    Target(
        "protocols/mechanism.py",
        "Mechanism.printed",
        (
            swap(
                "min(remarks, key=lambda one: (one.draws, one.participants))",
                "max(remarks, key=lambda one: (one.draws, one.participants))",
            ),
        ),
        MECHANISM,
    ),
    Target(
        "experiment.py",
        "Experiment.open",
        (swap("is_own(type(self.mechanism))", "True"),),
        MECHANISM,
    ),
    Target(
        "privacy/accounting.py",
        "state_drawn_arithmetic",
        (swap("all((one.drawable for one in integral))", "True"),),
        ("tests/noise/test_stated_losses.py",),
    ),
    Target(
        "noise/table.py",
        "Table.__post_init__",
        (swap("self.concave and _log_concave(values)", "self.concave"),),
        ("tests/noise/test_stated_losses.py",),
    ),
    Target("testing/losses.py", "check_losses", (checks,), ("tests/noise/test_stated_losses.py",)),
    Target(
        "testing/losses.py",
        "_check_largest",
        (swap("(1, 3)", "(1,)"),),
        ("tests/noise/test_stated_losses.py",),
    ),
    Target(
        "privacy/joint_guarantees.py",
        "_of_equal_rounds",
        (swap("one.method is Method.LOSS", "False"), swap("one.method is Method.RENYI", "False")),
        ASSUMED,
    ),
    Target(
        "privacy/composition.py",
        "Odometer.spend",
        (swap("min(covered, self._metrics)", "covered"),),
        COMPOSITION,
    ),
    Target(
        "privacy/divergences.py",
        "_steepest",
        (swap("a < root < b", "False"),),
        ("tests/privacy/test_divergences.py",),
    ),
    Target(
        "privacy/divergences.py",
        "renyi_of",
        (swap("log_ratio * (2 * order - 1) / (order - 1)", "log_ratio"),),
        ("tests/privacy/test_divergences.py",),
    ),
    Target(
        "privacy/calibration.py",
        "_Problem.tightened",
        (swap("2 * psi", "psi"),),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "privacy/gaussian_distance.py",
        "GroupedGaussianLoss.delta",
        (swap("2 * psi", "psi"),),
        DISTRIBUTED_NOISE,
    ),
    Target(
        "protocols/vectors.py",
        "SeparateSums.__init__",
        (
            swap(
                "weakest([_of_group(part.guarantee) for part in self.parts])",
                "_of_group(self.parts[0].guarantee)",
            ),
        ),
        VECTORS,
    ),
    Target(
        "cli/accounting.py",
        "calibrate",
        (swap("(*ROUNDED_UP, *NOISE_NEEDED)", "ROUNDED_UP"),),
        ("tests/cli/test_accounting.py",),
    ),
    Target(
        "sampling/certificates.py",
        "one_group",
        (swap("row.users <= honest", "row.users <= users"),),
        PURE,
    ),
    Target(
        "terms/pinned.py",
        "Pinned._check_certified",
        (
            swap("offer.parts == proven.bits", "True"),
            swap("total == scale", "True"),
            swap("offer.modulus is None", "True"),
        ),
        ("tests/service/test_algorithms_deployed.py",),
    ),
    Target("protocols/pure_shuffle.py", "PureShuffle.combine", (checks,), PURE),
    Target(
        "sampling/coins.py",
        "additive_shares",
        (
            swap("uniform_below(modulus)", "uniform_below(2)"),
            swap("uniform_below(modulus)", "0"),
            counts,
        ),
        (*DEVICES, *BALLS, *DEVICE_SHARES),
    ),
    Target("trust.py", "split_shares", (counts, signs), SPLITTING),
    Target(
        "protocols/split_and_mix.py",
        "shuffled_guarantee",
        (swap("released.participations", "1"), swap("1 + factor", "1"), swap("slack", "0.0")),
        SPLITTING,
    ),
    Target("protocols/integer_vectors.py", "SecureVector.randomize", (noise,), NOISE_OF_SUMS),
    Target("protocols/integer_vectors.py", "ShuffledVector.randomize", (noise,), NOISE_OF_SUMS),
    Target("protocols/vectors.py", "LocalVectors.randomize", (noise,), NOISE_OF_SUMS),
    Target("protocols/vectors.py", "SeparateSums.by_option", (checks,), VECTORS),
    Target("protocols/prefix_delivery.py", "draw_vector", (noise,), DEVICES),
    Target("protocols/l2_sums.py", "CentralBall.combine", (noise,), DEVICES),
    Target("protocols/l2_sums.py", "BallSum.randomize", (noise,), DEVICES),
    Target(
        "protocols/l2_sums.py",
        "ShuffledBall.randomize",
        (swap("additive_shares(number, self.shares, self.modulus)", "[number]"),),
        BALLS,
    ),
    Target(
        "protocols/randomized_bits.py",
        "RandomizedBits.randomize",
        (swap("self.flip()", "False"),),
        NOISE_OF_SUMS,
    ),
    # counts and checks of protocols
    Target(
        "protocols/l2_sums.py",
        "movement",
        (swap("2 * math.sqrt(coordinates)", "math.sqrt(coordinates)"), swap("steps", "steps / 2")),
        BALLS,
    ),
    Target(
        "protocols/l2_sums.py",
        "ball_noise",
        (
            swap(
                "NearlyGaussianLoss(make(std), moved, coordinates, shares)",
                "NearlyGaussianLoss(make(std), moved, coordinates)",
            ),
            swap(
                "NearlyGaussianLoss(make(std), moved, coordinates, shares)",
                "NearlyGaussianLoss(make(std), moved, 1, shares)",
            ),
        ),
        BALLS,
    ),
    Target(
        "protocols/l2_sums.py",
        "BallSum.check",
        (checks, swap("np.linalg.norm(array)", "np.abs(array).max()")),
        BALLS,
    ),
    Target(
        "protocols/l2_sums.py",
        "BallSum.encode",
        (swap("random_level(Fraction(value) / unit)", "round(Fraction(value) / unit)"),),
        BALLS,
    ),
    Target(
        "protocols/l2_sums.py",
        "SecureBall._noise",
        (
            swap(
                "total.approximate_share(self.honest)", "total.approximate_share(self.participants)"
            ),
            swap("1 if divisible else self.honest", "1"),
        ),
        BALLS,
    ),
    Target(
        "protocols/l2_sums.py",
        "ShuffledBall._noise",
        (swap("each.delta - slack", "each.delta"),),
        BALLS,
    ),
    Target(
        "protocols/l2_sums.py",
        "ShuffledBall.security",
        (swap("SHUFFLE_SECURITY + math.ceil(math.log2(self.coordinates))", "SHUFFLE_SECURITY"),),
        BALLS,
    ),
    Target(
        "protocols/prefix_delivery.py",
        "Shuffled.slack",
        (swap("sums.size", "1"), swap("sums.shape.steps", "1")),
        PREFIX,
    ),
    Target(
        "protocols/prefix_sums.py",
        "PrefixSums.loss",
        (
            swap("self.size * rows", "self.size"),
            swap("self.noise_parties", "1"),
            swap("self._messages", "self._rows"),
        ),
        PREFIX,
    ),
    Target(
        "protocols/prefix_sums.py",
        "PrefixSums.movement",
        (
            swap("self._visited", "1"),
            swap("self._rounding(self._messages)", "rounding"),
        ),
        PREFIX,
    ),
    Target(
        "protocols/prefix_sums.py",
        "PrefixSums._merges",
        (swap("self._rounding(1) <= least", "True"), swap('self.shape.kind != "optimal"', "True")),
        PREFIX,
    ),
    Target(
        "protocols/factorization.py",
        "squared_silos",
        (
            swap("each * np.arange(most + 1.0)", "np.arange(most + 1.0)"),
            swap("min(batches, shape.steps)", "1"),
        ),
        PREFIX,
    ),
    Target(
        "protocols/prefix_sums.py",
        "PrefixSums.of",
        (swap("self.sigmas[silo]", "self.sigma"),),
        BUDGETS,
    ),
    Target(
        "protocols/prefix_sums.py", "PrefixSums.encoder", (swap("self.of(silo)", "self"),), BUDGETS
    ),
    Target("protocols/factorization.py", "Factorization.__post_init__", (checks,), PREFIX),
    Target(
        "protocols/factorization.py",
        "Factorization.movement",
        (
            swap("products[:, -count:]", "products[:, -1:]"),
            swap("np.abs(self.right.T @ self.right)", "self.right.T @ self.right"),
        ),
        PREFIX,
    ),
    Target(
        "protocols/joint.py",
        "JointSums.report",
        (swap("slot", "0"),),
        ("tests/protocols/test_joint.py",),
    ),
    Target(
        "protocols/prefix_guarantees.py", "_earns", (swap("sums.slack(epsilon)", "0.0"),), PREFIX
    ),
    Target(
        "protocols/prefix_guarantees.py",
        "achieves",
        (swap("sums.of(silo)", "sums.of(0)"),),
        BUDGETS,
    ),
    Target(
        "privacy/shuffling.py",
        "amplified",
        (swap("silos * (math.exp(epsilon) + 1)", "(math.exp(epsilon) + 1)"),),
        SILOS,
    ),
    Target(
        "privacy/shuffling.py",
        "amplified_nodes",
        (swap("node.delta > level", "False"),),
        SILOS,
    ),
    Target(
        "algorithms/zc24_noise.py",
        "_shuffled",
        (
            swap("1 if problem.lazy else problem.sync", "1"),
            swap("problem.privacy.visits_repeatedly", "False"),
        ),
        SILOS,
    ),
    Target("protocols/contract.py", "Protocol.check_reports", (limits, checks), NOISE_OF_SUMS),
    Target("protocols/contract.py", "random_level", (signs,), SUMS),
    Target("protocols/sums.py", "ModularSum.combine", (checks,), NOISE_OF_SUMS),
    Target("protocols/prefix_sums.py", "PrefixSums.movement", (signs,), PREFIX),
    Target("protocols/mechanism.py", "Releases.open", (checks, limits), MECHANISM),
    Target("protocols/mechanism.py", "PerRound.open", (checks,), MECHANISM),
    Target(
        "protocols/mechanism.py",
        "PerRound._shortfall",
        (swap("falls_short(achieved, guarantee)", "''"), swap("achieved is None", "False")),
        MECHANISM,
    ),
    Target("protocols/mechanism.py", "PerRound._check_small_round", (checks,), MECHANISM),
    Target(
        "protocols/prefix_guarantees.py",
        "_about",
        (
            swap("not uncovered(sums.assumptions, guarantee.assumptions)", "True"),
            swap("arithmetic.covers(guarantee.arithmetic)", "True"),
            swap("guarantee.view is sums.view", "True"),
        ),
        MECHANISM,
    ),
    Target(
        "protocols/mechanism.py",
        "Mechanism.printed",
        (swap("not foreign", "True"),),
        MECHANISM,
    ),
    Target(
        "protocols/pure_shuffle.py",
        "PureShuffle.__init__",
        (
            swap("Scope.GROUP", "Scope.ROUND"),
            swap("{DishonestAtMost(Scope.GROUP, curious), CompleteGroups()}", "{CompleteGroups()}"),
        ),
        EVERY,
    ),
    Target(
        "protocols/prefix_sums.py",
        "PrefixSums.assumptions",
        (
            swap("self.presence.participations > 1", "False"),
            swap("self.delivery.assumptions(self)", "set()"),
        ),
        EVERY + PREFIX,
    ),
    Target(
        "protocols/prefix_delivery.py",
        "Aggregated.assumptions",
        (swap("sums.corrupt", "0"),),
        EVERY + PREFIX,
    ),
    Target(
        "protocols/prefix_delivery.py",
        "Shuffled.assumptions",
        (swap("super().assumptions(sums)", "set()"), swap("sums.suffices_alone", "False")),
        EVERY + PREFIX,
    ),
    Target(
        "protocols/prefix_delivery.py",
        "Shuffled.noise_parties",
        (swap("sums.suffices_alone", "True"), swap("sums.suffices_alone", "False")),
        EVERY + PREFIX,
    ),
    # rounds
    Target("rounds/codecs.py", "Residues.released", (checks,), ROUNDS),
    Target("rounds/codecs.py", "Residues.payload", (checks,), ROUNDS),
    Target("rounds/codecs.py", "Mixed.payload", (checks,), ROUNDS),
    Target("rounds/codecs.py", "_pad_bits", (counts,), ROUNDS),
    Target("rounds/codecs.py", "_modular_codec", (checks, counts), ROUNDS),
    Target("rounds/codecs.py", "codec", (checks,), ROUNDS),
    Target("rounds/round_runner.py", "aggregation_view", (limits,), ROUNDS),
    # live servers and devices
    Target(
        "service/party.py",
        "_draw",
        (noise, swap("DiscreteLaplace(scale)", "DiscreteLaplace(scale * 2)")),
        SERVER_NOISE,
    ),
    Target("service/assignment.py", "SlotAssigner._draw", (checks,), DESK),
    Target("service/assignment.py", "SlotAssigner._check_unused", (checks,), DESK),
    Target(
        "client/device.py",
        "DeviceCore._check_round",
        (checks, swap("model.cost(pinned, announced)", "Fraction(1)")),
        DEVICE,
    ),
    # noise of live devices
    Target(
        "client/trust_models/masking.py",
        "MaskingReporter.encode",
        (swap("number + share(pinned.terms, announced)", "number"),),
        DEVICE_SHARES,
    ),
    Target(
        "client/trust_models/masking.py",
        "share",
        (
            swap("draw_skellam(total / divisor)", "0"),
            swap("total / divisor", "total / divisor / 4"),
            swap("draw_gaussian(total ** 2 / divisor)", "0"),
            swap("total ** 2 / divisor", "total / divisor"),
            swap("draw_laplace_share(total, divisor)", "0"),
            swap("divisor", "divisor + 1"),
        ),
        DEVICE_SHARES,
    ),
    Target(
        "client/trust_models/masking.py",
        "share",
        (swap("terms.distribution(announced.binding.chosen)", "terms.noise.distribution"),),
        MASKED_SLICE,
    ),
    Target(
        "client/trust_models/shuffler.py",
        "randomized",
        (
            swap("level + draw_laplace_share(total, divisor)", "level"),
            swap("draw_laplace_share(total, divisor)", "draw_laplace_share(total / 2, divisor)"),
            swap("level + ones(parts - announced.binding.levels, total).draw()", "level"),
            swap("parts - announced.binding.levels", "(parts - announced.binding.levels) // 2"),
            swap("additive_shares(noisy, parts, announced.modulus)", "[noisy] + [0] * (parts - 1)"),
        ),
        DEVICE_SHARES,
    ),
    Target(
        "client/trust_models/shuffler.py", "ShufflerReporter.announced", (checks,), DEVICE_SHARES
    ),
    Target(
        "aggregation/two_servers.py",
        "aborted_by_both",
        (
            swap(
                "{(0, RoundOutcome.ABORTED), (1, RoundOutcome.ABORTED)} <= said",
                "(1, RoundOutcome.ABORTED) in said",
            ),
        ),
        DEVICE_SHARES,
    ),
    Target(
        "client/trust_models/local.py",
        "LocalReporter.refunds",
        (swap("False", "True"),),
        DEVICE_SHARES,
    ),
    Target(
        "client/trust_models/masking.py",
        "MaskingReporter.refunds",
        (swap("False", "True"),),
        DEVICE_SHARES,
    ),
    Target(
        "client/trust_models/local.py",
        "_laplace",
        (swap("level + noise", "level"), swap("level + noise", "level + noise // 2")),
        DEVICE_SHARES,
    ),
    Target(
        "client/trust_models/local.py",
        "LocalReporter.encode",
        (swap("draw(announced.noise.total)", "_mutant_once(lambda: draw(announced.noise.total))"),),
        DEVICE_SHARES,
    ),
    # intermediaries
    Target("aggregation/shamir.py", "split_all", (counts,), SHAMIR),
    Target("aggregation/shamir.py", "is_share", (limits,), SHAMIR),
    Target("aggregation/aggregator.py", "Aggregator._take_share", (checks,), TWO_SERVERS),
    Target("aggregation/aggregator.py", "Aggregator._take_list", (checks,), TWO_SERVERS),
    Target(
        "aggregation/pending.py",
        "PendingVault.wrap",
        (swap("os.urandom(NONCE_SIZE)", "bytes(NONCE_SIZE)"),),
        TWO_SERVERS,
    ),
    Target(
        "aggregation/aggregator_context.py",
        "AggregatorContext.abandon",
        (
            swap(
                "RoundRecord(AggregatorStage.CLOSED, record.suite, context=record.context)",
                "replace(record, stage=AggregatorStage.CLOSED)",
            ),
        ),
        TWO_SERVERS,
    ),
    Target(
        "aggregation/aggregator.py",
        "Aggregator._noisy",
        (swap("self._draw_noise(scale, draw)", "0"),),
        (*TWO_SERVERS, *ROUNDS),
    ),
    Target(
        "aggregation/aggregator.py",
        "Aggregator._draw_noise",
        (swap("draw(parameter)", "draw(parameter / 2)"),),
        (*TWO_SERVERS, *ROUNDS),
    ),
    Target(
        "aggregation/aggregator.py",
        "Aggregator._draw_noise",
        (
            swap("accepted_gaussian(parameter ** 2, draw)", "0"),
            swap("parameter ** 2", "parameter ** 2 / 4"),
            swap("accepted_gaussian(parameter ** 2, draw)", "draw(parameter)"),
        ),
        LIVE_MOMENTS,
    ),
    Target(
        "aggregation/aggregator.py",
        "Aggregator._draw_noise",
        (
            swap(
                "self.pinned.terms.distribution(self.round.binding.chosen)",
                "self.pinned.terms.noise.distribution",
            ),
        ),
        SERVED_SLICE,
    ),
    Target(
        "aggregation/masking_client.py",
        "MaskingClient._make_reveal",
        (checks,),
        (*MASKING, *MASKING_ATTACKS),
    ),
    Target("aggregation/masking_client.py", "MaskingClient._make_keys", (checks,), MASKING_ATTACKS),
    Target(
        "aggregation/masking_client.py", "MaskingClient._make_seeds", (checks,), MASKING_ATTACKS
    ),
    Target(
        "aggregation/masking_client.py",
        "MaskingClient._make_last_seeds",
        (checks,),
        MASKING_ATTACKS,
    ),
    Target(
        "aggregation/masking.py",
        "check_withstands",
        (
            swap("found.bits >= bits", "True"),
            swap("aggregation.dishonest(announced.slots)", "0"),
            swap("Claim(aggregation.claim)", "Claim.SEMI_HONEST"),
        ),
        COORDINATOR,
    ),
    Target("aggregation/masking.py", "MaskingRound.decode", (checks,), COORDINATOR),
    Target("aggregation/announcements.py", "endorse_offer", (checks,), COORDINATOR),
    Target("aggregation/announcements.py", "_accepted", (checks,), COORDINATOR, ("pinned",)),
    Target(
        "aggregation/masking_client.py", "MaskingClient._make_accused", (checks,), MASKING_ATTACKS
    ),
    Target(
        "aggregation/share_commitments.py", "ShareCommitments.decode", (checks,), SHARE_COMMITMENTS
    ),
    Target("aggregation/share_commitments.py", "Proof.decode", (checks,), SHARE_COMMITMENTS),
    Target("aggregation/share_commitments.py", "read_shares", (checks,), SHARE_COMMITMENTS),
    Target("aggregation/masking_client.py", "MaskingClient._convict", (checks,), MASKING_ATTACKS),
    Target(
        "aggregation/masking_client.py", "MaskingClient._check_proof", (checks,), MASKING_ATTACKS
    ),
    Target(
        "aggregation/masking_client.py",
        "MaskingClient._guilty",
        (
            swap("root != self._roots[number]", "False"),
            swap("evidence.ciphertext(self._number) != ciphertext", "False"),
            swap("shares is None", "True"),
        ),
        MASKING_ATTACKS,
    ),
    Target("aggregation/masking_client.py", "MaskingClient._check_neighbours", (checks,), MASKING),
    Target("aggregation/masking_messages.py", "_read_reveal", (checks,), MASKING),
    Target("aggregation/masks.py", "_words", (limits,), ("tests/aggregation/test_masks.py",)),
    Target(
        "aggregation/masks.py",
        "total",
        (swap("number % modulus", "number % (modulus - 1)"), swap("sub", "add")),
        ("tests/aggregation/test_masks.py",),
    ),
    Target("aggregation/shuffler.py", "Shuffler.take", (checks,), SHUFFLER),
    Target("aggregation/agreement.py", "Channel.decrypt", (checks,), AGREEMENT),
    Target(
        "aggregation/two_servers.py",
        "report_tag",
        (swap("context", "b''"), swap("digests", "(b'', b'')")),
        TWO_SERVERS,
    ),
    Target("aggregation/aggregator.py", "Aggregator.check", (checks, limits), TWO_SERVERS),
    Target("aggregation/aggregator.py", "Aggregator._list_shares", (limits,), TWO_SERVERS),
    Target("aggregation/aggregator.py", "Aggregator._compute_answer", (limits,), TWO_SERVERS),
    Target("aggregation/aggregator.py", "Aggregator.close", (limits,), TWO_SERVERS),
    Target("aggregation/collecting.py", "Collector.take", (checks,), TWO_SERVERS),
    Target("aggregation/collecting.py", "Collector.close", (limits,), TWO_SERVERS),
    Target("aggregation/collecting.py", "Collector._result", (limits,), TWO_SERVERS),
    Target("aggregation/collecting.py", "Collector._content", (checks,), TWO_SERVERS),
    Target(
        "aggregation/aggregator_context.py", "AggregatorContext.endorse", (checks,), TWO_SERVERS
    ),
    Target(
        "aggregation/aggregator_context.py", "AggregatorContext.prepare", (checks,), TWO_SERVERS
    ),
    Target("aggregation/shuffler.py", "Analyzer.take", (checks,), SHUFFLER),
    Target("aggregation/shuffler.py", "Analyzer._answer", (checks,), SHUFFLER),
    Target("aggregation/shuffler.py", "Shuffler._batch", (checks,), SHUFFLER),
    Target(
        "aggregation/shuffler.py",
        "Shuffler.save",
        (swap("sorted(self._taken)", "list(self._taken)"),),
        SHUFFLER,
    ),
    Target(
        "aggregation/shuffler.py",
        "ShufflerRound.__post_init__",
        (
            swap("self.shuffler[:KEY_SIZE] == self.analyzer[:KEY_SIZE]", "False"),
            swap("self.shuffler[KEY_SIZE:] == self.analyzer[KEY_SIZE:]", "False"),
        ),
        SHUFFLER,
    ),
    Target("aggregation/round_state.py", "PartyRoundState.prepare", (checks,), SHUFFLER),
    Target(
        "aggregation/round_state.py",
        "PartyRoundState.outcome",
        (
            checks,
            swap("bytes((role, said))", "bytes((0, said))"),
            swap("entry.context != announced.context", "False"),
            swap("entry.phase is RoundPhase.ABORTED", "entry.phase is not RoundPhase.ANSWERED"),
        ),
        SHUFFLER,
    ),
    Target("aggregation/shuffler.py", "Analyzer._read", (checks, limits), SHUFFLER),
    # proofs of range
    Target("vdaf/field.py", "Field.unpack", (checks, limits), VDAF),
    Target("vdaf/xof.py", "expand", (limits,), VDAF),
    Target("vdaf/proofs.py", "Circuit.question", (checks,), VDAF),
    Target("vdaf/proofs.py", "Circuit.encode", (checks, limits), VDAF),
    Target("vdaf/proofs.py", "whole_number", (checks, limits), VDAF),
    Target(
        "vdaf/proofs.py",
        "Circuit.decide",
        (swap("output == 0", "True"), swap("self.gadget(*wires) == gadget", "True")),
        VDAF,
    ),
    Target("vdaf/prio3.py", "Prio3.shard", (checks,), VDAF),
    Target("vdaf/prio3.py", "Prio3.verify_init", (checks,), VDAF),
    Target("vdaf/prio3.py", "Prio3.verifier_shares_to_message", (checks,), VDAF),
    Target("vdaf/prio3.py", "Prio3.verify_next", (checks,), VDAF),
    Target("contextual/feature_maps.py", "check_length", (checks, limits), FEATURES),
    Target("contextual/statistics.py", "MomentReport.vector", (checks,), FEATURES),
    Target("contextual/statistics.py", "TableReport.vector", (checks,), FEATURES),
    Target("silos/agent.py", "RecordedEvaluations.check_budget", (checks,), RECORDED),
    Target(
        "silos/agent.py",
        "RecordedEvaluations.check_budget",
        (
            swap("(('epsilon', self.epsilon), ('delta', self.delta))", "[('epsilon', 9)]"),
            swap("sum", "max"),
        ),
        RECORDED,
    ),
    # noise of deployed silos: seeded, or too little
    Target(
        "silos/agent.py",
        "SiloAgent._commit",
        (
            swap(
                "Encoder(self._own, history=before)",
                "Encoder(self._own, np.random.default_rng(7), before)",
            ),
        ),
        SILO_NOISE,
    ),
    Target(
        "silos/agent.py",
        "SiloAgent._noisy",
        (
            swap(
                "Encoder(request.sums(self.terms))",
                "Encoder(request.sums(self.terms), np.random.default_rng(7))",
            ),
            swap(
                "request.sums(self.terms)",
                "request.shared_sums(2 * len(self.terms.silos))",
            ),
        ),
        SILO_NOISE,
    ),
    Target("silos/agent.py", "SiloAgent.respond", (checks,), HOSTILE),
    Target("silos/agent.py", "SiloAgent._take_policy", (checks,), (*HOSTILE, *RESTORED)),
    Target("silos/agent.py", "SiloAgent._report", (checks,), HOSTILE),
    Target("silos/agent.py", "SiloAgent._join", (checks,), HOSTILE),
    Target(
        "silos/agent.py",
        "SiloAgent._attempt",
        (
            swap(
                "(masking.attempt, masking.step) != (message.attempt, message.step)",
                "masking.attempt != message.attempt",
            ),
        ),
        HOSTILE,
    ),
    Target(
        "silos/agent.py",
        "SiloAgent._sign_survivors",
        (checks, swap("self._record_once(b'survivors', message.step, digest)", "digest")),
        HOSTILE,
    ),
    Target("silos/agent.py", "SiloAgent._row", (checks,), RESTORED, ("_check_once",)),
    Target("silos/agent.py", "SiloAgent._evaluation", (checks,), HOSTILE, ("_check_once",)),
    Target("silos/agent.py", "SiloAgent._check_unknown", (checks,), HOSTILE),
    Target(
        "silos/agent.py",
        "SiloAgent._take_evaluation",
        (checks,),
        (*HOSTILE, *RESTORED),
        ("_check_unknown",),
    ),
    Target(
        "silos/agent.py",
        "SiloAgent._take_evaluation",
        (swap("stored[0] != asked.payload", "False"), swap("number == len(known)", "True")),
        HOSTILE,
    ),
    Target("silos/evaluation.py", "check_number", (checks,), RECORDED),
    Target("rounding.py", "no_more", (swap("near <= value", "True"),), ROUNDED_DOWN),
    Target("silos/silo_masking.py", "SiloMasking.__init__", (checks,), HOSTILE),
    Target(
        "silos/silo_masking.py",
        "SiloMasking.share",
        (
            checks,
            swap("not known <= signed.keys()", "False"),
            swap("len(signed) != len(known)", "False"),
        ),
        HOSTILE,
        ("verify(", "no refusal", "->"),
    ),
    Target("silos/silo_masking.py", "SiloMasking.check_survivors", (checks,), HOSTILE),
    Target("silos/silo_masking.py", "SiloMasking.sign_survivors", (checks,), HOSTILE),
    Target("silos/silo_masking.py", "SiloMasking.reveal", (checks,), HOSTILE),
    Target(
        "silos/messages.py", "read_survivors", (checks, limits), HOSTILE, ("fewest", "ascending")
    ),
    Target(
        "silos/federation.py",
        "PinnedFederation.check",
        (swap("noise.total", "offer.total"),),
        HOSTILE,
    ),
    Target("silos/federation.py", "largest_missing", (swap("silos - 2", "silos - 1"),), FEDERATION),
    Target(
        "silos/evaluation.py",
        "EvaluationRequest.values",
        (swap("np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0)", "found"),),
        RECORDED,
    ),
    Target(
        "silos/evaluation.py",
        "EvaluationRequest.shared_sums",
        (swap("math.sqrt(SIZE)", "1.0"), swap("corrupted", "0"), swap("missing", "0")),
        RECORDED,
    ),
    Target(
        "protocols/statistic_sums.py",
        "ShuffledStatistic._prepare",
        (
            swap(
                "shuffled_guarantee(self.guarantee, SHUFFLE_SECURITY)",
                "self.guarantee.with_view(view=View.SHUFFLED)",
            ),
        ),
        STATISTICS,
    ),
    Target(
        "protocols/statistic_sums.py",
        "ShuffledStatistic.security",
        (swap("math.ceil(math.log2(self.coordinates))", "0"),),
        STATISTICS,
    ),
    Target("protocols/statistics.py", "_approximate", (checks,), STATISTICS),
    Target("protocols/statistics.py", "TableStatistic.noise", (checks,), STATISTICS),
    Target("vdaf/histogram.py", "HistogramCircuit.encode", (checks,), VDAF),
    Target("vdaf/histogram.py", "Prio3Histogram.verify_init", (checks,), VDAF),
    Target("vdaf/histogram.py", "Prio3Histogram.verifier_shares_to_message", (checks,), VDAF),
    Target("vdaf/histogram.py", "Prio3Histogram.verify_next", (checks,), VDAF),
    Target(
        "aggregation/verified.py",
        "Proofs.prepare",
        (swap("tag", "bytes(16)"), swap("self.context", "b''")),
        VERIFIED,
    ),
    Target(
        "aggregation/verified.py",
        "Proofs.accepts",
        (swap("False", "True"), swap("self.evidence_size", "size")),
        VERIFIED,
    ),
    Target(
        "aggregation/verified.py",
        "TableProofs.prepare",
        (swap("tag", "bytes(16)"), swap("self.context", "b''")),
        VDAF,
    ),
    Target(
        "aggregation/verified.py",
        "TableProofs.accepts",
        (swap("False", "True"), swap("message", "second[size:]")),
        TABLE_PROOFS,
    ),
    Target("aggregation/verified.py", "commitment", (swap("key", "b''"),), VERIFIED),
    Target(
        "aggregation/aggregator_context.py",
        "AggregatorContext._bound",
        (checks,),
        (*TWO_SERVERS, *VERIFIED),
    ),
    Target(
        "aggregation/aggregator_context.py", "AggregatorContext.commitment", (checks,), VERIFIED
    ),
    Target("aggregation/two_servers.py", "TwoServerRound._check_verified", (checks,), VERIFIED),
    # terms, keys and records
    Target("terms/pinned.py", "Pinned._check_signed", (checks,), TERMS),
    Target("terms/pinned.py", "Pinned.check", (checks, limits), TERMS),
    Target("terms/pinned.py", "Pinned._check_modulus", (checks, limits), TERMS),
    Target(
        "terms/pinned.py", "Pinned._check_option", (checks, limits), (*CHOSEN, *SHUFFLED_TABLES)
    ),
    Target("terms/document.py", "_check_context", (checks,), (*CHOSEN, *SHUFFLED_TABLES)),
    Target(
        "terms/document.py",
        "Terms._parameter",
        (swap("chosen or self.context is None", "True"),),
        CHOSEN,
    ),
    Target(
        "terms/document.py",
        "Terms.round_cost",
        (swap("TABLE_SENSITIVITY", "1"), swap("self._moved", "0")),
        (*CHOSEN, *TERMS),
    ),
    Target(
        "terms/document.py",
        "_check_noise",
        (
            swap("TABLE_SENSITIVITY", "1"),
            swap("(DISCRETE_LAPLACE,)", "allowed"),
            swap("(DISCRETE_GAUSSIAN,)", "allowed"),
        ),
        (*CHOSEN, *LIVE_MOMENTS),
    ),
    Target(
        "terms/context.py",
        "ContextTerms.slice_noise",
        (swap("TABLE_SENSITIVITY", "2 * TABLE_SENSITIVITY"),),
        CHOSEN,
    ),
    Target(
        "terms/context.py",
        "MomentTerms.slice_noise",
        (swap("moved / epsilon", "1 / epsilon"),),
        CHOSEN,
    ),
    Target(
        "contextual/statistics.py",
        "ScaledMomentReport.squared_sensitivity",
        (swap("SQUARED_WEIGHT", "1"), swap("self.largest ** 2", "self.largest")),
        LIVE_MOMENTS,
    ),
    Target(
        "terms/accounting.py",
        "vector_delta",
        (
            swap("(1 + math.exp(level)) * coordinates * apart", "0"),
            swap("ROUNDING * (1 + one * one + level) * tail", "0"),
            swap("2 * psi", "0"),
            swap("math.exp(psi)", "1"),
            swap("math.sqrt(squared_l2)", "1.0"),
            swap("wide < 1", "False"),
        ),
        (*STATED_NOISE, *LIVE_MOMENTS),
    ),
    Target("terms/pinned.py", "Pinned._check_noise", (checks,), TERMS),
    Target("terms/pinned.py", "Pinned._check_least", (checks, limits), TERMS),
    Target(
        "terms/pinned.py",
        "Pinned._check_shares",
        (checks, limits, signs),
        (
            *TERMS,
            *STATED_NOISE,
            *MASKED_CONTEXTS,
            *CERTIFIED,
            "tests/service/test_deployed_attacks.py",
        ),
    ),
    Target(
        "terms/pinned.py",
        "Pinned._check_bits",
        (checks, limits, swap("divisor * bits", "(divisor + 1) * bits")),
        (*STATED_NOISE, *SHUFFLED_TABLES),
    ),
    Target(
        "terms/pinned.py",
        "Pinned._check_bits",
        (
            swap("(offer.parts or 0) - offer.levels", "offer.parts or 0"),
            swap(
                "binomial_delta(divisor * bits, bias, offer.levels, epsilon)",
                "binomial_delta(divisor * bits, bias, 1, epsilon)",
            ),
        ),
        STATED_NOISE,
    ),
    Target(
        "terms/pinned.py",
        "Pinned._check_statistic",
        (checks, swap("divisor", "1")),
        MASKED_CONTEXTS,
    ),
    Target(
        "terms/pinned.py",
        "Pinned._check_gaussian",
        (checks, swap("divisor", "1"), swap("levels", "1")),
        STATED_NOISE,
    ),
    Target("terms/accounting.py", "skellam_delta", (swap("1.0", "0.0"),), STATED_NOISE),
    Target(
        "terms/accounting.py",
        "gaussian_delta",
        (swap("1.0", "0.0"), swap("2 * apart", "apart"), swap("math.exp(apart)", "1.0")),
        STATED_NOISE,
    ),
    Target("terms/accounting.py", "binomial_delta", (swap("1.0", "0.0"),), STATED_NOISE),
    Target(
        "terms/pinned.py",
        "Pinned._check_enough",
        (checks, swap("1 + Fraction(SLACK)", "2")),
        STATED_NOISE,
    ),
    Target("terms/pinned.py", "Pinned._check_parts", (checks, limits), STATED_NOISE),
    Target(
        "terms/document.py",
        "Terms.noise_delta",
        (swap("self.guarantee.delta - self.aggregation_delta", "self.guarantee.delta"),),
        STATED_NOISE,
    ),
    Target(
        "terms/document.py",
        "Terms.per_metric_target",
        (
            swap("self.guarantee.participations * metrics", "metrics"),
            swap("self.guarantee.participations * metrics", "self.guarantee.participations"),
            swap("self.cost / metrics", "self.cost"),
        ),
        STATED_NOISE,
    ),
    Target(
        "terms/document.py",
        "Terms.delta_cost",
        (swap("self.guarantee.delta / self.guarantee.participations", "self.guarantee.delta"),),
        STATED_NOISE,
    ),
    Target(
        "terms/document.py",
        "_check_delta",
        (checks, swap("1 + Fraction(SLACK)", "2")),
        STATED_NOISE,
    ),
    Target(
        "terms/accounting.py",
        "_excess",
        (swap("max(one, other)", "one"), swap("max(one, other)", "other")),
        STATED_NOISE,
    ),
    Target(
        "terms/accounting.py",
        "_divergence",
        (
            swap("sigma < 0.5", "False"),
            swap("math.exp(rate * first / (first + 1))", "0"),
            swap("range(1, first + 1)", "range(2, first + 1)"),
        ),
        STATED_NOISE,
    ),
    Target("terms/pinned.py", "check_successor", (checks,), (*DOCUMENT, *CHOSEN)),
    Target("terms/pinned.py", "check_no_weaker", (checks, limits), (*DOCUMENT, *CHOSEN)),
    Target("terms/document.py", "_check_version", (checks,), DOCUMENT),
    Target("terms/document.py", "_check_assumptions", (checks,), DOCUMENT),
    Target(
        "terms/document.py",
        "_check_numbers",
        (checks, limits),
        DOCUMENT,
        ("terms.grace <=", "terms.no_show <="),
    ),
    Target("terms/document.py", "_check_model", (checks,), DOCUMENT),
    Target("terms/document.py", "_check_noise", (checks, limits), (*DOCUMENT, *STATED_NOISE)),
    Target(
        "terms/aggregation_delta.py",
        "smallest_shuffler_delta",
        (
            signs,
            swap("participations", "1"),
            swap("metrics", "1"),
            swap("math.ceil", "math.floor"),
        ),
        DOCUMENT,
    ),
    Target("terms/parts.py", "StatedGuarantee.check", (limits,), DOCUMENT),
    Target("terms/parts.py", "Noise.check", (limits,), DOCUMENT, ("least",)),
    Target("terms/parts.py", "Aggregation.check", (limits,), DOCUMENT),
    Target("terms/parts.py", "check_whole", (checks, limits), DOCUMENT),
    Target("terms/parts.py", "Aggregation.dishonest", (sides, signs), TERMS),
    Target("terms/parts.py", "Aggregation.missing", (signs,), TERMS),
    Target("service/coordinator.py", "Coordinator.create", (checks, limits), PARTIES, ("grace",)),
    Target(
        "service/round_scheduler.py",
        "_Batch._describe",
        (swap("min(timing.grace, terms.grace)", "timing.grace"),),
        PARTIES,
    ),
    Target(
        "service/store.py",
        "Transaction.replace_round",
        (
            swap("('identity', 'stage', 'announcement')", "('identity', 'announcement')"),
            swap("('identity', 'stage', 'announcement')", "('identity', 'stage')"),
        ),
        SCHEDULER,
    ),
    Target(
        "service/helper.py", "Helper._invited", (swap("known.issuer", "known.keys[0]"),), PARTIES
    ),
    Target(
        "service/assignment.py",
        "SlotAssigner._invitation",
        (swap("terms.issuer", "terms.keys[0]"),),
        PARTIES,
    ),
    Target("client/budget.py", "Budget._check_budget", (checks, limits, signs), LEDGER),
    Target("client/ledger.py", "Ledger.charge", (checks,), LEDGER),
    Target("client/ledger.py", "Ledger.withdraw", (checks,), LEDGER),
    Target("client/budget.py", "Budget._absorb", (checks,), LEDGER),
    Target(
        "client/budget.py",
        "Budget._check_delta",
        (checks, limits, signs, swap("min", "max")),
        LEDGER,
    ),
    Target("client/entries.py", "AcceptedSlot.report", (swap("self.seed", "b''"),), LEDGER),
    Target("client/budget.py", "Budget._own_limit", (swap("OWN_LIMIT", "None"),), LEDGER),
    Target(
        "client/budget.py", "Budget._merged_lineage", (swap("min(times)", "max(times)"),), LEDGER
    ),
    Target(
        "client/budget.py",
        "Budget._related_digests",
        (checks, swap("names - others", "names")),
        DEVICE,
    ),
    Target("terms/pinned.py", "approve_successor", (checks,), TERMS),
    Target("terms/words.py", "factor", (swap("math.ceil", "math.floor"),), TERMS),
    Target("terms/account.py", "Account.charged", (checks, limits, signs), TERMS),
    Target(
        "records.py",
        "MemoryRecords.replace",
        (swap("self._records.get(name) == old", "True"),),
        KEPT,
    ),
    Target("records.py", "RecordDirectory.replace", (swap("found == old", "True"),), KEPT),
    Target("keyfiles.py", "read_key", (checks, limits), KEPT),
    Target("keyfiles.py", "_long_enough", (checks, limits), KEPT),
    # statistics of contexts: terms, reports, noise
    Target("terms/context.py", "ContextTerms.check", (checks,), (*CHOSEN, *LIVE_MOMENTS)),
    Target("terms/context.py", "ContextTerms._check_statistic", (checks, limits), CHOSEN),
    Target(
        "terms/context.py",
        "FeatureTerms._check_statistic",
        (checks, limits),
        (*CHOSEN, *LIVE_MOMENTS),
    ),
    Target("terms/context.py", "MomentTerms._check_statistic", (checks,), LIVE_MOMENTS),
    Target("terms/context.py", "CornerTerms._check_statistic", (checks,), LIVE_CORNERS),
    Target("terms/context.py", "MomentTerms.bounds", (swap("-largest", "0"),), LIVE_MOMENTS),
    Target(
        "terms/words.py",
        "outsiders",
        (
            swap("math.sqrt(2)", "2"),
            swap("delta / metrics", "delta"),
            swap("metrics", "1"),
            sides,
        ),
        (*CHOSEN, *LIVE_MOMENTS, *WORDS),
    ),
    Target(
        "terms/accounting.py",
        "pair_delta",
        (swap("k + peak", "k"), swap("100 * float(scale)", "float(scale)")),
        (*STATED_NOISE, *WORDS),
    ),
    Target(
        "terms/accounting.py",
        "least_epsilon",
        (swap("math.ceil(high * digits)", "math.floor(high * digits)"), swap("high", "low")),
        (*STATED_NOISE, *WORDS),
    ),
    Target(
        "terms/accounting.py",
        "gaussian_delta",
        (swap("deviation / math.sqrt(shares)", "deviation"), swap("2 * apart >= epsilon", "False")),
        STATED_NOISE,
    ),
    Target(
        "contextual/feature_maps.py",
        "FeatureMap.__post_init__",
        (checks,),
        FEATURES,
    ),
    Target(
        "contextual/feature_maps.py",
        "FeatureMap.longest",
        (swap("max(squares)", "min(squares)"),),
        FEATURES,
    ),
    Target(
        "contextual/feature_maps.py",
        "BoundedNumber.code",
        (swap("min(max(float(value), self.low), self.high)", "float(value)"),),
        FEATURES,
    ),
    Target("contextual/feature_maps.py", "FeatureMap.rounded", (checks,), FEATURES),
    Target(
        "contextual/statistics.py",
        "ScaledMomentReport.factor",
        (swap("DIAGONAL * self.resolution // self.levels", "DIAGONAL * self.resolution"),),
        (*FEATURES, *LIVE_MOMENTS, *STATISTICS),
    ),
    Target(
        "contextual/statistics.py",
        "ScaledMomentReport.vector",
        (swap("OTHER", "2 * OTHER"), swap("DIAGONAL", "2 * DIAGONAL")),
        (*FEATURES, *LIVE_MOMENTS, *STATISTICS),
    ),
    Target("contextual/statistics.py", "TableReport.cell", (checks,), FEATURES),
    Target(
        "protocols/statistics.py",
        "centred_sensitivity",
        (swap("math.sqrt(2)", "1"), swap("weight ** 2 / 8", "weight ** 2 / 16")),
        (*STATISTICS, *STATISTIC_GUARANTEES),
    ),
    Target(
        "protocols/statistics.py",
        "TableStatistic.noise",
        (swap("2 / Fraction(target.epsilon)", "1 / Fraction(target.epsilon)"),),
        (*STATISTICS, *STATISTIC_GUARANTEES),
    ),
    Target(
        "protocols/statistics.py",
        "MomentStatistic.loss",
        (swap("d * (d - 1) // 2", "0"), swap("shares", "1")),
        (*STATISTICS, *STATISTIC_GUARANTEES),
    ),
    Target(
        "protocols/statistics.py",
        "ScaledMomentStatistic.loss",
        (swap("self.size", "1"), swap("shares", "1")),
        (*STATISTICS, *STATISTIC_GUARANTEES),
    ),
    Target(
        "protocols/statistics.py",
        "_both_laplace",
        (swap("((loss, 2),)", "((loss, 1),)"), swap("noise.power(2)", "noise.power(4)")),
        (*STATISTICS, *STATISTIC_GUARANTEES),
    ),
    Target(
        "protocols/statistics.py",
        "_outsiders",
        (checks,),
        (*STATISTICS, *STATISTIC_GUARANTEES),
        ("stated",),
    ),
    Target(
        "protocols/statistic_sums.py",
        "SecureStatistic._prepare",
        (
            swap("_share(one, self.honest)", "_share(one, self.participants)"),
            swap(
                "self.statistic.noise(self._noise_target(), self.honest)",
                "self.statistic.noise(self._noise_target())",
            ),
            swap("threat.assumptions()", "()"),
        ),
        (*STATISTICS, *STATISTIC_GUARANTEES, *EVERY),
    ),
    Target(
        "protocols/statistic_sums.py",
        "SecureStatistic.randomize",
        (swap("_draw_each(self.own)", "[0] * self.coordinates"),),
        (*NOISE_OF_SUMS, *STATISTICS),
    ),
    Target(
        "protocols/statistic_sums.py",
        "TwoServerStatistic.server_noise",
        (swap("_draw_each(self.own)", "[0] * self.coordinates"),),
        (*NOISE_OF_SUMS, *STATISTICS),
    ),
    Target(
        "protocols/statistic_sums.py",
        "_sum",
        (swap('arguments.get("dishonest", 0)', "0"), swap('arguments.get("missing", 0)', "0")),
        STATISTIC_GUARANTEES,
    ),
    Target("protocols/statistics.py", "MomentStatistic.total", (checks,), STATISTICS),
    Target(
        "protocols/checking.py",
        "_messages",
        (swap("protocol.report(reward, slot)", "protocol.randomize(reward)"),),
        CHECKING,
    ),
    Target(
        "protocols/statistics.py",
        "_scaled_noise",
        (swap("statistic.loss([noise], shares)", "statistic.loss([noise])"),),
        STATISTIC_GUARANTEES,
    ),
    Target(
        "protocols/statistics.py",
        "_moment_noise",
        (swap("statistic.loss(made(std), shares)", "statistic.loss(made(std))"),),
        STATISTIC_GUARANTEES,
    ),
    Target(
        "service/stated.py",
        "stated_guarantee",
        (
            swap("terms.assumptions | remarks | proofs", "remarks | proofs"),
            swap("ApproximateDP(_as_read(epsilon), _as_read(delta), **about)", "made"),
        ),
        ("tests/service/test_trust_models.py",),
    ),
    Target(
        "service/answers.py",
        "status",
        (
            swap(
                "stated_guarantee(snapshot.terms, snapshot.experiment.guarantee)",
                "snapshot.experiment.guarantee",
            ),
        ),
        ("tests/service/test_trust_models.py",),
    ),
    Target(
        "silos/federation.py",
        "FederationSums.of",
        (swap("{BoundedAdversary()}", "set()"),),
        FEDERATIONS,
    ),
    Target(
        "experiment.py",
        "Experiment.printed",
        (
            swap("Mechanism.printed(self.mechanism, guarantee)", "self.mechanism.guarantee"),
            swap("is_own(type(self.learner))", "True"),
        ),
        MECHANISM,
    ),
    Target("protocols/statistic_sums.py", "_draw_each", (noise,), (*NOISE_OF_SUMS, *STATISTICS)),
    Target("protocols/statistic_sums.py", "PrivateStatistic.__init__", (checks,), STATISTICS),
    Target(
        "protocols/statistic_sums.py",
        "UnaryStatistic.randomize",
        (
            swap("int(self._flip())", "0"),
            swap("int(HALF.flip())", "1"),
        ),
        (*NOISE_OF_SUMS, *STATISTICS),
    ),
    Target(
        "protocols/statistic_sums.py",
        "UnaryStatistic._flip",
        (swap("self.epsilon", "2 * self.epsilon"),),
        (*NOISE_OF_SUMS, *STATISTICS),
    ),
    Target("protocols/slice_mechanism.py", "SliceMechanism.__post_init__", (checks,), SLICES),
    Target("protocols/slice_mechanism.py", "SliceMechanism.open", (checks,), SLICES),
    Target(
        "protocols/slice_mechanism.py",
        "SliceMechanism._outsiders",
        (
            swap("max(policies.epsilon, epsilon)", "policies.epsilon"),
            swap(
                "(small.precision, small.distribution) != (large.precision, large.distribution)",
                "False",
            ),
        ),
        SLICES,
    ),
    Target("protocols/slice_mechanism.py", "SliceMechanism.restore", (checks,), SLICES),
    Target(
        "algorithms/private_contextual.py",
        "slices",
        (swap("problem.dishonest", "0"), swap("problem.missing", "0")),
        (*MASKED_CONTEXTS, *SLICES),
    ),
    # what descriptions of rounds say to devices, and devices to the ledger
    Target(
        "aggregation/announcements.py",
        "LiveRound.offer_of",
        (
            swap("noise.divisor", "1"),
            swap("self.minimum", "self.slots"),
            swap("self.grace", "0"),
        ),
        (*DEVICE_SHARES, *TWO_SERVERS, *DEVICE, *PARTIES),
    ),
    Target(
        "aggregation/masking.py",
        "MaskingRound.offer",
        (swap("self.length", "1"),),
        (*MASKED_CONTEXTS, *COORDINATOR),
    ),
    Target(
        "aggregation/two_servers.py",
        "TwoServerRound.offer",
        (swap("self.scale", "None"), swap("self.length", "1")),
        (*TWO_SERVERS, *DEVICE, *PARTIES),
    ),
    Target(
        "aggregation/shuffler.py",
        "ShufflerRound.offer",
        (swap("self.messages // self.metrics", "self.messages"),),
        (*SHUFFLER, *DEVICE_SHARES),
    ),
    Target("aggregation/local.py", "endorse_local", (checks,), LIVE_LOCAL),
    Target(
        "aggregation/local.py",
        "LocalServer._sum_reports",
        (swap("reports < announced.minimum", "False"),),
        ("tests/service/test_local.py::test_small_rounds_are_aborted_and_their_reports_deleted",),
    ),
    Target(
        "service/trust_models/shuffler.py",
        "ShufflerEngine.endorse",
        (checks,),
        (*DEVICE_SHARES, *LIVE_SHUFFLER),
    ),
    Target("aggregation/masking_server.py", "MaskingServer.endorse", (checks,), COORDINATOR),
    Target("service/party.py", "ServerParty._check_own", (checks,), PARTIES),
    Target("client/trust_models/contract.py", "Reporter.check_terms", (checks,), DEVICE_SHARES),
    Target("terms/document.py", "check_live", (checks,), (*DOCUMENT, *ISSUERS, *PARTIES)),
    Target("terms/document.py", "_check_parties", (checks,), DOCUMENT),
    Target("client/choices.py", "check_context", (checks,), LIVE_CONTEXTS),
    # silos
    Target("silos/federation.py", "PinnedFederation.__post_init__", (checks,), FEDERATIONS),
    Target("silos/federation.py", "FederationTerms.__post_init__", (checks, limits), FEDERATIONS),
    Target("silos/federation.py", "FederationTerms._check_missing", (checks, limits), FEDERATIONS),
    Target(
        "privacy/silos.py",
        "SilosDP.implies",
        (swap("super().implies(everybody)", "True"), swap("all", "any")),
        (*ASSUMED, *BUDGETS),
    ),
    Target("privacy/silos.py", "SilosDP.__post_init__", (checks,), ASSUMED),
    # sampling
    Target(
        "sampling/draws.py",
        "accepted_gaussian",
        (swap("2 * variance", "variance"), swap("variance / scale", "0")),
        DRAWS,
    ),
    Target(
        "sampling/draws.py",
        "draw_laplace_share",
        (
            swap("Fraction(1, shares)", "Fraction(1, shares + 1)"),
            swap("1 / scale", "2 / scale"),
        ),
        SHARES,
    ),
    Target(
        "sampling/draws.py",
        "flip_response",
        (swap("epsilon", "2 * epsilon"),),
        COINS,
    ),
    Target(
        "sampling/draws.py",
        "poisson_parts",
        (
            swap("-(-mean // largest)", "mean // largest + 1"),
            swap("mean / parts", "mean / parts / 2"),
        ),
        DRAWS,
    ),
    # bandits
    Target("bandits/contract.py", "Learner.check", (checks,), LEARNERS),
    Target("bandits/contract.py", "Learner._check", (checks,), LEARNERS),
    Target(
        "bandits/arm_summaries.py",
        "anytime_summaries",
        (swap("sure * setting.share(k)", "sure"), swap("len(present) - 1", "len(worse)")),
        ("tests/bandits/test_always.py",),
    ),
    Target(
        "bandits/arm_summaries.py",
        "best_option",
        (swap("others", "others[1:]"),),
        ("tests/bandits/test_always.py",),
    ),
    Target(
        "bandits/sample_ratio.py",
        "ResponseRates.add",
        (
            swap("before + TILTS * arrived - grown", "TILTS * arrived - grown"),
            swap("max(self._largest, self._evidence(first))", "self._evidence(first)"),
        ),
        ("tests/bandits/test_managed.py",),
    ),
    Target(
        "bandits/sample_ratio.py",
        "SampleRatio.mismatch",
        (swap("ALARM", "20 * ALARM"),),
        ("tests/bandits/test_managed.py",),
    ),
    Target(
        "bandits/arm_summaries.py",
        "beats",
        (
            swap("setting.rival_factor(other)", "1"),
            swap("failure_probability * setting.share(option)", "failure_probability"),
        ),
        ("tests/bandits/test_always.py",),
    ),
    Target(
        "bandits/arm_summaries.py",
        "interval",
        (swap("failure / 2", "failure"),),
        ("tests/bandits/test_always.py",),
    ),
    Target(
        "bandits/guardrail.py",
        "Guard._is_significantly_worse",
        (
            swap(
                "failure_probability * self._setting(self.rail.level).share(option)",
                "failure_probability",
            ),
        ),
        ("tests/bandits/test_guardrail.py",),
    ),
    # what a device asks before it joins, sends and is refunded
    Target("client/device.py", "DeviceCore._nothing_left", (checks,), (*JOINED, *ANY_DEVICE)),
    Target("client/device.py", "_check_willing", (checks, limits), (*DEVICE, *ANY_DEVICE)),
    Target("client/device.py", "_slot", (checks,), DEVICE),
    Target("client/device.py", "_option", (checks,), DEVICE),
    Target(
        "client/device.py",
        "DeviceCore._check_round",
        (swap("pinned.terms.delta_cost", "0"), swap("chosen.levels", "(0,)")),
        (*ISSUERS, *LIVE_CONTEXTS),
    ),
    Target(
        "client/device.py",
        "DeviceCore._send",
        (swap("without_secret(participation.invitation)", "participation.invitation"),),
        INVITED,
    ),
    Target(
        "client/device.py",
        "_asking",
        (swap("without_secret(invitation)", "invitation"),),
        INVITED,
    ),
    Target(
        "client/device.py",
        "DeviceCore._final",
        (swap("role == post.role", "True"), swap("said is not RoundOutcome.UNKNOWN", "True")),
        (*DEVICE, *ANY_DEVICE),
    ),
    Target(
        "client/device.py",
        "DeviceCore._query_outcome",
        (swap("RoundOutcome.RELEASED in said", "False"), swap("refund", "True")),
        (*DEVICE, *ANY_DEVICE),
    ),
    Target("client/pins.py", "Acceptance.check", (checks,), ACCEPTANCE),
    Target("client/ledger.py", "Ledger._joined", (checks,), LEDGER),
    Target("client/ledger.py", "Ledger.join", (checks,), LEDGER, ("_check_delta",)),
    Target("client/ledger.py", "Ledger.end", (swap("refund", "True"),), LEDGER),
    Target(
        "client/budget.py",
        "Budget._exported",
        (
            swap("bool(row['charged']) or row['outcome'] is None", "bool(row['charged'])"),
            swap("row['outcome'] == ParticipationOutcome.ABORTED", "True"),
        ),
        LEDGER,
    ),
    Target("client/budget.py", "_lesser", (swap("min", "max"),), LEDGER),
    Target(
        "client/budget.py",
        "Budget._merged_lineage",
        (swap("min(epsilons)", "max(epsilons)"), swap("(lineage, *others)", "(lineage,)")),
        LEDGER,
    ),
    Target("service/invitations.py", "_checked", (swap("lineage + number", "number"),), ISSUERS),
    Target("service/invitations.py", "_checked", (checks,), ISSUERS),
    Target(
        "service/invitations.py", "check", (swap("number_of(secret)", "secret"),), (*ISSUERS, *DESK)
    ),
    Target(
        "service/assignment.py",
        "SlotAssigner._draw",
        (swap("self._transaction.spend(invitation, name)", "True"),),
        (*DESK, *ISSUERS),
    ),
    # unary encoding and certified shares, live
    Target(
        "client/trust_models/local.py",
        "_unary",
        (
            swap("int(flip_response(2 / parameter))", "0"),
            swap("2 / parameter", "4 / parameter"),
            swap("int(HALF.flip())", "1"),
            swap("own if cell else other", "other if cell else own"),
        ),
        LOCAL_TABLES,
    ),
    Target(
        "client/trust_models/local.py",
        "_response",
        (swap("level ^ flip", "level"), swap("1 / parameter", "2 / parameter")),
        LIVE_LOCAL,
    ),
    Target(
        "client/trust_models/local.py",
        "LocalReporter.encode",
        (
            swap("announced.noise.total", "announced.noise.total / 2"),
            swap("pinned.terms.distribution(announced.binding.chosen)", "RANDOMIZED_RESPONSE"),
        ),
        (*LIVE_LOCAL, *LOCAL_TABLES),
    ),
    Target(
        "client/trust_models/shuffler.py",
        "randomized",
        (swap("draw_certified_ones(proven)(level)", "level"),),
        CERTIFIED,
    ),
    Target(
        "client/trust_models/shuffler.py",
        "ShufflerReporter.encode",
        (
            swap("terms.noise.distribution == CERTIFIED_POLYA", "False"),
            swap("announced.noise.divisor", "1"),
            swap("terms.per_metric_target[0]", "terms.guarantee.epsilon"),
        ),
        CERTIFIED,
    ),
    Target(
        "terms/pinned.py",
        "Pinned._check_certified",
        (checks, swap("self.terms.per_metric_target[0]", "self.terms.guarantee.epsilon")),
        (*CERTIFIED, *WEAKEST, *STATED_NOISE),
    ),
    # assumptions dropped, scopes swapped
    Target(
        "terms/document.py",
        "Terms._trusted",
        (
            swap("HonestServers(1, of=2)", "HonestServers(2, of=2)"),
            swap("PinnedKeys()", "BoundedAdversary()"),
            swap("HonestDevice()", "PinnedKeys()"),
            swap("Scope.ROUND", "Scope.GROUP"),
            swap("1 - about.missing_fraction", "about.missing_fraction"),
            swap("about.dishonest_count", "0"),
            swap("about.dishonest_fraction", "0 * about.dishonest_fraction"),
            swap("self.guarantee.participations > 1", "False"),
            swap("NonColludingShuffler()", "BoundedAdversary()"),
            swap("SemiHonestServer()", "BoundedAdversary()"),
            swap("HonestServers(2, of=2)", "HonestServers(1, of=2)"),
        ),
        (*DOCUMENT, *STATED_NOISE),
    ),
    Target(
        "terms/document.py",
        "Terms.assumptions",
        (
            swap("Protects(self.context.secret)", "PublicMembership()"),
            swap("PublicMembership()", "Protects(self.context.secret)"),
        ),
        (*DOCUMENT, *CHOSEN),
    ),
    Target(
        "terms/aggregation_delta.py",
        "smallest_masking_delta",
        (swap("participations", "1"),),
        DOCUMENT,
    ),
    Target(
        "terms/document.py",
        "Terms.aggregation_delta",
        (
            swap("smallest_masking_delta(often)", "Fraction(0)"),
            swap("smallest_shuffler_delta(self.guarantee.epsilon, often, metrics)", "Fraction(0)"),
        ),
        (*DOCUMENT, *WEAKEST),
    ),
    Target(
        "terms/document.py",
        "statistic_delta",
        (swap("report.squared_sensitivity", "report.squared_sensitivity / 2"),),
        WEAKEST,
    ),
    Target(
        "privacy/threat_model.py",
        "ThreatModel.assumptions",
        (swap("self.dishonest(scope)", "self.dishonest()"),),
        (*ASSUMED, *EVERY, *LINEAR),
    ),
    Target(
        "algorithms/lzj22.py",
        "status",
        (
            swap("privacy.KnownPerRound(target)", "privacy.NonPrivate()"),
            swap("scope.ROUND", "scope.GROUP"),
            swap("scope.GROUP", "scope.ROUND"),
            swap("privacy.in_distinct_rounds(target)", "()"),
            swap("privacy.ThreatModel().assumptions(whom)", "()"),
        ),
        LINEAR,
    ),
    Target(
        "algorithms/private_contextual.py",
        "with_secret",
        (
            swap("protects", "assumptions.PublicMembership()"),
            swap("assumptions.PublicMembership()", "protects"),
        ),
        (*SLICES, *STATISTIC_GUARANTEES, *CONTEXTUAL),
    ),
    Target(
        "protocols/integer_vectors.py",
        "SecureVector.__init__",
        (
            swap("threat.assumptions()", "()"),
            swap("in_distinct_rounds(target)", "()"),
            swap("threat.honest(self.participants)", "self.participants"),
            swap("per_participation(target)", "target"),
        ),
        (*EVERY, *VECTORS),
    ),
    Target(
        "protocols/l2_sums.py",
        "BallSum.__init__",
        (swap("in_distinct_rounds(target)", "()"),),
        (*EVERY, *BALLS),
    ),
    Target(
        "protocols/joint.py",
        "JointSums.__init__",
        (
            swap("MetricsPerParticipation(metrics)", "MetricsPerParticipation(1)"),
            swap("frozenset() if often > 1 else {DistinctRounds()}", "{DistinctRounds()}"),
        ),
        ("tests/protocols/test_joint.py",),
    ),
    Target(
        "privacy/joint_guarantees.py",
        "compose",
        (swap("_alike_and_pure(items)", "True"),),
        (*GUARANTEES, *ASSUMED),
    ),
    # release gates
    Target("protocols/mechanism.py", "PerRound.__post_init__", (checks,), MECHANISM),
    Target(
        "protocols/mechanism.py",
        "PerRound.__post_init__",
        (
            swap("isinstance(self.privacy, Guaranteed)", "False"),
            swap("small is None and is_own(self.make)", "False"),
        ),
        MECHANISM,
    ),
    Target("protocols/mechanism.py", "PerRound._check_target", (checks,), MECHANISM),
    Target("protocols/mechanism.py", "PerRound.restore", (checks,), MECHANISM),
    Target("protocols/mechanism.py", "Releases.__post_init__", (checks,), MECHANISM),
    Target(
        "protocols/mechanism.py",
        "PerRound._check_small_round",
        (swap("isinstance(self.privacy, NonPrivate) and achieved is not None", "False"),),
        MECHANISM,
    ),
    Target("experiment.py", "Experiment.__post_init__", (checks,), EXPERIMENT),
    Target("experiment.py", "Experiment.open", (checks,), (*EXPERIMENT, *MECHANISM)),
    Target("experiment.py", "Experiment.observe", (checks,), EXPERIMENT),
    Target("experiment.py", "Experiment.from_dict", (checks,), EXPERIMENT),
    Target("experiment.py", "_check_secret", (checks,), EXPERIMENT),
    Target(
        "aggregation/interface.py",
        "check_minimum",
        (limits, checks),
        (*SHUFFLER, *MASKING),
    ),
    Target(
        "aggregation/announcements.py",
        "SharedNoise.__post_init__",
        (checks,),
        ("tests/aggregation/test_shared_noise.py",),
    ),
    # devices that choose, try and report: corners, fits, bits of tables
    Target("contextual/fitted.py", "FitPolicy.__post_init__", (checks, limits), FIT_REPORTS),
    Target("contextual/fitted.py", "FitPolicy.decode", (checks, limits), FIT_REPORTS),
    Target("contextual/fitted.py", "FitReport.check", (checks, limits), (*FIT_REPORTS, *FIT_TERMS)),
    Target(
        "contextual/fitted.py",
        "FitReport.fitted",
        (
            swap("[number / length for number in vector]", "vector"),
            swap("2 * level - self.levels", "level"),
            checks,
        ),
        LIVE_FITS,
    ),
    Target(
        "contextual/fitted.py",
        "FitReport.vector",
        (
            swap("self.radius", "self.resolution"),
            swap("uniform_below(FINE) < rest", "0"),
            swap("self.fitted(policy, played)", "[2 * one for one in self.fitted(policy, played)]"),
        ),
        FIT_REPORTS,
    ),
    Target("contextual/fitted.py", "FitReport._lost", (counts, signs), LIVE_FITS),
    Target("contextual/fitted.py", "FitReport.radius", (signs,), FIT_REPORTS),
    Target(
        "contextual/fitted.py",
        "FitReport.squared_sensitivity",
        (swap("4 * self.resolution ** 2", "self.resolution ** 2"),),
        (*FIT_REPORTS, *WEAKEST),
    ),
    Target(
        "contextual/corners.py",
        "OptionCorners.draw",
        (swap("(1 + code[column]) / 2", "(1 - code[column]) / 2"), swap("range(2)", "range(1)")),
        LIVE_CORNERS,
    ),
    Target("contextual/corners.py", "layout", (checks, limits), (*CORNERS, *LIVE_CORNERS)),
    Target(
        "terms/context.py",
        "CornerTerms.report",
        (swap("layout(self.features(names)).size", "1"),),
        LIVE_CORNERS,
    ),
    Target(
        "terms/context.py",
        "FittedTerms._check_statistic",
        (checks, limits),
        FIT_TERMS,
    ),
    Target("terms/context.py", "FittedTerms.exact", (swap("False", "True"),), FIT_TERMS),
    Target(
        "terms/context.py",
        "FittedTerms.secret",
        (swap("Secret.FITTED_PARAMETER", "Secret.CONTEXT_AND_REWARDS"),),
        FIT_TERMS,
    ),
    Target(
        "terms/context.py",
        "FittedTerms.bounds",
        (swap("-self.resolution", "0"), swap("self.resolution", "self.resolution // 2")),
        (*FIT_REPORTS, *FIT_TERMS),
    ),
    Target(
        "terms/context.py",
        "FittedTerms.policy",
        (swap("self.plays", "255"), swap("options", "0xFFFF")),
        (*FIT_REPORTS, *FIT_TERMS),
    ),
    Target("terms/context.py", "FittedTerms.check_policy", (checks,), FIT_REPORTS),
    Target(
        "terms/context.py",
        "ContextTerms.check_policy",
        (checks,),
        (*CHOSEN, *LIVE_CONTEXTS),
    ),
    Target("terms/context.py", "FeatureTerms.check_policy", (checks,), (*LIVE_CORNERS,)),
    Target(
        "terms/document.py",
        "statistic_delta",
        (swap("shares", "1"), swap("report.size", "1"), swap("sigma", "2 * sigma")),
        (*WEAKEST, *MASKED_CONTEXTS, *FIT_TERMS),
    ),
    Target(
        "terms/accounting.py",
        "cells_delta",
        (
            swap("1.0", "0.0"),
            swap("_ones(bits, bias, 1)", "_ones(2 * bits, bias, 1)"),
            swap("likely < _NEGLIGIBLE", "likely < 0.0"),
            swap("likely < _NEGLIGIBLE", "likely < 0.01"),
            swap(
                "factor * other * tail_stays[start]", "factor * factor * other * tail_stays[start]"
            ),
        ),
        (*BITS_OF_TABLES, *STATED_NOISE),
    ),
    Target(
        "protocols/statistic_sums.py",
        "ShuffledTable._prepare",
        (
            swap(
                "table_bits(self.honest, self.target)", "table_bits(self.participants, self.target)"
            ),
            swap("threat.assumptions()", "()"),
            swap("self._ones(self.honest)", "self._ones(self.participants)"),
        ),
        (*BITS_OF_TABLES, *STATISTIC_GUARANTEES, *EVERY),
    ),
    Target(
        "protocols/statistic_sums.py",
        "ShuffledTable.randomize",
        (noise,),
        (*NOISE_OF_SUMS, *BITS_OF_TABLES),
    ),
    Target("protocols/statistic_sums.py", "table_bits", (limits,), BITS_OF_TABLES),
    Target("protocols/statistic_sums.py", "ShuffledTable.__init__", (checks,), BITS_OF_TABLES),
    Target("protocols/statistic_sums.py", "UnaryStatistic.__init__", (checks,), STATISTICS),
    Target(
        "protocols/statistics.py",
        "FitStatistic.loss",
        (swap("self.size", "1"), swap("shares", "1"), swap("self.report.squared_sensitivity", "1")),
        (*LIVE_FITS, *STATISTIC_GUARANTEES),
    ),
    Target(
        "client/choices.py",
        "choose",
        (swap("answer * len(plays)", "answer"), swap("binding.policy", "b''"), checks),
        (*FIT_TERMS, *LIVE_CONTEXTS, *CHOSEN),
    ),
    Target(
        "client/trust_models/two_servers.py",
        "TwoServerReporter.least_cost",
        (
            swap("terms.context is not None", "False"),
            swap("terms.noise.scale", "terms.noise.least"),
        ),
        (*LIVE_CONTEXTS, *ANY_DEVICE, *CHOSEN),
    ),
    Target(
        "client/trust_models/masking.py",
        "MaskingReporter.stages",
        (
            swap("now < session.expires", "True"),
            swap("session.after < _MESSAGES", "True"),
            swap("0 < reply.status < 500 and reply.status != 429", "False"),
        ),
        ("tests/service/test_secure_aggregation.py",),
    ),
    Target(
        "client/trust_models/contract.py",
        "Reporter.cost",
        (swap("pinned.check(announced.offer())", "pinned.terms.cost"),),
        (*DEVICE, *LIVE_CONTEXTS),
    ),
    # parties serve no round whose noise or size differs from the terms
    Target(
        "service/trust_models/contract.py",
        "CoordinatorEngine.announce",
        (checks,),
        (*PARTIES, *LIVE_LOCAL, *LIVE_SHUFFLER),
    ),
    Target("service/trust_models/contract.py", "CoordinatorEngine.least", (sides,), SERVED),
    Target("service/trust_models/contract.py", "HelperEngine.keys", (checks,), (*PARTIES, *SERVED)),
    Target("service/trust_models/two_servers.py", "TwoServerEngine.check_terms", (checks,), SERVED),
    Target(
        "service/trust_models/two_servers.py",
        "TwoServerCoordinator.codec",
        (
            checks,
            swap("terms.parameter(chosen)", "own.scale"),
            swap("terms.answer.levels", "own.levels"),
            swap("terms.numbers(chosen)", "protocol.coordinates"),
        ),
        SERVED,
    ),
    Target("service/trust_models/local.py", "LocalCoordinator.codec", (checks,), SERVED),
    Target(
        "service/trust_models/local.py",
        "_room",
        (swap("math.ceil(terms.noise.scale * CLAMPED)", "0"),),
        LIVE_LOCAL,
    ),
    Target(
        "service/trust_models/masking.py",
        "_announced_noise",
        (swap("part.honest", "part.participants"), checks),
        SERVED,
    ),
    Target("service/trust_models/contract.py", "stated_codec", (checks,), SERVED),
    Target(
        "service/trust_models/shuffler.py",
        "_announced_noise",
        (swap("part.honest", "part.participants"), swap("part.bias", "part.bias / 2")),
        SERVED,
    ),
    Target("rounds/stated_noise.py", "check_stated", (checks, limits), SERVED),
    Target(
        "rounds/stated_noise.py",
        "check_stated",
        (
            swap("(found.by, found.distribution)", "(terms.noise.by, terms.distribution(chosen))"),
            swap("protocol.coordinates", "terms.numbers(chosen)"),
            swap("precision", "terms.answer.levels"),
        ),
        SERVED,
    ),
)

EQUIVALENT: dict[str, str] = {
    "terms/context.py: FittedTerms._check_statistic: no self.report(len(options), levels)": (
        "the check of the noise makes the same report, which rejects the same resolutions"
    ),
    "protocols/statistic_sums.py: ShuffledTable._prepare: "
    "self._ones(self.honest) -> self._ones(self.participants)": (
        "only the kind of the distribution says in which arithmetic noise is drawn"
    ),
    "protocols/statistic_sums.py: table_bits: "
    "cells_delta(each * honest, bias, epsilon) <= target.delta -> "
    "cells_delta(each * honest, bias, epsilon) < target.delta": "a float computed is never equal",
    "contextual/fitted.py: FitPolicy.decode: len(data) >= _COUNT.size -> len(data) > _COUNT.size": (
        "two bytes alone are no policy of no options either: it tries none"
    ),
    "aggregation/two_servers.py: TwoServerRound.offer: self.scale -> None (2)": (
        "a device looks at shares of noise only where the round states no scale"
    ),
    "terms/context.py: FeatureTerms._check_statistic: abs(number) <= LARGEST_ENTRY -> "
    "abs(number) < LARGEST_ENTRY": "features are shorter than 1, so no two differ by 2",
    "protocols/prefix_delivery.py: Shuffled.noise_parties: sums.suffices_alone -> False": (
        "only noise that is no integer suffices alone there, and nothing adds up shares of it"
    ),
    "aggregation/masking_client.py: MaskingClient._guilty: root != self._roots[number] -> False": (
        "a parcel that an honest sender signed opens under the root that it signed, so that its "
        "key stays unknown whatever root the server told"
    ),
    "privacy/guarantees.py: PureDP.delta_at: finite_epsilon(epsilon) >= self.epsilon -> "
    "finite_epsilon(epsilon) > self.epsilon": "at ε itself the formula below gives 0, too",
    "privacy/shuffling.py: RandomizedResponse.delta: at < self.epsilon0 -> at <= self.epsilon0": (
        "at ε₀ itself no atom has a larger loss, so the sum is 0, too"
    ),
    "privacy/loss.py: Direction.epsilon: self.delta(0.0) <= delta -> self.delta(0.0) < delta": (
        "where δ(0) is δ to the last bit the search finds 0 as well, or the next number above"
    ),
    "privacy/loss.py: Direction.epsilon: upper > delta -> upper >= delta": (
        "where the mass so far is δ to the last bit the candidate is ln 0, which settles nothing"
    ),
    "sampling/coins.py: random_bits: count > WORD -> count >= WORD": (
        "64 fair bits are the same from the pool or straight from the operating system"
    ),
    "sampling/coins.py: Chance.flip: u >= high -> u > high": (
        "a word equal to the upper bound goes to settle(), which decides by further digits"
    ),
    "sampling/draws.py: draw_gaussian: 2 -> 3": (
        "the first 2 bounds where inversion is used; both ways draw the same distribution"
    ),
    "contextual/feature_maps.py: BoundedNumber.code: min(max(float(value), self.low), self.high) "
    "-> float(value)": "the scaled number is clipped to [-1, 1] again",
    "terms/accounting.py: gaussian_delta: 2 * apart -> apart": (
        "the divergence at a negative ε bounds δ, too: it is returned instead of 1"
    ),
    "terms/accounting.py: least_epsilon: high -> low": (
        "the first middle of the search from 0 is the last ε that did not suffice"
    ),
    "terms/accounting.py: least_epsilon: high -> low (6)": (
        "ε is doubled every second time and searched from 0: see the first of these"
    ),
    "terms/accounting.py: least_epsilon: high -> low (4)": (
        "the search ends at most one halving later, with an ε that suffices"
    ),
    "rounds/round_runner.py: aggregation_view: len(messages) > protocol.participants -> "
    "len(messages) >= protocol.participants": (
        "a full round is handed to check_reports, which takes it, and goes on"
    ),
    "keyfiles.py: read_key: len(data) <= _HEADER_SIZE -> len(data) < _HEADER_SIZE": (
        "a file that ends with its header has no tag, so it does not open either"
    ),
}
