"""tacit: bandit experiments under differential privacy without a trusted server.

A learner (`bandits`) decides which options participants try, a protocol (`protocols`) makes their
answers private, and a guarantee (`privacy`) states what that achieves. An `Experiment` joins the
three. `__all__` lists the public API. Importing `tacit` is cheap: each name loads its module when
it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.version import __version__ as __version__

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

__all__ = sorted([*_HOME_OF, "__version__", "algorithms"])

if TYPE_CHECKING:
    from tacit.algorithms import ArmsProblem as ArmsProblem
    from tacit.algorithms import ContextualProblem as ContextualProblem
    from tacit.algorithms import LinearProblem as LinearProblem
    from tacit.algorithms import SilosProblem as SilosProblem
    from tacit.algorithms import algorithm as algorithm
    from tacit.algorithms import option as option
    from tacit.algorithms.registry import begin as begin
    from tacit.bandits.contract import Learner as Learner
    from tacit.environments import Environment as Environment
    from tacit.environments import FromFunction as FromFunction
    from tacit.environments import OwnSilos as OwnSilos
    from tacit.environments import from_frame as from_frame
    from tacit.environments import read_table as read_table
    from tacit.errors import TacitError as TacitError
    from tacit.experiment import Experiment as Experiment
    from tacit.experiment import load as load
    from tacit.experiment import save as save
    from tacit.noise import Binomial as Binomial
    from tacit.noise import DiscreteGaussian as DiscreteGaussian
    from tacit.noise import DiscreteLaplace as DiscreteLaplace
    from tacit.noise import NoiseDistribution as NoiseDistribution
    from tacit.noise import Skellam as Skellam
    from tacit.privacy import ApproximateDP as ApproximateDP
    from tacit.privacy import Guarantee as Guarantee
    from tacit.privacy import Guaranteed as Guaranteed
    from tacit.privacy import KnownPerRound as KnownPerRound
    from tacit.privacy import NonPrivate as NonPrivate
    from tacit.privacy import PureDP as PureDP
    from tacit.privacy import calibrate as calibrate
    from tacit.privacy import privacy_of as privacy_of
    from tacit.protocols.contract import Protocol as Protocol
    from tacit.protocols.contract import SumProtocol as SumProtocol
    from tacit.protocols.mechanism import PerRound as PerRound
    from tacit.simulation import Result as Result
    from tacit.simulation import Results as Results
    from tacit.simulation import compare as compare
    from tacit.simulation import simulate as simulate
    from tacit.simulation.sweeping import sweep as sweep
    from tacit.studies.plan import plan as plan
    from tacit.trust import TrustModel as TrustModel
    from tacit.types import Arm as Arm
    from tacit.types import Estimate as Estimate
    from tacit.types import Round as Round


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
