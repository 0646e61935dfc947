"""What is broken in the browser's device, and which tests in Node must notice."""

from __future__ import annotations

from dataclasses import dataclass

_BORDERS = "tests/browser/test_borders_node.py::test_"
FLIPS = (f"{_BORDERS}every_metric_is_flipped_on_its_own_at_its_part_of_epsilon",)
LAPLACE = (f"{_BORDERS}every_metric_has_laplace_noise_of_its_own",)
LOCAL_ROUNDS = (
    f"{_BORDERS}rounds_of_the_local_model_with_just_enough_noise_get_the_verdict_of_python",
)
BITS = (f"{_BORDERS}every_metric_has_noise_bits_of_its_own",)
BIT_ROUNDS = (f"{_BORDERS}rounds_with_just_enough_noise_bits_get_the_verdict_of_python",)
COMMON_KEYS = (f"{_BORDERS}shuffler_and_analyzer_with_a_common_key_are_rejected",)
SOURCES = (f"{_BORDERS}noise_and_shares_take_the_browser_s_randomness",)
TERMS = (f"{_BORDERS}terms_that_only_their_distribution_forbids_are_rejected",)
COSTS = (f"{_BORDERS}rounds_of_two_servers_have_the_cost_computed_by_python",)
MOMENT_ROUNDS = (f"{_BORDERS}rounds_with_moments_get_the_verdict_and_the_cost_of_python",)
MOMENT_TERMS = (
    f"{_BORDERS}terms_with_moments_tolerate_nobody_and_need_noise_for_all_of_their_delta",
)
LEDGER = ("tests/browser/test_ledger_node.py",)
MOMENTS = ("tests/browser/test_moments_node.py",)
VECTORS = ("tests/browser/test_vectors_node.py",)
LOCAL = ("tests/browser/test_local_node.py",)
SHUFFLER = ("tests/browser/test_shuffler_node.py",)


