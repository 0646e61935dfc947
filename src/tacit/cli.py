"""The command line: `tacit`.

Every command that prints a result prints it as a table for people, or with `--json` as one JSON object for programs. Errors are one line on
standard error and exit code 2; nothing is half done.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tacit import __version__, experiments
from tacit.checks import TacitError

if TYPE_CHECKING:
    from tacit.noise import NoiseLaw
    from tacit.privacy import ApproximateDP, PureDP

app = typer.Typer(
    help="Learn which option works best from people whose answers you never see: bandits under distributed differential privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Noise(StrEnum):
    """Kinds of noise."""

    discrete_laplace = "discrete-laplace"
    skellam = "skellam"
    discrete_gaussian = "discrete-gaussian"
    gaussian = "gaussian"
    binomial = "binomial"


class Method(StrEnum):
    """How noise is calibrated."""

    tight = "tight"
    paper = "paper"


class NormChoice(StrEnum):
    """How a vector's movement is bounded."""

    linf = "linf"
    l2 = "l2"


NoiseOption = Annotated[Noise, typer.Option("--noise", help="Kind of noise.")]
SensitivityOption = Annotated[float, typer.Option(help="The most that one person can move the sum (an integer for integer noise).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
EpsilonOption = Annotated[float | None, typer.Option(help="Epsilon of the guarantee.")]
DeltaOption = Annotated[float | None, typer.Option(help="Delta of the guarantee; 0 or none for a pure guarantee.")]


def main() -> None:
    """Entry point: what cannot be done as asked becomes one line on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except TacitError as error:
        _fail(str(error))
    except (ArithmeticError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        _fail(f"a number is too large or too small to compute with ({reason}): use values nearer to 1, or scale the query")
    except Exception as error:
        if not hasattr(error, "format_message"):  # the command line's own errors have it: an unknown option, a word for a number
            raise
        if len(sys.argv) < 2:
            print(error.format_message())
            raise SystemExit(2) from None
        _fail(f"{error.format_message()} Try: tacit --help")
    if isinstance(code, int) and code:
        raise SystemExit(code)


def _fail(message: str) -> NoReturn:
    print(f"tacit: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(2)


def _version(value: bool) -> None:
    if value:
        print(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    del version


@app.command()
def calibrate(
    noise: NoiseOption,
    epsilon: Annotated[float, typer.Option(help="Epsilon of the target.")],
    sensitivity: SensitivityOption = 1,
    delta: Annotated[float, typer.Option(help="Delta of the target; 0 for a pure guarantee.")] = 0.0,
    users: Annotated[float | None, typer.Option(help="How many people add the noise together; shares are worked out.")] = None,
    bits: Annotated[int | None, typer.Option(help="Binomial: noise bits per user; the least bias is found.")] = None,
    bias: Annotated[float | None, typer.Option(help="Binomial: bias of a noise bit; the least number is found.")] = None,
    dimension: Annotated[int, typer.Option(help="Number of coordinates of the sum.")] = 1,
    norm: Annotated[NormChoice, typer.Option(help="Norm in which sensitivity bounds a vector.")] = NormChoice.linf,
    method: Annotated[Method, typer.Option(help="Exact calibration, or the papers' closed form with its true guarantee.")] = Method.tight,
    as_json: JsonOption = False,
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
        record |= {"users": result.users, "share_variance": float(result.share.variance) if result.share else None}
    if result.bits_per_user is not None:
        record["bits_per_user"] = result.bits_per_user
    _show(record, f"least {result.kind} noise ({result.method})", as_json)


@app.command()
def privacy(
    noise: NoiseOption,
    sensitivity: SensitivityOption = 1,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    scale: Annotated[float | None, typer.Option(help="Scale of discrete Laplace noise.")] = None,
    variance: Annotated[float | None, typer.Option(help="Variance of Skellam or Gaussian noise.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Standard deviation of discrete or continuous Gaussian noise.")] = None,
    trials: Annotated[float | None, typer.Option(help="Number of binomial noise bits.")] = None,
    bias: Annotated[float, typer.Option(help="Bias of a binomial noise bit.")] = 0.5,
    arriving: Annotated[float, typer.Option(help="Fraction of the noise shares that arrive.")] = 1.0,
    batches: Annotated[int, typer.Option(help="Number of batches that the same person is in.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """What given noise truly guarantees: epsilon at a delta, or delta at an epsilon.

    Example: tacit privacy --noise skellam --variance 1388 --sensitivity 10 --delta 1e-5
    """
    from tacit.privacy import ComposedLoss, GaussianLoss, PrivacyLoss, dropout_loss, privacy_loss

    if (epsilon is None) == (delta is None):
        raise TacitError("give either --delta (to learn epsilon) or --epsilon (to learn delta), not both and not neither")
    loss: PrivacyLoss | ComposedLoss | GaussianLoss
    if noise is Noise.gaussian:
        width = _one_of({"sigma": sigma, "variance": variance}, noise)
        std = width["sigma"] if "sigma" in width else math.sqrt(_positive(width, "variance"))
        if arriving != 1 or batches != 1:
            raise TacitError("--arriving and --batches are for noise on devices: use discrete-gaussian or skellam")
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
    _show(record, f"privacy of {noise.value} noise", as_json)


@app.command()
def returning(
    epsilon: Annotated[float, typer.Option(help="Epsilon of one batch.")],
    delta: Annotated[float, typer.Option(help="Delta of the total.")],
    batches: Annotated[int, typer.Option(help="Number of batches that the same person is in, at most.")],
    batch_delta: Annotated[float, typer.Option(help="Delta of one batch; 0 for a pure guarantee.")] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """What a person has who is in several batches, by each way of accounting.

    Example: tacit returning --epsilon 0.1 --batches 100 --delta 1e-5
    """
    from tacit.privacy import returning_user

    result = returning_user(_target(epsilon, batch_delta), batches, delta)
    _show({**asdict(result), "best": result.best}, f"{batches} batches of epsilon {epsilon:g}", as_json)


@app.command()
def amplify(
    epsilon0: Annotated[float, typer.Option(help="Epsilon of one person's message.")],
    users: Annotated[float, typer.Option(help="Number of people whose messages are shuffled.")],
    delta: Annotated[float, typer.Option(help="Delta of the shuffled view.")],
    as_json: JsonOption = False,
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
        "worst of all inputs" if people <= 512 else "nobody else holds a one" if people <= 100_000 else None
    )
    _show(record, "amplification by shuffling (clones bound)", as_json)


@app.command()
def audit(
    noise: NoiseOption,
    epsilon: Annotated[float, typer.Option(help="Epsilon that is claimed.")],
    sensitivity: SensitivityOption = 1,
    delta: Annotated[float, typer.Option(help="Delta that is claimed; 0 for a pure guarantee.")] = 0.0,
    noise_factor: Annotated[
        float, typer.Option(help="Multiply the calibrated noise by this; 0.5 shows that halved noise is caught.")
    ] = 1.0,
    samples: Annotated[float, typer.Option(help="Samples for each of two neighbouring inputs.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    as_json: JsonOption = False,
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
    law = _scaled(find(noise.value, _whole(sensitivity), _target(epsilon, delta)).law, factor)
    rng = np.random.default_rng(generator_seed)
    result = attack(lambda x, count: x + law.sample(rng, count), 0, sensitivity, _count("samples", samples), delta=delta)
    record = {**asdict(result), "claimed": epsilon, "refuted": result.refutes(epsilon), "std": law.std, "seed": seed}
    _show(record, "audit", as_json)


@app.command()
def corrections(as_json: JsonOption = False) -> None:
    """Numbers in the papers that are wrong or loose, and the true ones, recomputed now."""
    from tacit.corrections import corrections as rows

    found = [asdict(row) for row in rows()]
    if as_json:
        print(json.dumps({"corrections": found}))
        return
    _table(
        "corrections to the papers",
        ["line", "what", "setting", "printed", "true"],
        [list(row.values()) for row in found],
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("demo-output"),
    as_json: JsonOption = False,
) -> None:
    """What the trust models cost at the same promise, in noise and in regret: two tables, two pictures."""
    from tacit import demo as demonstration

    rows = demonstration.noise_table()
    out.mkdir(parents=True, exist_ok=True)
    noise, regret = out / "noise.png", out / "regret.png"
    demonstration.draw(rows, noise)
    results = demonstration.regret_results()
    demonstration.draw_regret(results, regret)
    if as_json:
        summaries = {label: result.summary() for label, result in results.items()}
        print(json.dumps({"noise": rows, "regret": summaries, "pictures": [str(noise), str(regret)]}))
        return
    sizes = demonstration.SIZES
    names = dict.fromkeys(str(row["trust"]) for row in rows)
    body: list[list[Any]] = [[name, *(row["std"] for row in rows if row["trust"] == name)] for name in names]
    body.append(["(sampling error of a coin)", *(row["sampling_std"] for row in rows[: len(sizes)])])
    _table("standard deviation of the noise in the mean, by people in the batch", ["trust model", *(f"{n:,}" for n in sizes)], body)
    ordered = sorted(results.items(), key=lambda item: item[1].regret_mean)
    lost = [[label, r.regret_mean, r.regret_sem, r.mean("bits_per_user"), r.guarantee.split(":")[0]] for label, r in ordered]
    title = f"regret on one problem, {demonstration.HORIZON:,} users, {demonstration.RUNS} runs: what is lost while learning"
    _table(title, ["trust model", "regret", "± s.e.", "bits per user", "guarantee"], lost)
    print(f"pictures: {noise} {regret}")


def _target(epsilon: float, delta: float) -> PureDP | ApproximateDP:
    from tacit.privacy import ApproximateDP, PureDP

    return PureDP(epsilon) if delta == 0 else ApproximateDP(epsilon, delta)


def _law(noise: Noise, scale: float | None, variance: float | None, sigma: float | None, trials: float | None, bias: float) -> NoiseLaw:
    from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, Skellam

    if noise is Noise.discrete_laplace:
        return DiscreteLaplace(_one_of({"scale": scale}, noise)["scale"])
    if noise is Noise.skellam:
        return Skellam(_one_of({"variance": variance}, noise)["variance"])
    if noise is Noise.discrete_gaussian:
        given = _one_of({"sigma": sigma, "variance": variance}, noise)
        return DiscreteGaussian(given["sigma"] if "sigma" in given else math.sqrt(_positive(given, "variance")))
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


def _scaled(law: Any, factor: float) -> Any:
    """The same kind of noise with its standard deviation multiplied."""
    from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, Skellam
    from tacit.privacy import Gaussian

    match law:
        case DiscreteLaplace():
            return DiscreteLaplace(float(law.scale) * factor)
        case Skellam():
            return Skellam(float(law.variance) * factor**2)
        case DiscreteGaussian():
            return DiscreteGaussian(float(law.sigma) * factor)
        case Binomial():
            return Binomial(max(1, round(law.n * factor**2)), law.p)
    return Gaussian(law.sigma * factor)


def _parameters(law: Any) -> dict[str, Any]:
    """A law's own parameters, as plain numbers."""
    names = {"scale": "scale", "sigma": "sigma", "n": "trials", "p": "probability"}
    return {shown: _plain(getattr(law, name)) for name, shown in names.items() if hasattr(law, name)}


def _plain(value: Any) -> int | float:
    return int(value) if value == int(value) else float(value)


def _show(record: dict[str, Any], title: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({key: _finite(value) for key, value in record.items()}))
        return
    _table(title, None, [[key.replace("_", " "), value] for key, value in record.items() if value is not None])


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(title: str, headings: list[str] | None, rows: list[list[Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    table = Table(show_header=headings is not None, box=box.SIMPLE)
    for index, heading in enumerate(headings or ["", ""]):
        table.add_column(heading, justify="left" if index == 0 or headings is None or heading in ("what", "setting") else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console.print(f"[bold]{title}[/bold]")
    console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


for command in (experiments.simulate, experiments.compare, experiments.plan, experiments.reproduce, experiments.algorithms):
    app.command()(command)


if __name__ == "__main__":
    main()
