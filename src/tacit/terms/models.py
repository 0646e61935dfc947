"""Trust models in terms: parties, views, noise, wire names of rounds and cipher suites."""

from __future__ import annotations

from tacit.terms.parts import (
    BINOMIAL,
    CERTIFIED_POLYA,
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    RANDOMIZED_RESPONSE,
    SKELLAM,
)
from tacit.trust import TrustModel, View

ROLES = {
    TrustModel.TWO_SERVERS: ("coordinator", "helper"),
    TrustModel.SECURE_AGGREGATION: ("coordinator",),
    TrustModel.SHUFFLER: ("analyzer", "shuffler"),
    TrustModel.LOCAL: ("coordinator",),
}
"""The parties of each trust model, in the order of their keys and signatures."""

LEADING = ("coordinator", "analyzer")
"""Roles of the party that runs the experiment, gives out slots and learns what is released."""

VIEWS = {
    (TrustModel.TWO_SERVERS, "servers"): View.OTHER_SERVER,
    (TrustModel.TWO_SERVERS, "devices"): View.RELEASED_SUM,
    (TrustModel.SECURE_AGGREGATION, "devices"): View.RELEASED_SUM,
    (TrustModel.SHUFFLER, "devices"): View.SHUFFLED,
    (TrustModel.LOCAL, "devices"): View.MESSAGE,
}
"""The adversary's view, by trust model and by the party that adds the noise."""

NOISES = {
    (TrustModel.TWO_SERVERS, "servers"): (DISCRETE_LAPLACE,),
    (TrustModel.TWO_SERVERS, "devices"): (DISCRETE_LAPLACE,),
    (TrustModel.SECURE_AGGREGATION, "devices"): (DISCRETE_LAPLACE, SKELLAM, DISCRETE_GAUSSIAN),
    (TrustModel.SHUFFLER, "devices"): (DISCRETE_LAPLACE, BINOMIAL, CERTIFIED_POLYA),
    (TrustModel.LOCAL, "devices"): (DISCRETE_LAPLACE, RANDOMIZED_RESPONSE),
}
"""The distributions of noise, by trust model and by the party that adds it."""

KINDS = {
    (TrustModel.TWO_SERVERS, 0): "two-servers",
    (TrustModel.TWO_SERVERS, 1): "verified",
    (TrustModel.SECURE_AGGREGATION, 0): "masking",
    (TrustModel.SHUFFLER, 0): "mixing",
    (TrustModel.LOCAL, 0): "local",
}
"""The wire name of rounds, by trust model and range proofs."""

HPKE_SUITES = (
    "hpke-x25519-aes128gcm",
    "hpke-x25519-chacha20poly1305",
    "hpke-mlkem768x25519-chacha20poly1305",
)
"""Cipher suites of report encryption (RFC 9180, HKDF-SHA256), the default first."""

MASKING_SUITE = "masking-x25519-chacha20poly1305"
POST_QUANTUM_SUITE = HPKE_SUITES[2]
