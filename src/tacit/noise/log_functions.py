"""Logarithms of special functions, accurate where differences of large ln Γ values would cancel.

All functions are elementwise and vectorised. The relative error of e^{result} is a few units in the
last place for results of moderate size. It grows with the size of the result, as for any logarithm
in double precision.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

Floats = npt.NDArray[np.float64]

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_STIRLING_FROM = 16.0


def stirling_error(z: Floats) -> Floats:
    """ln Γ(z+1) - (z + ½) ln z + z - ½ ln 2π, for z > 0 (Loader 2000)."""
    z = np.asarray(z, dtype=float)
    safe = np.maximum(z, _STIRLING_FROM)
    series = np.zeros_like(safe)
    for coefficient in reversed(_STIRLING):
        series = series / (safe * safe) + coefficient
    series /= safe
    small = np.clip(z, np.finfo(float).tiny, _STIRLING_FROM)
    direct = (
        gammaln(small + 1) - (small + 0.5) * np.log(small) + small - 0.5 * math.log(2 * math.pi)
    )
    return np.where(z >= _STIRLING_FROM, series, direct)


def deviance(x: Floats, mean: Floats | float, excess: Floats | None = None) -> Floats:
    """x ln(x / mean) + mean - x, without cancellation near x = mean (Loader's bd0); `excess` is a
    more accurate x - mean.
    """
    x, mean = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(mean, dtype=float))
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = x - mean if excess is None else excess
        v = excess / (x + mean)
        far = np.where(x > 0, x * np.log(x / mean), 0.0) + mean - x
    near_v = np.where(np.abs(v) < 0.1, v, 0.0)
    square = near_v * near_v
    series = np.zeros_like(square)
    for j in range(12, 0, -1):
        series = (series + 1 / (2 * j + 1)) * square
    near = excess * near_v + 2 * x * near_v * series
    return np.where(np.abs(v) < 0.1, near, far)


def log_gamma_ratio(x: Floats, r: float) -> Floats:
    """ln Γ(x+r) - ln Γ(x+1) for x >= 0 and r > 0, accurate for large x."""
    x = np.asarray(x, dtype=float)
    big = np.maximum(x, _STIRLING_FROM)
    # ln Γ(z+1) = (z+½) ln z - z + ½ ln 2π + stirling_error(z), at z = x+r-1 and z = x
    shift = r - 1
    far = shift * np.log(big) + (big + shift + 0.5) * np.log1p(shift / big) - shift
    far += stirling_error(big + shift) - stirling_error(big)
    near = gammaln(np.minimum(np.maximum(x, 0.0), _STIRLING_FROM) + r) - gammaln(
        np.clip(x, 0.0, _STIRLING_FROM) + 1
    )
    return np.where(x >= _STIRLING_FROM, far, near)


@cache
def _debye(order: int) -> tuple[float, ...]:
    """Coefficients, in powers of t², of u_order(t) / t^order, where u are Debye's polynomials (DLMF
    10.41.10).
    """
    poly = {0: Fraction(1)}
    for _ in range(order):
        new: dict[int, Fraction] = {}
        for power, c in poly.items():
            new[power + 1] = (
                new.get(power + 1, Fraction(0)) + c * Fraction(power, 2) + c / (8 * (power + 1))
            )
            new[power + 3] = (
                new.get(power + 3, Fraction(0)) - c * Fraction(power, 2) - 5 * c / (8 * (power + 3))
            )
        poly = new
    return tuple(float(poly.get(order + 2 * j, Fraction(0))) for j in range(order + 1))


_DEBYE_ORDER = 10
_DEBYE_FROM = 64.0


def log_scaled_bessel(k: npt.ArrayLike, v: float) -> Floats:
    """ln(e^{-v} I_k(v)) for integers k and v > 0, also where the value itself underflows.

    With w = √(k² + v²), uses Debye's uniform expansion in 1/w when w >= 64 (its first omitted term
    is below 10^-17). Otherwise it uses the power series, whose terms are all positive.
    """
    nu = np.abs(np.asarray(k, dtype=float))
    w = np.hypot(nu, v)
    far_w = np.maximum(w, _DEBYE_FROM)
    t2 = (nu / far_w) ** 2
    tail = np.zeros_like(far_w)
    for order in range(_DEBYE_ORDER, 0, -1):
        coefficients = _debye(order)
        value = np.zeros_like(far_w)
        for c in reversed(coefficients):
            value = value * t2 + c
        tail = (tail + value) / far_w
    far: Floats = (
        nu * nu / (w + v)
        - nu * np.arcsinh(nu / v)
        - 0.5 * np.log(2 * math.pi * far_w)
        + np.log1p(tail)
    )
    if not np.any(w < _DEBYE_FROM):
        return far
    near_nu = np.where(w < _DEBYE_FROM, nu, 0.0)
    half = min(v, _DEBYE_FROM) / 2
    term = np.ones_like(near_nu)
    series = np.ones_like(near_nu)
    for j in range(1, 160):
        term = term * (half * half / (j * (j + near_nu)))
        series += term
    near = -v + near_nu * math.log(half) - gammaln(near_nu + 1) + np.log(series)
    return np.where(w < _DEBYE_FROM, near, far)
