"""tacit: bandit experiments under differential privacy without a trusted server.

A learner (`bandits`) decides which options participants try, a protocol (`protocols`) makes their
answers private, and a guarantee (`privacy`) states what that achieves. An `Experiment` joins the
three. `__all__` lists the public API. Importing `tacit` is cheap: each name loads its module when
it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.version import __version__

_HOMES = {
    "algorithms": (
        "ArmsProblem",
        "ContextualProblem",
        "LinearProblem",
        "SilosProblem",
        "algorithm",
        "option",
    ),
    "algorithms.registry": ("begin",),
    "bandits.contract": ("Learner",),
    "errors": ("TacitError",),
    "environments": ("Environment", "FromFunction", "OwnSilos", "from_frame", "read_table"),
    "types": ("Arm", "Estimate", "Round"),
    "experiment": ("Experiment", "load", "save"),
    "noise": ("Binomial", "DiscreteGaussian", "DiscreteLaplace", "NoiseDistribution", "Skellam"),
    "privacy": (
        *("ApproximateDP", "Guarantee", "Guaranteed", "KnownPerRound", "NonPrivate", "PureDP"),
        *("calibrate", "privacy_of"),
    ),
    "protocols.contract": ("Protocol", "SumProtocol"),
    "protocols.mechanism": ("PerRound",),
    "simulation": ("Result", "Results", "compare", "simulate"),
    "simulation.sweeping": ("sweep",),
    "trust": ("TrustModel",),
    "studies.plan": ("plan",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ApproximateDP",
    "Arm",
    "ArmsProblem",
    "Binomial",
    "ContextualProblem",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Environment",
    "Estimate",
    "Experiment",
    "FromFunction",
    "Guarantee",
    "Guaranteed",
    "KnownPerRound",
    "Learner",
    "LinearProblem",
    "NoiseDistribution",
    "NonPrivate",
    "OwnSilos",
    "PerRound",
    "Protocol",
    "PureDP",
    "Result",
    "Results",
    "Round",
    "SilosProblem",
    "Skellam",
    "SumProtocol",
    "TacitError",
    "TrustModel",
    "__version__",
    "algorithm",
    "algorithms",
    "begin",
    "calibrate",
    "compare",
    "from_frame",
    "load",
    "option",
    "plan",
    "privacy_of",
    "read_table",
    "save",
    "simulate",
    "sweep",
]

if TYPE_CHECKING:
    from tacit.algorithms import (
        ArmsProblem,
        ContextualProblem,
        LinearProblem,
        SilosProblem,
        algorithm,
        option,
    )
    from tacit.algorithms.registry import begin
    from tacit.bandits.contract import Learner
    from tacit.environments import Environment, FromFunction, OwnSilos, from_frame, read_table
    from tacit.errors import TacitError
    from tacit.experiment import Experiment, load, save
    from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam
    from tacit.privacy import (
        ApproximateDP,
        Guarantee,
        Guaranteed,
        KnownPerRound,
        NonPrivate,
        PureDP,
        calibrate,
        privacy_of,
    )
    from tacit.protocols.contract import Protocol, SumProtocol
    from tacit.protocols.mechanism import PerRound
    from tacit.simulation import Result, Results, compare, simulate
    from tacit.simulation.sweeping import sweep
    from tacit.studies.plan import plan
    from tacit.trust import TrustModel
    from tacit.types import Arm, Estimate, Round


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"tacit.{_HOME_OF[name]}"), name)
    try:
        return import_module(f"tacit.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"tacit.{name}":
            raise
        raise AttributeError(f"module 'tacit' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return [*__all__, *globals()]
