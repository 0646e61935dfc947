"""The commands that compute promises: calibrate, privacy, returning, amplify, audit, corrections.

Plain functions with annotated options; `tacit.cli` hangs them on the command line.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.checks import TacitError
from tacit.cli.options import Json, SettingChoice
from tacit.cli.printing import print_json, show, table

if TYPE_CHECKING:
    from tacit.noise import NoiseLaw
    from tacit.privacy import ApproximateDP, PureDP


class Noise(StrEnum):
    """Kinds of noise."""

    discrete_laplace = "discrete-laplace"
    skellam = "skellam"
    discrete_gaussian = "discrete-gaussian"
    gaussian = "gaussian"
    binomial = "binomial"


class NormChoice(StrEnum):
    """How a vector's movement is bounded."""

    linf = "linf"
    l2 = "l2"


NoiseOption = Annotated[Noise, typer.Option("--noise", help="Kind of noise.")]
SensitivityOption = Annotated[
    float,
    typer.Option(help="The most that one person can move the sum (an integer for integer noise)."),
]
EpsilonOption = Annotated[float | None, typer.Option(help="Epsilon of the guarantee.")]
DeltaOption = Annotated[
    float | None, typer.Option(help="Delta of the guarantee; 0 or none for a pure guarantee.")
]


def calibrate(
    noise: NoiseOption,
    epsilon: Annotated[float, typer.Option(help="Epsilon of the target.")],
    sensitivity: SensitivityOption = 1,
    delta: Annotated[
        float, typer.Option(help="Delta of the target; 0 for a pure guarantee.")
    ] = 0.0,
    users: Annotated[
        float | None,
        typer.Option(help="How many people add the noise together; shares are worked out."),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="Binomial: noise bits per user; the least bias is found.")
    ] = None,
    bias: Annotated[
        float | None, typer.Option(help="Binomial: bias of a noise bit; the least number is found.")
    ] = None,
    dimension: Annotated[int, typer.Option(help="Number of coordinates of the sum.")] = 1,
    norm: Annotated[
        NormChoice, typer.Option(help="Norm in which sensitivity bounds a vector.")
    ] = NormChoice.linf,
    method: Annotated[
        SettingChoice,
        typer.Option(help="Exact calibration, or the papers' closed form with its true guarantee."),
    ] = SettingChoice.tight,
    as_json: Json = False,
) -> None:
    """The least noise that gives a target guarantee.

    Example: tacit calibrate --noise binomial --sensitivity 1 --epsilon 1 --delta 1e-5
    """
    from tacit.privacy import calibrate as find

    result = find(
        noise.value,
        _whole(sensitivity),
        _target(epsilon, delta),
        method=method.value,
        users=None if users is None else _count("users", users),
        bits=bits,
        bias=bias,
        dimension=dimension,
        norm=norm.value,
    )
    record: dict[str, Any] = {
        "noise": result.kind,
        "method": result.method,
        "sensitivity": _whole(sensitivity),
        "epsilon": result.epsilon,
        "delta": result.delta,
        "variance": float(result.law.variance),
        "std": result.law.std,
        **_parameters(result.law),
        "meets_target": result.meets_target,
        "target_epsilon": epsilon,
        "guarantee": str(result.guarantee),
        "derivation": result.derivation,
    }
    if result.users is not None:
        record |= {
            "users": result.users,
            "share_variance": float(result.share.variance) if result.share else None,
        }
    if result.bits_per_user is not None:
        record["bits_per_user"] = result.bits_per_user
    show(record, f"least {result.kind} noise ({result.method})", as_json)


