"""Prio3Count and Prio3Sum for two aggregators, byte for byte as in draft-irtf-cfrg-vdaf-20.

A client secret-shares its measurement together with a proof that it is a bit, or an integer from 0
to a limit. Each aggregator computes a short verifier share; from both shares the two learn whether
the report is in range, and nothing else. The proof system is that of Boneh, Boyle, Corrigan-Gibbs,
Gilboa & Ishai 2019, Theorem 4.3.

TurboSHAKE128 comes from `pycryptodome`, the extra `verified`; nothing here needs NumPy. More than
two shares are not supported.
"""

from tacit.vdaf.field import MODULUS
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

__all__ = [
    "KEY_SIZE",
    "MODULUS",
    "NONCE_SIZE",
    "RANDOM_SIZE",
    "Prio3",
    "ProofQuery",
    "Verifying",
    "prio3_count",
    "prio3_sum",
    "report_bits",
]
