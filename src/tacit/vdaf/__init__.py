"""Verifiable sums between two aggregators: Prio3Count and Prio3Sum of the VDAF draft, version 20.

A report is shared between two aggregators together with a proof that it is a bit, or a whole number
from 0 to a limit. Each makes a short verifier share of what it holds; from the two shares both see
whether the report is in range, and nothing else. Byte for byte as draft-irtf-cfrg-vdaf-20, for two
shares; the proof system is that of Boneh, Boyle, Corrigan-Gibbs, Gilboa & Ishai 2019, Theorem 4.3.
TurboSHAKE128 comes from `pycryptodome`, the extra `verified`; nothing here needs NumPy.
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
