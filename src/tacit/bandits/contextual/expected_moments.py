"""The second moments that a published policy is expected to have, from public contexts.

Weights of rounds that are computed from a round's own noisy matrix take noise for signal where a
policy hardly explores. The policy itself is public: on a fixed sample of contexts, it says which
features devices choose. The shares of these contexts are fitted to all released matrices, by
non-negative least squares towards equal shares. A round's expected matrix then depends on its own
noise through these few shares only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations_with_replacement, product

import numpy as np
from scipy.special import gammainccinv

from tacit.bandits.contextual.device_choices import LinearChoice
from tacit.bandits.contextual.moment_fit import Moments, SecondSpan
from tacit.contextual.feature_maps import BoundedNumber, Category, FeatureMap, code_size, placed
from tacit.types import Floats

CONTEXTS = 64  # public contexts of the sample
DIRECTIONS = 384  # of the drawn parameter in each
TAILS = np.array([1, 0.9, 0.7, 0.5, 0.3, 0.15, 0.06, 0.02, 5e-3, 1e-3, 2e-4, 0])  # of its length
TOWARDS_EQUAL = 0.5  # weight of equal shares
SAMPLING = 0.05  # variance of an entry of x xᵀ between participants
RANK = 1e-6  # relative singular value below which a direction of x xᵀ is not spanned
WIDEST = 600  # products or points of the span, up to which it is computed
SUM = 1e4  # weight of the condition that shares add up to 1


@lru_cache(maxsize=32)
def public_codes(features: FeatureMap) -> Floats:
    """Codes of evenly spread contexts: contexts × numbers of the code."""
    rng = np.random.default_rng(0)
    codes = np.zeros((CONTEXTS, code_size(features.fields)))
    codes[:, 0] = 1.0
    for one, start in placed(features.fields):
        order = rng.permutation(CONTEXTS)
        if isinstance(one, Category):
            codes[np.arange(CONTEXTS), start + order % one.size] = 1.0
        else:
            codes[:, start] = np.linspace(-1.0, 1.0, CONTEXTS)[order]
    return codes


@lru_cache(maxsize=32)
def public_features(features: FeatureMap) -> Floats:
    """Features of the public contexts: contexts × options × dimensions."""
    return np.array([features.exact(code) for code in public_codes(features).tolist()])


@lru_cache(maxsize=32)
def second_span(features: FeatureMap) -> SecondSpan:
    """The span of x xᵀ, from contexts that differ from one of them in at most two fields.

    Features are linear in the code, and products of codes involve two fields. Large maps have all
    symmetric matrices instead.
    """
    values = [
        one.extremes() + ([[0.0]] if isinstance(one, BoundedNumber) else [])
        for one in features.fields
    ]
    start = [part[0] for part in values]
    contexts = [start]
    for i, j in combinations_with_replacement(range(len(values)), 2):
        for one, other in product(values[i], values[j]):
            changed = list(start)
            changed[i], changed[j] = one, other
            contexts.append(changed)
    codes = [[1.0, *(number for part in parts for number in part)] for parts in contexts]
    points = np.array([vector for code in codes for vector in features.exact(code)])
    rows, columns = np.triu_indices(features.dimension)
    double = np.where(rows == columns, 1.0, math.sqrt(2))
    squares = points[:, rows] * points[:, columns] * double
    if min(squares.shape) > WIDEST:
        return SecondSpan(None)
    _, sizes, vectors = np.linalg.svd(squares, full_matrices=False)
    kept = vectors[sizes > RANK * sizes[0]] / double
    if len(kept) == len(rows):
        return SecondSpan(None)
    basis = np.zeros((len(kept), features.dimension, features.dimension))
    basis[:, rows, columns] = basis[:, columns, rows] = kept
    return SecondSpan(basis)


def policy_shapes(points: Floats, choice: LinearChoice) -> Floats:
    """E[x xᵀ] of the option that a device picks in each public context."""
    return np.asarray(np.einsum("ck,cki,ckj->cij", chances(points, choice), points, points))


def chances(points: Floats, choice: LinearChoice) -> Floats:
    """Chances of each option in each public context: contexts × options.

    By a fixed sample of directions of the drawn parameter, with quadrature over its length, so that
    options that one device in 10,000 picks are not taken for options that none picks.
    """
    d, roots = points.shape[2], np.array(choice.roots)
    half = np.random.default_rng(1).standard_normal((DIRECTIONS // 2, d))
    half /= np.linalg.norm(half, axis=1, keepdims=True)
    parts = roots[np.arange(DIRECTIONS // 2) % len(roots)]
    moved = np.einsum("jab,jb->ja", parts, half)
    means = points @ np.array(choice.mean)
    slopes = np.einsum("ckd,jd->kcj", points, np.vstack([moved, -moved]), optimize=True)
    found = np.zeros(points.shape[:2])
    offered = [k for k in range(points.shape[1]) if k not in choice.paused]
    for length, weight in zip(*_lengths(d), strict=True):
        top = np.full(slopes.shape[1:], -np.inf)
        picked = np.zeros(slopes.shape[1:], dtype=np.int16)
        for place, k in enumerate(offered):
            value = means[:, k, None] + length * slopes[k]
            np.copyto(picked, place, where=value > top)
            np.maximum(top, value, out=top)
        for place, k in enumerate(offered):
            found[:, k] += weight * (picked == place).mean(axis=1)
    return found


@lru_cache(maxsize=32)
def _lengths(dimension: int) -> tuple[Floats, Floats]:
    """Lengths of a standard normal vector, and their probabilities."""
    middle = (TAILS[1:] + TAILS[:-1]) / 2
    return np.sqrt(2 * gammainccinv(dimension / 2, middle)), TAILS[:-1] - TAILS[1:]


def expected_second(shapes: Sequence[Floats], moments: Moments) -> Floats:
    """The expected Σ x xᵀ of every round, from the shapes of its policy: rounds × d × d."""
    rows, columns = np.triu_indices(moments.dimension)
    double = np.where(rows == columns, 2.0, 1.0)
    system, right = list[Floats](), list[Floats]()
    for shape, second, participants, noise in zip(
        shapes, moments.second, moments.participants, moments.second_noise, strict=True
    ):
        spread = np.sqrt(noise * double + participants * SAMPLING) / participants
        system.append((shape[:, rows, columns] / spread).T)
        right.append(second[rows, columns] / participants / spread)
    whole = np.einsum("c,rcij->rij", fitted_shares(system, right), np.array(shapes))
    return np.asarray(whole * moments.participants[:, None, None])


def fitted_shares(system: Sequence[Floats], right: Sequence[Floats]) -> Floats:
    """Shares of the public contexts for which `system` times shares is nearest to `right`."""
    from scipy.optimize import nnls  # slow to import

    equal = TOWARDS_EQUAL * CONTEXTS
    rows = [*system, equal * np.eye(CONTEXTS), np.full((1, CONTEXTS), SUM)]
    values = [*right, np.full(CONTEXTS, equal / CONTEXTS), np.array([SUM])]
    shares, _ = nnls(np.vstack(rows), np.concatenate(values), maxiter=50 * CONTEXTS)
    return np.asarray(shares / shares.sum())
