"""Two explicit neighbouring streams of records through the encoder that silos run.

One participant's records are replaced and everything else stays. Other participants' records put
every number of every row of a visited silo at the edge of rounding, so that replacing pushes it
over. The encoder draws no noise here: its integers are those that noise has to hide. Their
difference over everything released is a lower bound on the sensitivity, whatever the accounting
says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.algorithms.zc24_noise import WEIGHT
from tacit.bandits.contextual import moments
from tacit.protocols.prefix_messages import Words
from tacit.protocols.prefix_sums import PrefixSums

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
EDGE = 1e-3  # units from the edge of rounding
TRIES = 20_000  # of pairs of records


@dataclass(frozen=True, eq=False)
class Noiseless(PrefixSums):
    """The same sums without noise: what the encoder sends is what it rounds."""

    def draw(self, distribution: Any, rng: Any, spread: float = 0.0) -> Floats:  # noqa: ARG002
        """Nothing."""
        return np.zeros(self.size)

    def form(self, step: int) -> Words:  # noqa: ARG002
        """Words, however many bits a message would have."""
        return Words()


def noiseless(sums: PrefixSums) -> Noiseless:
    """The sums of an algorithm, without their noise."""
    return Noiseless(**{field.name: getattr(sums, field.name) for field in fields(PrefixSums)})


def records(sums: PrefixSums) -> tuple[Floats, Floats]:
    """Two valid records nearly as far apart as records can be, whose numbers differ by little more
    than whole units: most of what rounding can add to one record in one row.

    They are (xy, xxᵀ) at y = 1, or (w (y - ½) x, xxᵀ) where rewards are centred, with the intercept
    that features have then, if they have more than two numbers. Where `size` is no size of a
    record, they are any two vectors `sensitivity` apart.
    """
    dimension = next((d for d in range(2, 200) if moments.size(d) == sums.size), None)
    if dimension is None:
        most = sums.sensitivity * sums.scale / math.sqrt(sums.size)
        unit = min(most, max(0, math.ceil(most) - 1) + 2 * EDGE)
        return np.zeros(sums.size), np.full(sums.size, unit / sums.scale)
    centred = sums.sensitivity == moments.centred_sensitivity(WEIGHT)
    intercept = 1 / 3 if centred and dimension > 2 else 0.0
    cosine = -((WEIGHT / 2) ** 2) / 2 if centred else -0.5
    cosine = (cosine - intercept) / (1 - intercept)
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * math.pi, (TRIES, 1)) + np.array([0.0, math.acos(cosine)])
    angles += rng.normal(size=angles.shape) * 3 / sums.scale
    x = rng.normal(size=(TRIES, 2, dimension - bool(intercept))) / sums.scale
    x[..., 0], x[..., 1] = np.cos(angles), np.sin(angles)
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    if intercept:
        constant = np.full((TRIES, 2, 1), math.sqrt(intercept))
        x = np.concatenate([math.sqrt(1 - intercept) * x, constant], axis=-1)
    reward, weight = (0.5, WEIGHT) if centred else (1.0, 1.0)
    found = moments.pack(reward * x, x[..., :, None] * x[..., None, :], weight=weight)
    units = np.abs(found[:, 1] - found[:, 0]) * sums.scale
    best = int(np.linalg.norm(np.ceil(units - 2 * EDGE), axis=1).argmax())
    return found[best, 0], found[best, 1]


def arrangements(sums: PrefixSums) -> Iterator[Integers]:
    """Records that one participant moves, by batch and silo.

    Visits are together in one silo, in a few, or in as many as there are; in the same silos in
    every batch or in the next ones; in the first batches, the last, or far apart. A visit moves all
    records of the silo's batch where silos are eager.
    """
    steps, presence, silos, people = sums.shape.steps, sums.presence, sums.silos, sums.people
    ways = [(presence.batches, presence.visits)]
    if presence.anywhere:
        ways = [(1, presence.visits), (presence.visits, 1)]
    widths = sorted({1, min(2, silos), math.isqrt(silos), silos})
    for (batches, visits), width, moving, late in itertools.product(
        ways, widths, (False, True), ("first", "last", "apart")
    ):
        count = min(batches, steps)
        chosen = {
            "first": np.arange(count),
            "last": np.arange(steps - count, steps),
            "apart": np.linspace(0, steps - 1, count).astype(int),
        }[late]
        counts = np.zeros((steps, silos), np.int64)
        for turn, step in enumerate(chosen):
            order = np.roll(np.arange(silos), -turn * width if moving else 0)
            for visit in range(min(visits, silos * people)):
                room = order[counts[step, order] < people]
                counts[step, room[visit % min(width, len(room))]] += 1
        yield np.where(counts > 0, people, 0) if presence.eager else counts


def differences(
    sums: PrefixSums, ways: Iterable[Integers] | None = None, honest: int | None = None
) -> Iterator[tuple[Floats, Floats]]:
    """What replacing records moves the released numbers by, for each arrangement (`arrangements`
    unless given), and the standard deviation of the noise in them, both in units: (rows, numbers)
    of sums, (silos, rows, numbers) of silos alone, those with the least noise first. Where silos
    share the noise, that of `honest` silos is left; of all that the sums count on unless given.
    """
    plain, pair = noiseless(sums), records(sums)
    sigmas = sorted(sums.sigmas) or [0.0] * sums.silos
    least = sums.sigma * sums.scale
    if sums.integral:
        adding = honest if honest and sums.noise_parties > 1 else sums.noise_parties
        least = math.sqrt(float(sums.share.variance) * adding)
    found: dict[bytes, Floats] = {}
    for counts in arrangements(sums) if ways is None else ways:
        visited = np.flatnonzero(counts.any(axis=0))
        for silo in visited:
            key = counts[:, silo].tobytes()
            if key not in found:
                streams = at_the_edge(plain, counts[:, silo], *pair)
                one, other = (sent(plain, stream) for stream in streams)
                found[key] = other - one
        moved = np.array([found[counts[:, silo].tobytes()] for silo in visited])
        if sums.suffices_alone:
            widths = [least * (sigmas[silo] / sums.sigma if sums.sigmas else 1) for silo in visited]
            yield moved, np.array(widths)[:, None, None]
        else:
            yield moved.sum(axis=0), np.array(least)


def sent(plain: Noiseless, stream: Floats) -> Floats:
    """One silo's numbers of all steps, by its encoder."""
    encoder = plain.encoder(np.random.default_rng(0), silo=0)
    rows = [encoder.randomize(vector) for vector in stream]
    found = np.array([row.view(np.int64) if plain.integral else row for row in rows], dtype=float)
    if plain.shape.kind == "prefix":  # sums of noisy nodes, each of which is drawn once
        found = np.linalg.solve(plain.shape.left, found)
    return found


