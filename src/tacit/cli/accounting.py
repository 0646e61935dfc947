"""Commands of privacy accounting: calibrate, privacy, compose, amplify, corrections.

Functions with annotated options; `tacit.cli` registers them as commands.
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

from tacit.cli.guarantee_kinds import (
    GuaranteeKind,
    check_orders,
    guarantee_numbers,
    one_guarantee,
    stated,
)
from tacit.cli.options import ConstantsChoice, Json, Whole, option
from tacit.cli.printing import print_json, print_table, show
from tacit.errors import TacitError, integer, positive

if TYPE_CHECKING:
    from tacit.noise import NoiseDistribution
    from tacit.privacy import ApproximateDP, Gaussian, Guarantee, PureDP


class NoiseKind(StrEnum):
    """Noise distributions."""

    discrete_laplace = "discrete-laplace"
    skellam = "skellam"
    discrete_gaussian = "discrete-gaussian"
    gaussian = "gaussian"
    binomial = "binomial"


class NormChoice(StrEnum):
    """The norm in which sensitivity bounds a vector."""

    linf = "linf"
    l2 = "l2"


# keys of records that hold numbers of guarantees: rounded up
ROUNDED_UP = (
    *("epsilon", "delta", "target_epsilon", "epsilon0", "randomized_response_epsilon"),
    *("exact", "renyi", "advanced", "best", "rho", "target_rho"),
)
NOISE_NEEDED = ("variance", "std", "sigma", "scale", "probability", "share_variance")
"""Keys of records that hold the least noise of a guarantee: less of it would give another one."""
SHOWN = ("epsilon_at_least",)  # keys that hold lower bounds: rounded down
FAIR = 0.5
WIDTHS = {
    NoiseKind.discrete_laplace: ("scale",),
    NoiseKind.skellam: ("variance",),
    NoiseKind.discrete_gaussian: ("sigma", "variance"),
    NoiseKind.gaussian: ("sigma", "variance"),
    NoiseKind.binomial: ("trials", "bias"),
}
NoiseOption = Annotated[NoiseKind, option("Kind of noise.", "--noise")]
ParticipationsOption = Annotated[
    int, option("How often one participant takes part, at most.", **Whole)
]
VarianceOption = Annotated[float | None, option("Variance of Skellam or Gaussian noise.")]
SigmaOption = Annotated[
    float | None, option("Standard deviation of discrete or continuous Gaussian noise.")
]
SensitivityOption = Annotated[
    float, option("Largest change of the sum by one participant (an integer for integer noise).")
]
EpsilonOption = Annotated[float | None, option("Epsilon of the guarantee.")]
KindOption = Annotated[
    GuaranteeKind, option("Kind of guarantee: pure, approximate, renyi (RDP) or zcdp.", "--as")
]
OrdersOption = Annotated[str | None, option("With --as renyi: orders, such as 2,4,8.")]
RhoOption = Annotated[float | None, option("With --as zcdp: rho.")]
DeltaOption = Annotated[
    float | None, option("Delta of the guarantee; 0 or none for a pure guarantee.")
]


def calibrate(
    noise: NoiseOption,
    epsilon: Annotated[
        float | None, option("Epsilon of the target; with --as renyi the divergence at --orders.")
    ] = None,
    sensitivity: SensitivityOption = 1,
    delta: Annotated[float, option("Delta of the target; 0 for a pure guarantee.")] = 0.0,
    kind: KindOption = GuaranteeKind.approximate,
    rho: RhoOption = None,
    orders: OrdersOption = None,
    participations: ParticipationsOption = 1,
    users: Annotated[
        float | None, option("Number of participants who add shares of the noise.")
    ] = None,
    bits: Annotated[
        int | None,
        option("Binomial: noise bits per participant; the least bias is found.", **Whole),
    ] = None,
    bias: Annotated[
        float | None, option("Binomial: bias of a noise bit; the least number is found.")
    ] = None,
    dimension: Annotated[int, option("Number of coordinates of the sum.", **Whole)] = 1,
    norm: Annotated[
        NormChoice, option("Norm in which sensitivity bounds a vector.")
    ] = NormChoice.linf,
    constants: Annotated[
        ConstantsChoice,
        option("Exact calibration, or the papers' closed form with its true guarantee."),
    ] = ConstantsChoice.tight,
    as_json: Json = False,
) -> None:
    """Find the least noise that gives a target guarantee.

    Examples: tacit calibrate --noise binomial --sensitivity 1 --epsilon 1 --delta 1e-5;
    tacit calibrate --noise discrete-gaussian --sensitivity 10 --as zcdp --rho 0.5
    """
    from tacit.privacy import NoiseBits
    from tacit.privacy import calibrate as find

    target = one_guarantee(kind, epsilon, delta, rho, orders)
    result = find(
        noise.value,
        whole(sensitivity),
        replace(target, participations=participations),
        constants=constants.value,
        users=None if users is None else integer("users", users, at_least=1),
        bits=NoiseBits(bits, bias),
        dimension=dimension,
        norm=norm.value,
    )
    record: dict[str, Any] = {
        "noise": result.kind,
        "constants": result.constants,
        "sensitivity": whole(sensitivity),
        "participations": participations,
        **guarantee_numbers(result.guarantee, as_json),
        "variance": float(result.distribution.variance),
        "std": result.distribution.std,
        **_parameters(result.distribution),
        "meets_target": result.meets_target,
        **({"target_epsilon": epsilon} if rho is None else {"target_rho": rho}),
        "guarantee": in_output(result.guarantee, as_json),
        "derivation": result.derivation,
    }
    if result.users is not None:
        record |= {
            "users": result.users,
            "share_variance": float(result.share.variance) if result.share else None,
        }
    if result.bits_per_user is not None:
        record["bits_per_user"] = result.bits_per_user
    title = f"least {result.kind} noise ({result.constants})"
    show(record, title, as_json, (*ROUNDED_UP, *NOISE_NEEDED))


def privacy(
    noise: NoiseOption,
    sensitivity: SensitivityOption = 1,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    scale: Annotated[float | None, option("Scale of discrete Laplace noise.")] = None,
    variance: VarianceOption = None,
    sigma: SigmaOption = None,
    trials: Annotated[float | None, option("Number of binomial noise bits.")] = None,
    bias: Annotated[float, option("Bias of a binomial noise bit.")] = FAIR,
    arriving: Annotated[float, option("Fraction of the noise shares that arrive.")] = 1.0,
    participations: ParticipationsOption = 1,
    kind: KindOption = GuaranteeKind.approximate,
    orders: OrdersOption = None,
    as_json: Json = False,
) -> None:
    """Compute the guarantee of given noise: epsilon at a delta, or delta at an epsilon; or the pure
    epsilon, the Rényi divergences, or the rho of zCDP.

    Examples: tacit privacy --noise skellam --variance 1388 --sensitivity 10 --delta 1e-5;
    tacit privacy --noise skellam --variance 1388 --sensitivity 10 --as renyi --orders 2,8
    """
    from tacit.assumptions import Accounting, Assumption, DistinctRounds, Method
    from tacit.privacy import (
        ComposedLoss,
        Gaussian,
        GaussianLoss,
        PrivacyLoss,
        ThreatModel,
        dropout_loss,
        privacy_loss,
    )

    biased = None if bias == FAIR else bias
    said = {"scale": scale, "variance": variance, "sigma": sigma, "trials": trials, "bias": biased}
    width = _width(noise, said)
    check_orders(kind, orders)
    if kind is not GuaranteeKind.approximate:
        vain = {"--epsilon": epsilon, "--arriving": None if arriving == 1 else arriving}
        reject_given(vain, f"not for --as {kind.value}")
        drawn = _gaussian_or_integer(noise, width, bias)
        found = stated(kind, drawn, whole(sensitivity), participations, orders)
        described = {"noise": noise.value, "sensitivity": whole(sensitivity)}
        _show_kind(found, drawn, described, delta, as_json)
        return
    if (epsilon is None) == (delta is None):
        raise TacitError(
            "give exactly one of --delta (to compute epsilon) and --epsilon (to compute delta)"
        )
    loss: PrivacyLoss | ComposedLoss | GaussianLoss
    distribution: NoiseDistribution | Gaussian
    if noise is NoiseKind.gaussian:
        std = _std(width)
        if arriving != 1 or participations != 1:
            raise TacitError(
                "--arriving and --participations need noise that devices draw: use "
                "discrete-gaussian or skellam"
            )
        distribution, loss = Gaussian(std), GaussianLoss(std, sensitivity)
        parameters: dict[str, Any] = {"sigma": std}
    else:
        distribution = _distribution(noise, width, bias)
        parameters = _parameters(distribution)
        moved = integer("sensitivity", sensitivity, at_least=1)
        single = (
            privacy_loss(distribution, moved)
            if arriving == 1
            else dropout_loss(distribution, arriving, moved)
        )
        times = integer("participations", participations, at_least=1)
        loss = single if times == 1 else ComposedLoss(((single, times),))
    if delta is not None:
        answer = {"epsilon": loss.epsilon(delta), "delta": delta}
    else:
        at = float(epsilon or 0.0)
        answer = {"epsilon": at, "delta": loss.delta(at)}
    assumed: list[Assumption] = []
    if arriving != 1:
        assumed += ThreatModel(dropout=1 - Fraction(str(arriving)), curious=0).assumptions()
    if participations > 1:
        assumed += [Accounting(Method.LOSS, participations), DistinctRounds()]
    assumptions = frozenset(assumed)
    guarantee = _guarantee(
        **answer, distribution=distribution, participations=participations, assumptions=assumptions
    )
    record = {
        "noise": noise.value,
        "sensitivity": whole(sensitivity),
        **answer,
        "variance": float(distribution.variance),
        "std": math.sqrt(float(distribution.variance)),
        **parameters,
        "arriving": arriving,
        "participations": participations,
        "guarantee": in_output(guarantee, as_json),
    }
    show(record, f"privacy of {noise.value} noise", as_json, ROUNDED_UP)


def compose(
    participations: ParticipationsOption,
    epsilon: Annotated[
        float | None,
        option("Epsilon of one participation; with --as renyi the divergence at --orders."),
    ] = None,
    delta: Annotated[float | None, option("Delta of the total.")] = None,
    batch_delta: Annotated[
        float, option("Delta of one participation; 0 for a pure guarantee.")
    ] = 0.0,
    kind: KindOption = GuaranteeKind.approximate,
    rho: RhoOption = None,
    orders: OrdersOption = None,
    as_json: Json = False,
) -> None:
    """Compose the guarantees of several participations, by each method of accounting.

    Examples: tacit compose --epsilon 0.1 --participations 100 --delta 1e-5;
    tacit compose --as zcdp --rho 0.01 --participations 10 --delta 1e-6
    """
    from tacit.assumptions import DistinctRounds, PrivateMessages
    from tacit.privacy import ApproximateDP, compose_participations, repeat

    single = one_guarantee(kind, epsilon, batch_delta, rho, orders)
    if kind is not GuaranteeKind.approximate and not isinstance(single, ApproximateDP):
        title = f"{participations} participations of {single.short}"
        _show_kind(repeat(single, participations), None, {}, delta, as_json, title)
        return
    if delta is None or epsilon is None:
        raise TacitError("--delta of the total is missing: give it, such as 1e-6, or use --as pure")
    result = compose_participations(target_of(epsilon, batch_delta), participations, delta)
    alone = PrivateMessages(epsilon, batch_delta)
    assumed = frozenset({alone, result.accounting, DistinctRounds()})
    guarantee = _guarantee(result.best, delta, participations=participations, assumptions=assumed)
    record = {**asdict(result), "best": result.best, "guarantee": in_output(guarantee, as_json)}
    show(record, f"{participations} participations of epsilon {epsilon}", as_json, ROUNDED_UP)


def amplify(
    epsilon0: Annotated[float, option("Epsilon of one participant's message.")],
    users: Annotated[float, option("Number of participants whose messages are shuffled.")],
    delta: Annotated[float, option("Delta of the shuffled view.")],
    as_json: Json = False,
) -> None:
    """Compute amplification by shuffling, for any local randomizer and for randomized response.

    Example: tacit amplify --epsilon0 1 --users 10000 --delta 1e-6
    """
    from tacit.assumptions import LocallyPrivateMessages
    from tacit.privacy import Clones, RandomizedResponse, ThreatModel, View

    participants = integer("users", users, at_least=1)
    record: dict[str, Any] = {
        "epsilon0": epsilon0,
        "users": participants,
        "delta": delta,
        "epsilon": Clones(epsilon0, participants).epsilon(delta),
        **dict.fromkeys(("randomized_response_epsilon", "randomized_response_inputs")),
    }
    if participants <= 100_000:
        ones, inputs = (None, "worst of all") if participants <= 512 else (0, "all others are zero")
        exact = RandomizedResponse(epsilon0, participants).epsilon(delta, ones=ones)
        record |= {"randomized_response_epsilon": exact, "randomized_response_inputs": inputs}
    assumed = frozenset({LocallyPrivateMessages(epsilon0), *ThreatModel(curious=0).assumptions()})
    guarantee = _guarantee(record["epsilon"], delta, view=View.SHUFFLED, assumptions=assumed)
    record["guarantee"] = in_output(guarantee, as_json)
    show(record, "amplification by shuffling (clones bound)", as_json, ROUNDED_UP)


def corrections(as_json: Json = False) -> None:
    """List numbers in the papers that are wrong or loose, and the true ones, recomputed now."""
    from tacit.papers.corrections import GuaranteeCorrection
    from tacit.papers.corrections import corrections as recomputed
    from tacit.rounding import up

    found = list(recomputed())
    if as_json:
        print_json({"corrections": [asdict(row) for row in found]})
        return
    shown = [
        replace(row, true=float(up(row.true))) if isinstance(row, GuaranteeCorrection) else row
        for row in found
    ]
    print_table(
        "corrections to the papers, by line of docs/explanation/corrections.md",
        ["line", "what", "setting", "printed", "true"],
        [list(vars(row).values()) for row in shown],
    )


def reject_given(options: dict[str, Any], reason: str) -> None:
    """Reject options that have a value although they do not apply."""
    for name, value in options.items():
        if value is not None:
            raise TacitError(f"{name} is {value}, but it is {reason}: leave it out")


def target_of(epsilon: float, delta: float) -> PureDP | ApproximateDP:
    """The pure guarantee if delta is 0, the approximate one otherwise."""
    from tacit.privacy import ApproximateDP, PureDP

    return PureDP(epsilon) if delta == 0 else ApproximateDP(epsilon, delta)


def _show_kind(
    guarantee: Guarantee,
    distribution: NoiseDistribution | Gaussian | None,
    about: dict[str, Any],
    delta: float | None,
    as_json: bool,
    title: str = "",
) -> None:
    """Print a pure, Rényi or concentrated guarantee, and the (ε, δ) that it implies."""
    spread = {} if distribution is None else {"variance": float(distribution.variance)}
    record = {**about, **guarantee_numbers(guarantee, as_json, delta), **spread}
    record |= {} if distribution is None else _parameters(distribution)
    record |= {
        "participations": guarantee.participations,
        "guarantee": in_output(guarantee, as_json),
    }
    show(record, title or f"privacy of {about['noise']} noise", as_json, ROUNDED_UP)


def _guarantee(
    epsilon: float,
    delta: float,
    distribution: NoiseDistribution | Gaussian | None = None,
    **about: Any,
) -> PureDP | ApproximateDP | None:
    """The computed guarantee, with the arithmetic of its noise if known; None if it guarantees
    nothing.
    """
    from tacit.privacy import state_drawn_arithmetic

    if not math.isfinite(epsilon) or delta >= 1 or epsilon == delta == 0:
        return None
    made = replace(target_of(epsilon, delta), **about)
    return made if distribution is None else state_drawn_arithmetic(made, distribution)


def in_output(guarantee: Guarantee | None, as_json: bool) -> dict[str, Any] | str | None:
    """The guarantee as data or as a sentence."""
    if guarantee is None:
        return None
    return guarantee.to_dict() if as_json else str(guarantee)


def _width(noise: NoiseKind, said: dict[str, float | None]) -> dict[str, float]:
    """The parameter that determines the width of this noise; parameters of other noise are
    rejected.
    """
    own = WIDTHS[noise]
    vain = {f"--{name}": value for name, value in said.items() if name not in own}
    has = " or ".join(f"--{name}" for name in own)
    reject_given(vain, f"not for {noise.value} noise, which has {has}")
    needed = [name for name in own if name != "bias"]
    given = {name: value for name in needed if (value := said[name]) is not None}
    if len(given) != 1:
        wanted = " or ".join(f"--{name}" for name in needed)
        one = "one of " if len(needed) > 1 else ""
        raise TacitError(f"{noise.value} noise needs {one}{wanted}: give it with a number")
    return given


def _gaussian_or_integer(
    noise: NoiseKind, width: dict[str, float], bias: float
) -> NoiseDistribution | Gaussian:
    from tacit.privacy import Gaussian

    if noise is NoiseKind.gaussian:
        return Gaussian(_std(width))
    return _distribution(noise, width, bias)


def _distribution(noise: NoiseKind, width: dict[str, float], bias: float) -> NoiseDistribution:
    from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, Skellam

    if noise is NoiseKind.discrete_laplace:
        return DiscreteLaplace(width["scale"])
    if noise is NoiseKind.skellam:
        return Skellam(width["variance"])
    if noise is NoiseKind.discrete_gaussian:
        return DiscreteGaussian(_std(width))
    return Binomial(integer("trials", width["trials"], at_least=1), bias)


def _std(width: dict[str, float]) -> float:
    return (
        width["sigma"] if "sigma" in width else math.sqrt(positive("variance", width["variance"]))
    )


def whole(value: float) -> int | float:
    """The value as an integer, if it is one."""
    return int(value) if math.isfinite(value) and value == int(value) else value


def _parameters(distribution: Any) -> dict[str, Any]:
    """The parameters of a distribution as plain numbers."""
    names = {"scale": "scale", "sigma": "sigma", "n": "trials", "p": "probability"}
    own = {entry.name for entry in fields(distribution)}
    return {
        shown: whole(float(getattr(distribution, name)))
        for name, shown in names.items()
        if name in own
    }
