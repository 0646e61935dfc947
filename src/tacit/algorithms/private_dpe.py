"""Private phased elimination where each participant tries several options (LZJ22 DP-DPE), live.

Participants of a phase try the same options, fit a parameter on their device and report it as
integers in a ball; its sum is released once per phase. One round serves all features, where
`private-pe` needs one per option of a design. The secret is everything that a participant observed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tacit import assumptions
from tacit.algorithms.builders import PEOPLE, WORLD
from tacit.algorithms.lazy_imports import (
    experiment,
    fitted,
    linear_options,
    mechanism,
    privacy,
    statistic_sums,
)
from tacit.algorithms.private_pe import FIRST, PHASES, FeaturedProblem, features_of
from tacit.algorithms.registry import algorithm
from tacit.contextual.fitted import RESOLUTION, most_plays
from tacit.errors import TacitError, integer
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.experiment import Experiment

TYPICAL = 1000  # participants of a round whose noise decides the size of the first phase
TRIALS = 2  # plays per feature, by default


@algorithm(
    "private-dpe",
    paper="LZJ22",
    trust=(TrustModel.SECURE_AGGREGATION, TrustModel.CENTRAL, TrustModel.TWO_SERVERS),
    guarantee="(ε, δ)-DP of everything that a participant observed",
    problem=FeaturedProblem,
    options=(
        *(name for name in WORLD if name != "rewards"),  # a linear instance has bits
        *PEOPLE,
        *("epsilon", "delta", "trust", "failure_probability", "plays"),
    ),
    defaults={"instance": "linear", "failure_probability": 0.049},
)
def private_dpe(problem: FeaturedProblem) -> Experiment:
    """Fitted vectors under the requested trust model."""
    about, table = problem.privacy, features_of(problem)
    dimension = linear_options.with_intercept(table).shape[1]
    plays = integer("plays", problem.plays or TRIALS * dimension, at_least=1)
    if plays > (most := most_plays(dimension)):
        raise TacitError(f"plays is {plays}: must be at most {most}. Use fewer plays or features")
    how: dict[str, Any] = {
        "size": [dimension, RESOLUTION, about.levels or 1],
        "trust": about.trust,
        "target": about.target,
    }
    shared = TrustModel(about.trust).shares_noise
    if shared:
        how |= {"missing": about.dropout, "dishonest": about.corrupt}
    else:
        about.reject_losses("servers add all of the noise themselves", "corrupt")
    smallest = max(about.min_batch_size if shared else about.smallest, 2)
    make = statistic_sums.fit_sum
    noise = make(max(smallest, TYPICAL), **how).error(1).stated
    usual = math.ceil(FIRST * float(noise[0]))
    learner = fitted.FittedElimination(
        table,
        problem.horizon,
        plays=plays,
        first=max(smallest, min(usual, problem.horizon // PHASES)),
        smallest=smallest,
        failure_probability=problem.failure_probability,
    )
    guarantee = make(smallest, **how).guarantee
    assert guarantee is not None
    secret = assumptions.Protects(assumptions.Secret.FITTED_PARAMETER)
    status = privacy.status_of(guarantee.assuming(secret, assumptions.PublicMembership()))
    hidden = mechanism.PerRound(make, how, status, smallest)
    return experiment.Experiment.of(learner, hidden, problem.names)