@dataclass(frozen=True)
class Change:
    """One text of a file of `clients/js`, once in it, another in its place, and the tests."""

    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it does, on one line."""
        return f"{self.path}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


CHANGES = tuple(
    Change(*row)
    for row in (
        # noise of every metric, drawn anew, of the announced scale
        ("local.js", "BigInt(level) + noise[metric]", "BigInt(level)", LAPLACE),
        ("local.js", "BigInt(level) + noise[metric]", "BigInt(level) + noise[0]", LAPLACE),
        ("local.js", "BigInt(level) ^ noise[metric]", "BigInt(level) ^ noise[0]", FLIPS),
        ("local.js", "response([scale[1], scale[0]])", "response(scale)", FLIPS),
        ("local.js", ": laplace(scale)))", ": laplace([scale[0], 2n * scale[1]])))", LAPLACE),
        ("local.js", "crypto.getRandomValues(new BigUint64Array(1))[0]", "7n", FLIPS),
        ("local.js", "return negative ? -magnitude : magnitude", "return magnitude", LAPLACE),
        ("local.js", "round.divisor === 1 && ", "", LOCAL),
        ("local.js", "!above(terms.noise.minimum.map(BigInt), round.scale) && ", "", LOCAL_ROUNDS),
        ("local.js", "(noise.distribution !== RESPONSE || answer.levels === 1)", "true", TERMS),
        ("local.js", "bottom * BigInt(guarantee.participations)", "bottom", LOCAL_ROUNDS),
        ("shuffler.js", "uniform(bottom, draw) < top", "false", BITS),
        ("shuffler.js", "uniform(bottom, draw) < top", "uniform(bottom, draw) >= top", BITS),
        ("shuffler.js", "{ length: parts - round.levels }", "{ length: parts >> 1 }", BITS),
        ("shuffler.js", "at < level + ones[metric]", "at < level + ones[0]", BITS),
        (
            "shuffler.js",
            "draw = (size) => crypto.getRandomValues(new Uint8Array(size))) {",
            "draw = (size) => new Uint8Array(size).map((_, at) => 37 * at)) {",
            SOURCES,
        ),
        (
            "two-servers.js",
            "draw = (size) => crypto.getRandomValues(new Uint8Array(size))) {",
            "draw = (size) => new Uint8Array(size).map((_, at) => 37 * at)) {",
            SOURCES,
        ),
        ("two-servers.js", "values.map(() => uniform(modulus, draw))", "values", VECTORS),
        ("two-servers.js", "role ? round.key1 : round.key0", "round.key0", VECTORS),
        # what a round must have before anything is drawn
        ("shuffler.js", "minimum < places - missing || ", "", BIT_ROUNDS),
        ("shuffler.js", "Math.min(minimum, places) - dishonest", "minimum", BIT_ROUNDS),
        ("shuffler.js", "Math.max(aggregation.dishonest_count, ", "Math.max(0, ", BIT_ROUNDS),
        (
            "shuffler.js",
            "part(places, aggregation.dishonest_fraction))",
            "0)",
            BIT_ROUNDS,
        ),
        ("shuffler.js", "messages / length - levels;", "messages / length;", BIT_ROUNDS),
        ("shuffler.js", "!above(noise.minimum.map(BigInt), variance) && ", "", BIT_ROUNDS),
        (
            "shuffler.js",
            " && delta <= (number(guarantee.delta) / each) * (1 + SLACK)",
            "",
            BIT_ROUNDS,
        ),
        ("shuffler.js", "(number(guarantee.delta) / each)", "number(guarantee.delta)", BIT_ROUNDS),
        (
            "shuffler.js",
            "number(guarantee.epsilon) / each",
            "number(guarantee.epsilon)",
            BIT_ROUNDS,
        ),
        ("shuffler.js", "guarantee.participations * answer.metrics.length", "1", BIT_ROUNDS),
        (
            "shuffler.js",
            "guarantee.participations * answer.metrics.length",
            "guarantee.participations",
            BIT_ROUNDS,
        ),
        ("shuffler.js", "return Math.max(one, other) / total", "return one / total", BIT_ROUNDS),
        ("shuffler.js", "return Math.max(one, other) / total", "return other / total", BIT_ROUNDS),
        ("shuffler.js", "round.modulus === 2n && ", "", BIT_ROUNDS),
        ("shuffler.js", "key0 !== key1 && ", "", COMMON_KEYS),
        ("shuffler.js", "line0 !== line1 && ", "", COMMON_KEYS),
        ("shuffler.js", ' && guarantee.delta !== "0"', "", TERMS),
        ("shuffler.js", " && !parties.some((party) => party.key === issuer)", "", VECTORS),
        (
            "shuffler.js",
            '!accept || admission === "invitation" || accept.obedientCoordinator',
            "true",
            SHUFFLER,
        ),
        ("two-servers.js", "!above(terms.noise.minimum.map(BigInt), scale) && ", "", COSTS),
        ("two-servers.js", "proofs === terms.proofs && ", "", VECTORS),
        ("contextual.js", "model.sound(terms, SENSITIVITY)", "model.sound(terms, 1n)", VECTORS),
        ("contextual.js", "round.policy ? terms : halved(terms)", "halved(terms)", VECTORS),
        ("moments.js", "delta > 0 && delta < 1 && ", "delta > 0 && ", MOMENT_TERMS),
        ("moments.js", " || !short(context)) return false", ") return false", MOMENTS),
        ("moments.js", "const SQUARED = 4.5", "const SQUARED = 4", MOMENT_TERMS),
        (
            "moments.js",
            "ratio(sensitivity(terms) * bottom, top)",
            "ratio(bottom, top)",
            MOMENT_ROUNDS,
        ),
        ("moments.js", " && dot(x, x) <= resolution ** 2", "", MOMENT_ROUNDS),
        ("moments.js", "+ rounding * tail", "", MOMENTS),
        # what a round costs, and what a ledger allows
        ("two-servers.js", "sensitivity(terms) * scale[1]", "scale[1]", COSTS),
        ("moments.js", ": parse(terms.guarantee.epsilon));", ": [0n, 1n]);", MOMENT_ROUNDS),
        ("contextual.js", "(round && !round.policy ? 1n : SENSITIVITY)", "1n", VECTORS),
        ("tacit.js", "round.charged || !round.outcome);", "round.charged);", LEDGER),
        ("tacit.js", ".length < entry.participations", ".length <= entry.participations", LEDGER),
        ("tacit.js", "must(!beyond(others(entry), entry.epsilon)", "must(true", LEDGER),
        ("tacit.js", "parse(allowed)", "[1n, 1n]", LEDGER),
        (
            "tacit.js",
            "Object.values(entry.terms).filter(Boolean).map(",
            "Object.values(entry.terms).filter(Boolean).slice(0, 1).map(",
            LEDGER,
        ),
        ("tacit.js", "!beyond(ledger.entries.flatMap(others), own)", "true", LEDGER),
        (
            "tacit.js",
            "!beyond(ledger.entries.flatMap(others), own)",
            "!beyond(others(entry), own)",
            LEDGER,
        ),
        ("tacit.js", 'own === undefined ? "8" : own', 'own === undefined ? "80" : own', LEDGER),
        ("tacit.js", "above(plus(cost, total(rounds)), ", "above(total(rounds), ", LEDGER),
        ("tacit.js", "epsilon = least(epsilon, other.epsilon);", "", LEDGER),
        ("tacit.js", "Object.assign(entry.rounds, other.rounds);", "", LEDGER),
        ("tacit.js", "{ charged: true, levels: null", "{ levels: null", LEDGER),
        (
            "tacit.js",
            'checkRoom(ledger, entry, parse(one.cost), parse(one.delta ?? "0"), one);',
            "",
            LEDGER,
        ),
        ("tacit.js", "checkRoom(ledger, entry, round.cost, deltaOf(terms.guarantee));", "", LEDGER),
        ("tacit.js", "roundsOf(...ledger.entries).some(", "[].some(", LEDGER),
        ("tacit.js", "said.every((word) => word === 2)", "said.some((word) => word === 2)", LEDGER),
        ("tacit.js", "said.length === 2 && said.every", "said.every", LEDGER),
        (
            "tacit.js",
            "pair[1] * BigInt(participations)",
            "2n * pair[1] * BigInt(participations)",
            LEDGER,
        ),
        ("tacit.js", "delta: spell(deltaOf(terms.guarantee)),", 'delta: "0",', LEDGER),
        ("tacit.js", "(vain.map((round) => round.identity)).size < 3", "().size < 3", LEDGER),
        ("tacit.js", "must(!entry.withdrawn && ", "must(", LEDGER),
        ("copies.js", "ledger.own = lower(given(own), ownOf(ledger));", "", LEDGER),
        ("copies.js", 'known.charged ||= !!charged && known.outcome !== "refused";', "", LEDGER),
        ("copies.js", "charged: charged || !outcome", "charged", LEDGER),
        ("copies.js", '...(delta !== "0" && { delta })', "", LEDGER),
        ("copies.js", "delta: amount(delta)", 'delta: "0"', LEDGER),
        # whose terms and rounds they are
        ("tacit.js", "checkSuccessor(terms, next.terms);", "", LEDGER),
        (
            "tacit.js",
            "if (before) checkSuccessor(await readTerms(before.text), one.terms);",
            "",
            LEDGER,
        ),
        ("tacit.js", "must(copy.terms.digest === digest", "must(true", LEDGER),
    )
)