def privacy(
    noise: NoiseOption,
    sensitivity: SensitivityOption = 1,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    scale: Annotated[float | None, typer.Option(help="Scale of discrete Laplace noise.")] = None,
    variance: Annotated[
        float | None, typer.Option(help="Variance of Skellam or Gaussian noise.")
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Standard deviation of discrete or continuous Gaussian noise."),
    ] = None,
    trials: Annotated[float | None, typer.Option(help="Number of binomial noise bits.")] = None,
    bias: Annotated[float, typer.Option(help="Bias of a binomial noise bit.")] = 0.5,
    arriving: Annotated[
        float, typer.Option(help="Fraction of the noise shares that arrive.")
    ] = 1.0,
    batches: Annotated[int, typer.Option(help="Number of batches that the same person is in.")] = 1,
    as_json: Json = False,
) -> None:
    """What given noise truly guarantees: epsilon at a delta, or delta at an epsilon.

    Example: tacit privacy --noise skellam --variance 1388 --sensitivity 10 --delta 1e-5
    """
    from tacit.privacy import ComposedLoss, GaussianLoss, PrivacyLoss, dropout_loss, privacy_loss

    if (epsilon is None) == (delta is None):
        raise TacitError(
            "give either --delta (to learn epsilon) or --epsilon (to learn delta), not both and "
            "not neither"
        )
    loss: PrivacyLoss | ComposedLoss | GaussianLoss
    if noise is Noise.gaussian:
        width = _one_of({"sigma": sigma, "variance": variance}, noise)
        std = width["sigma"] if "sigma" in width else math.sqrt(_positive(width, "variance"))
        if arriving != 1 or batches != 1:
            raise TacitError(
                "--arriving and --batches are for noise on devices: use discrete-gaussian or "
                "skellam"
            )
        law_variance, loss = std * std, GaussianLoss(std, sensitivity)
        parameters: dict[str, Any] = {"sigma": std}
    else:
        law = _law(noise, scale, variance, sigma, trials, bias)
        law_variance, parameters = float(law.variance), _parameters(law)
        moved = _count("sensitivity", sensitivity)
        single = privacy_loss(law, moved) if arriving == 1 else dropout_loss(law, arriving, moved)
        loss = single if batches == 1 else ComposedLoss(((single, _count("batches", batches)),))
    if delta is not None:
        answer = {"epsilon": loss.epsilon(delta), "delta": delta}
    else:
        at = float(epsilon or 0.0)
        answer = {"epsilon": at, "delta": loss.delta(at)}
    record = {
        "noise": noise.value,
        "sensitivity": _whole(sensitivity),
        **answer,
        "variance": law_variance,
        "std": math.sqrt(law_variance),
        **parameters,
        "arriving": arriving,
        "batches": batches,
        "neighbours": "replacing one person's data",
        "view": "whoever sees the noisy sum",
    }
    show(record, f"privacy of {noise.value} noise", as_json)


