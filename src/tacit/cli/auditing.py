"""The command `audit`: attack the noise that devices draw, to refute a guarantee."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

from tacit.cli.accounting import (
    SHOWN,
    NoiseKind,
    SensitivityOption,
    in_output,
    reject_given,
    target_of,
    whole,
)
from tacit.cli.live_audit import LiveAuditOptions, audit_live
from tacit.cli.options import Json, given_options, grouped, option
from tacit.cli.printing import show
from tacit.errors import TacitError, integer, positive

SamplesOption = Annotated[
    float | None, option("Samples for each of two neighbouring inputs (with --noise).")
]

SecondsOption = Annotated[
    float | None, option("Approximate duration (with --algorithm or --live).")
]

FalsePositiveOption = Annotated[
    float | None, option("False positive rate: how often an honest device may be reported.")
]


class AuditedAggregation(StrEnum):
    """Aggregations that an audit can run rounds through."""

    masking = "masking"
    two_servers = "two-servers"
    mixing = "mixing"
    verified = "verified"


@grouped
def audit(
    deployed: LiveAuditOptions,
    noise: Annotated[
        NoiseKind | None, option("Kind of noise, to audit calibrated noise.", "--noise")
    ] = None,
    algorithm: Annotated[
        str | None, option("Named algorithm, to audit it from devices to released sums.")
    ] = None,
    epsilon: Annotated[float | None, option("Claimed epsilon.")] = None,
    sensitivity: SensitivityOption = 1,
    delta: Annotated[float | None, option("Claimed delta; 0 for a pure guarantee.")] = None,
    trust: Annotated[str | None, option("Trust model, of algorithms that have a choice.")] = None,
    noise_factor: Annotated[
        float,
        option(
            "Factor of the drawn noise, not of the stated one; 0.5 shows that the audit "
            "detects too little noise."
        ),
    ] = 1.0,
    reuse_noise: Annotated[
        bool, option("Draw the noise once for all participants and rounds.", "--reuse-noise")
    ] = False,
    through: Annotated[
        AuditedAggregation | None, option("Run rounds through a real intermediary.")
    ] = None,
    samples: SamplesOption = None,
    seconds: SecondsOption = None,
    false_positive_rate: FalsePositiveOption = None,
    as_json: Json = False,
) -> None:
    """Attack the noise that devices draw: calibrated noise, or that of a whole algorithm. With
    --live, compare the noise that a deployed party releases with its stated distribution.

    An audit refutes guarantees; it cannot prove them.

    Examples: tacit audit --noise discrete-laplace --epsilon 1 --noise-factor 0.5;
    tacit audit --algorithm dist-dp-se --noise-factor 0.5 --seconds 5;
    tacit audit --live --trust local --config coordinator/party.toml
    """
    vain: dict[str, Any]
    if deployed.live:
        vain = {"--noise": noise, "--algorithm": algorithm, "--epsilon": epsilon, "--delta": delta}
        vain |= {"--through": through, "--samples": samples, "--reuse-noise": reuse_noise or None}
        vain |= {"--noise-factor": None if noise_factor == 1 else noise_factor}
        reject_given(vain, "not for --live")
        audit_live(deployed, trust, seconds, false_positive_rate, as_json)
        return
    reject_given(deployed.given, "for --live only")
    if (noise is None) == (algorithm is None):
        raise TacitError("give exactly one of --noise (with --epsilon), --algorithm and --live")
    if algorithm is not None:
        moved = None if sensitivity == 1 else sensitivity
        reject_given({"--samples": samples, "--sensitivity": moved}, "for --noise only")
        given = {"epsilon": epsilon, "delta": delta, "trust": trust}
        how: dict[str, Any] = {"noise_factor": noise_factor, "reuse": reuse_noise}
        how["through"] = through.value if through else None
        how |= given_options({"false_positive_rate": false_positive_rate, "seconds": seconds})
        _audit_algorithm(algorithm, given_options(given), how, as_json)
        return
    vain = {"--trust": trust, "--through": through, "--seconds": seconds}
    vain |= {"--false-positive-rate": false_positive_rate, "--reuse-noise": reuse_noise or None}
    reject_given(vain, "for --algorithm only")
    if noise is None or epsilon is None:
        raise TacitError("--noise needs the claimed --epsilon: give it")
    _audit_noise(noise, sensitivity, epsilon, delta or 0.0, noise_factor, samples, as_json)


def _audit_noise(
    noise: NoiseKind,
    sensitivity: float,
    epsilon: float,
    delta: float,
    factor: float,
    samples: float | None,
    as_json: bool,
) -> None:
    """Audit exact draws of calibrated noise; continuous noise is sampled, as no device draws it."""
    import numpy as np

    from tacit.noise import NoiseDistribution
    from tacit.privacy import audit as attack
    from tacit.privacy import calibrate as find

    scale = float(positive("noise factor", factor))
    stated = find(noise.value, whole(sensitivity), target_of(epsilon, delta))
    distribution = stated.distribution.scaled(scale)
    rng = np.random.default_rng()

    def outputs(x: Any, count: int) -> Any:
        return x + (
            distribution.draw(count)
            if isinstance(distribution, NoiseDistribution)
            else distribution.sample(rng, count)
        )

    count = integer("samples", 200_000 if samples is None else samples, at_least=1)
    result = attack(outputs, 0, sensitivity, count, delta=delta)
    record = {
        **asdict(result),
        "claimed": epsilon,
        "refuted": result.refutes(epsilon),
        "std": distribution.std,
        "guarantee": in_output(stated.guarantee, as_json),
    }
    if not as_json:  # distinguish the lower bound from the guarantee's epsilon
        record = {"epsilon_at_least": record.pop("epsilon"), **record}
    show(record, "audit", as_json, ("claimed",), SHOWN)


def _audit_algorithm(name: str, given: dict[str, Any], how: dict[str, Any], as_json: bool) -> None:
    from tacit.studies.audit import audit_algorithm

    found = audit_algorithm(name, given, **how)
    distribution, attack, claimed = found.residuals, found.attack, found.claimed_epsilon
    record = {
        "algorithm": name,
        "protocol": found.protocol,
        "participants": found.participants,
        "coordinates": found.coordinates,
        "claimed": found.claimed,
        "noise_factor": how["noise_factor"],
        "reused": how["reuse"],
        "through": how["through"] or "the ideal intermediary",
        "messages": "counts of ones, as there are too many bits" if found.counted else "as sent",
        "verdict_on_the_noise": "NOT the stated distribution"
        if distribution.caught
        else "the stated distribution",
        "p_value": distribution.p_value,
        "false_positive_rate": distribution.false_positive_rate,
        "worst_test": distribution.worst,
        "numbers": distribution.numbers,
        "rounds": distribution.rounds,
        "verdict_of_the_attack": "REFUTED" if attack.refutes(claimed) else "not refuted",
        "epsilon_at_least": attack.epsilon,
        "confidence": attack.confidence,
        "samples": attack.samples,
        "samples_to_refute": found.samples_to_refute,
        "caught": found.caught,
        "guarantee": in_output(found.guarantee, as_json),
    }
    show(record, f"audit of {name}", as_json, shown=SHOWN)