def at_the_edge(
    sums: PrefixSums, counts: Integers, one: Floats, other: Floats
) -> tuple[Floats, Floats]:
    """A silo's vectors by batch, in two streams that differ in one participant's records. Others'
    records add what is missing to the edge of rounding in the row that this batch completes: a
    fraction of a unit, by which many participants' records can differ from what they were.
    """
    right, steps = sums.shape.right, sums.shape.steps
    apart = counts[:, None] * (other - one)
    way = np.where(right @ apart >= 0, 1.0, -1.0)
    stream: Floats = counts[:, None] * one
    for step in range(steps):
        row = right[step, : step + 1] @ stream[: step + 1] * sums.scale
        edge = np.floor(row) + 0.5 - way[step] * EDGE
        stream[step] += (edge - row) / (sums.scale * right[step, step])
    return stream, stream + apart


def farthest(sums: PrefixSums, honest: int | None = None) -> float:
    """The largest movement of everything released, in standard deviations of its noise, of all
    arrangements tried.
    """
    scale, found = 1 if sums.integral else sums.scale, differences(sums, honest=honest)
    return max(float(np.linalg.norm(moved * scale / std)) for moved, std in found)


def worst(sums: PrefixSums) -> list[int]:
    """The integers that move most in l2 norm, those that do not move left out."""
    moved = max((moved for moved, _ in differences(sums)), key=lambda one: float((one**2).sum()))
    return [abs(int(one)) for one in moved.ravel() if one]
