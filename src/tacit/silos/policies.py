"""A silo's policy: its messages, its checks against the terms, and decisions by it.

Silos are lazy: decisions depend on released sums only, and a record changes nothing until it is
part of a released row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np

from tacit.bandits.contextual import moments
from tacit.bandits.contextual.linucb import LinUCB, LinUCBPolicy
from tacit.errors import Rejected, TacitError, require
from tacit.silos.context import ContextSpec
from tacit.silos.exported import ExportedPolicy
from tacit.types import Floats, frozen

_FIXED = ("lazy", "clip", "scaled", "weight", "constant", "shrink")


@dataclass(frozen=True)
class Proposal:
    """The proposed action, with the estimated mean reward and the confidence width of all."""

    action: int
    features: Floats
    estimates: Floats
    widths: Floats


def encode_policy(policy: LinUCBPolicy) -> bytes:
    """A policy as JSON; numbers survive exactly."""
    return json.dumps(asdict(policy), allow_nan=False).encode()


def decode_policy(data: bytes, template: LinUCBPolicy, steps: int) -> LinUCBPolicy:
    """A policy of the terms whose first one is `template`; anything else raises `Rejected`.

    What decides the sensitivity of a silo's sums must be as in the terms. No policy of them has
    more than `steps` radii; one of many small values would need much more memory than its text.
    """
    size = len(template.bias)
    values, most = _count_values(data), 2 * size * (size + 2) + steps + 4 * len(fields(template))
    require(values <= most, "number of values of the policy", values, f"at most {most}", Rejected)
    try:
        entries = json.loads(data)
        names = {one.name for one in fields(LinUCBPolicy)}
        if not isinstance(entries, dict) or set(entries) != names:
            raise Rejected("policy has other fields than a policy of this version")
        policy = LinUCBPolicy(**{name: frozen(value) for name, value in entries.items()})
        _check(policy, template)
    except (ValueError, TypeError, AttributeError, RecursionError) as problem:
        if isinstance(problem, TacitError):
            raise
        raise Rejected(f"policy is invalid ({problem!r})") from None
    return policy


def _count_values(document: bytes) -> int:
    """At least the number of values of a JSON document, without the first."""
    return sum(document.count(mark) for mark in (b",", b"[", b"{"))


def _check(policy: LinUCBPolicy, template: LinUCBPolicy) -> None:
    for name in _FIXED:
        found, wanted = vars(policy)[name], vars(template)[name]
        if type(found) is not type(wanted) or found != wanted:
            raise Rejected(f"{name} of the policy is {found}: must be {wanted}, as in the terms")
    size = len(template.bias)
    gram = np.array(policy.gram, dtype=float)
    square = [gram] if policy.covariance is None else [gram, np.array(policy.covariance)]
    numbers = [np.array(policy.bias), np.array(policy.radii), np.array([policy.shift]), *square]
    shaped = len(policy.bias) == size and all(one.shape == (size, size) for one in square)
    if not shaped or not policy.radii or not all(np.isfinite(one).all() for one in numbers):
        raise Rejected(f"policy has not {size} features, no steps, or numbers that are not finite")
    if np.linalg.eigvalsh((gram + gram.T) / 2)[0] <= 0:
        raise Rejected("Gram matrix of the policy is not positive definite")


class PolicyActor:
    """Decisions by one policy, without state: the caller counts them."""

    def __init__(self, policy: LinUCBPolicy) -> None:
        self.policy = policy
        self._actor = LinUCB(policy)

    def propose(self, table: Floats, position: int) -> Proposal:
        """The decision at this position under the policy, for features actions × dimension."""
        actor = self._actor
        actor.step = min(position, actor.steps - 1)
        features = actor.as_features(table[None])
        values, widths = actor.estimates(features)
        bounds = values + widths
        turn = self.policy.in_turn
        action = position % bounds.shape[1] if turn else int(np.argmax(bounds, axis=1)[0])
        lifted = actor.with_intercept(features)[0].T
        return Proposal(action, lifted, values[0] + self.policy.centre, widths[0])


def sum_records(
    policy: LinUCBPolicy, records: Sequence[tuple[Floats, float]], slots: int
) -> Floats:
    """Sum the statistics of a batch of records: features of the chosen action, and reward.

    An unused slot is the zero vector, and is added like any other: the time that the sums take does
    not tell how many slots are used.
    """
    size = len(policy.bias)
    bias, gram = np.zeros(size), np.zeros((size, size))
    unused = np.zeros(size), 0.0
    for slot in range(slots):
        x, reward = records[slot] if slot < len(records) else unused
        bias += x * (reward - policy.centre)
        gram += x[:, None] * x[None, :]
    return moments.pack(bias, gram, scaled=policy.scaled, weight=policy.weight or 1.0)


def export_policy(context: ContextSpec, policy: LinUCBPolicy, step: int) -> ExportedPolicy:
    """The policy in terms of scaled contexts, for use without an agent."""
    parameter, centre = policy.parameter, policy.centre
    if context.columns:
        return export_parameter(context, parameter, centre, step)
    if policy.shrink is None:
        return ExportedPolicy(context, step, np.concatenate([[centre], parameter])[None])
    intercept = math.sqrt(1 - policy.shrink**2) * parameter[-1] + centre
    slopes = policy.shrink * parameter[:-1]
    return ExportedPolicy(context, step, np.concatenate([[intercept], slopes])[None])


def export_parameter(
    context: ContextSpec, parameter: Floats, centre: float, step: int
) -> ExportedPolicy:
    """The policy of a parameter of declared columns, of rewards minus `centre`."""
    effects = context.by_action(parameter)
    effects[:, 0] += centre
    return ExportedPolicy(context, step, effects)
