"""Starting points of attacks on two servers, and the joint distribution of an adversary's view."""

from __future__ import annotations

import hashlib
import io
import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np

from tacit.aggregation import OwnNoise, TwoServerSession
from tacit.aggregation.aggregator_context import RoundSecrets
from tacit.aggregation.agreement import Channel
from tacit.aggregation.wire import Kind, header
from tacit.noise import DiscreteLaplace

LEVELS, EPSILON = 3, Fraction(3, 2)
SCALE = LEVELS / EPSILON
MODULUS = 23


def folded(scale: Fraction, modulus: int) -> list[float]:
    """The distribution of a server's noise modulo m, added up from far beyond."""
    reach = modulus * (2 + math.ceil(60 * float(scale) / modulus))
    points = np.arange(-reach, reach + 1)
    distribution = np.zeros(modulus)
    np.add.at(distribution, points % modulus, DiscreteLaplace(scale).pmf(points))
    return [float(chance) for chance in distribution]


def joint_distribution(
    observe: Callable[[int, Callable[[Fraction], int]], Hashable],
) -> dict[Hashable, list[float]]:
    """The joint distribution of an adversary's view, for every answer of the victim.

    `observe(answer, draw)` carries an attack out against honest parties whose noise is `draw`; all
    else that is random is held fixed, as the attacker knows it. What a round releases depends on
    one draw per number, so the distribution is found by going through all residues of one. A
    second draw of the honest server, had it any effect, would be the same, and show as less noise.
    """
    distribution: dict[Hashable, list[float]] = defaultdict(lambda: [0.0] * (LEVELS + 1))
    for residue, chance in enumerate(folded(SCALE, MODULUS)):
        for answer in range(LEVELS + 1):
            distribution[observe(answer, _always(residue))][answer] += chance
    return distribution


def _always(residue: int) -> Callable[[Fraction], int]:
    return lambda _: residue


def worst_loss(distribution: dict[Hashable, list[float]]) -> float:
    """The largest log-ratio of the probabilities of anything seen, between any two answers."""
    return max(
        math.log(max(chances)) - math.log(min(chances)) if min(chances) > 0 else math.inf
        for chances in distribution.values()
    )


def opened_session(draw: Callable[[Fraction], int], minimum: int = 1) -> TwoServerSession:
    """A round under terms that guarantee ε = 3/2 for one answer of three levels; all keys are
    always the same, so that what differs between two of them is the answer and the noise.
    """
    fixed = io.BytesIO(hashlib.shake_256(b"an attack").digest(4_000)).read
    return TwoServerSession(4, minimum, MODULUS, 1, OwnNoise(LEVELS, SCALE, draw), source=fixed)


def secrets(session: TwoServerSession, role: int) -> RoundSecrets:
    """Everything that a malicious server has for the round."""
    identity = session.round.identity
    record = session.party(role).record(identity)
    assert record is not None
    return RoundSecrets(record.secret, identity, record.suite)


def forged_list(session: TwoServerSession, role: int, tags: list[bytes]) -> bytes:
    """A list of any tags, from a malicious server to the other."""
    lines = (session.round.channel_key(0), session.round.channel_key(1))
    line = secrets(session, role).keys.line
    channel = Channel(line, *lines, session.round.context, starts=role == 0)
    front = header(Kind.PRESENT, session.round.identity) + bytes((role,))
    return channel.encrypt(front, b"".join(sorted(tags)))