def returning(
    epsilon: Annotated[float, typer.Option(help="Epsilon of one batch.")],
    delta: Annotated[float, typer.Option(help="Delta of the total.")],
    batches: Annotated[
        int, typer.Option(help="Number of batches that the same person is in, at most.")
    ],
    batch_delta: Annotated[
        float, typer.Option(help="Delta of one batch; 0 for a pure guarantee.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """What a person has who is in several batches, by each way of accounting.

    Example: tacit returning --epsilon 0.1 --batches 100 --delta 1e-5
    """
    from tacit.privacy import returning_user

    result = returning_user(_target(epsilon, batch_delta), batches, delta)
    show(
        {**asdict(result), "best": result.best},
        f"{batches} batches of epsilon {epsilon:g}",
        as_json,
    )


def amplify(
    epsilon0: Annotated[float, typer.Option(help="Epsilon of one person's message.")],
    users: Annotated[float, typer.Option(help="Number of people whose messages are shuffled.")],
    delta: Annotated[float, typer.Option(help="Delta of the shuffled view.")],
    as_json: Json = False,
) -> None:
    """What shuffling adds to a local guarantee, for any randomizer and for randomized response.

    Example: tacit amplify --epsilon0 1 --users 10000 --delta 1e-6
    """
    from tacit.privacy import Clones, RandomizedResponse

    people = _count("users", users)
    record: dict[str, Any] = {
        "epsilon0": epsilon0,
        "users": people,
        "delta": delta,
        "epsilon": Clones(epsilon0, people).epsilon(delta),
    }
    record["randomized_response_epsilon"] = (
        RandomizedResponse(epsilon0, people).epsilon(delta)
        if people <= 512
        else RandomizedResponse(epsilon0, people).epsilon(delta, ones=0)
        if people <= 100_000
        else None
    )
    record["randomized_response_inputs"] = (
        "worst of all inputs"
        if people <= 512
        else "nobody else holds a one"
        if people <= 100_000
        else None
    )
    show(record, "amplification by shuffling (clones bound)", as_json)


def audit(
    noise: NoiseOption,
    epsilon: Annotated[float, typer.Option(help="Epsilon that is claimed.")],
    sensitivity: SensitivityOption = 1,
    delta: Annotated[
        float, typer.Option(help="Delta that is claimed; 0 for a pure guarantee.")
    ] = 0.0,
    noise_factor: Annotated[
        float,
        typer.Option(
            help="Multiply the calibrated noise by this; 0.5 shows that halved noise is caught."
        ),
    ] = 1.0,
    samples: Annotated[
        float, typer.Option(help="Samples for each of two neighbouring inputs.")
    ] = 200_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    as_json: Json = False,
) -> None:
    """Attack calibrated noise: a lower confidence bound on its epsilon, from samples.

    Example: tacit audit --noise discrete-laplace --epsilon 1 --noise-factor 0.5
    """
    import numpy as np

    from tacit.checks import integer
    from tacit.privacy import audit as attack
    from tacit.privacy import calibrate as find

    factor = _positive({"noise factor": noise_factor}, "noise factor")
    generator_seed = integer("seed", seed, at_least=0)
    law = find(noise.value, _whole(sensitivity), _target(epsilon, delta)).law.scaled(factor)
    rng = np.random.default_rng(generator_seed)
    result = attack(
        lambda x, count: x + law.sample(rng, count),
        0,
        sensitivity,
        _count("samples", samples),
        delta=delta,
    )
    record = {
        **asdict(result),
        "claimed": epsilon,
        "refuted": result.refutes(epsilon),
        "std": law.std,
        "seed": seed,
    }
    show(record, "audit", as_json)


def corrections(as_json: Json = False) -> None:
    """Numbers in the papers that are wrong or loose, and the true ones, recomputed now."""
    from tacit.studies.corrections import corrections as rows

    found = [asdict(row) for row in rows()]
    if as_json:
        print_json({"corrections": found})
        return
    table(
        "corrections to the papers",
        ["line", "what", "setting", "printed", "true"],
        [list(row.values()) for row in found],
    )


def _target(epsilon: float, delta: float) -> PureDP | ApproximateDP:
    from tacit.privacy import ApproximateDP, PureDP

    return PureDP(epsilon) if delta == 0 else ApproximateDP(epsilon, delta)


def _law(
    noise: Noise,
    scale: float | None,
    variance: float | None,
    sigma: float | None,
    trials: float | None,
    bias: float,
) -> NoiseLaw:
    from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, Skellam

    if noise is Noise.discrete_laplace:
        return DiscreteLaplace(_one_of({"scale": scale}, noise)["scale"])
    if noise is Noise.skellam:
        return Skellam(_one_of({"variance": variance}, noise)["variance"])
    if noise is Noise.discrete_gaussian:
        given = _one_of({"sigma": sigma, "variance": variance}, noise)
        return DiscreteGaussian(
            given["sigma"] if "sigma" in given else math.sqrt(_positive(given, "variance"))
        )
    return Binomial(_count("trials", _one_of({"trials": trials}, noise)["trials"]), bias)


def _one_of(options: dict[str, float | None], noise: Noise) -> dict[str, float]:
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) != 1:
        wanted = " or ".join(f"--{name}" for name in options)
        raise TacitError(f"{noise.value} noise needs exactly one of {wanted}")
    return given


def _positive(given: dict[str, float], name: str) -> float:
    from tacit.checks import positive

    return float(positive(name, given[name]))


def _count(name: str, value: float) -> int:
    from tacit.checks import integer

    return integer(name, value, at_least=1)


def _whole(value: float) -> int | float:
    return int(value) if math.isfinite(value) and value == int(value) else value


def _parameters(law: Any) -> dict[str, Any]:
    """A law's own parameters, as plain numbers."""
    names = {"scale": "scale", "sigma": "sigma", "n": "trials", "p": "probability"}
    return {
        shown: _plain(getattr(law, name)) for name, shown in names.items() if hasattr(law, name)
    }


def _plain(value: Any) -> int | float:
    return int(value) if value == int(value) else float(value)
