"""Prio3Count, Prio3Sum and Prio3Histogram for two aggregators, as in draft-irtf-cfrg-vdaf-20.

A client secret-shares its measurement together with a proof that it is a bit, an integer from 0 to
a limit, or one of several buckets. Each aggregator computes a short verifier share; from both
shares the two learn whether the report is valid, and nothing else. Formats are the draft's, byte
for byte. The proof system is that of Boneh, Boyle, Corrigan-Gibbs, Gilboa & Ishai 2019, Theorem
4.3.

TurboSHAKE128 comes from `pycryptodome`, the extra `verified`; nothing here needs NumPy. More than
two shares are not supported.
"""

from tacit.vdaf.field import MODULUS
from tacit.vdaf.histogram import (
    HISTOGRAM_RANDOM_SIZE,
    MODULUS128,
    PUBLIC_SIZE,
    HistogramVerifying,
    Prio3Histogram,
    prio3_histogram,
)
from tacit.vdaf.prio3 import (
    KEY_SIZE,
    NONCE_SIZE,
    RANDOM_SIZE,
    Prio3,
    Verifying,
    prio3_count,
    prio3_sum,
    report_bits,
)
from tacit.vdaf.proofs import ProofQuery
from tacit.vdaf.xof import SEED_SIZE

__all__ = [
    "HISTOGRAM_RANDOM_SIZE",
    "KEY_SIZE",
    "MODULUS",
    "MODULUS128",
    "NONCE_SIZE",
    "PUBLIC_SIZE",
    "RANDOM_SIZE",
    "SEED_SIZE",
    "HistogramVerifying",
    "Prio3",
    "Prio3Histogram",
    "ProofQuery",
    "Verifying",
    "prio3_count",
    "prio3_histogram",
    "prio3_sum",
    "report_bits",
]
