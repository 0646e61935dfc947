"""The silo's side of private prefix sums: the randomizer of its messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import TacitError
from tacit.protocols.prefix_delivery import BITS, draw_vector
from tacit.protocols.prefix_messages import MOST_BITS
from tacit.types import Floats

if TYPE_CHECKING:
    from tacit.protocols.prefix_sums import PrefixSums


@dataclass(eq=False)
class Encoder:
    """The randomizer R of one silo: takes the silo's vector of each step and returns the message.

    Its state never leaves the silo.
    """

    protocol: PrefixSums
    rng: np.random.Generator | None = None
    history: list[Floats] = field(default_factory=list)
    kept: list[Floats] = field(default_factory=list)  # noisy nodes, if prefix sums are sent

    def __post_init__(self) -> None:
        p = self.protocol
        bits = p.bits_per_silo / p.shape.steps
        if p.noise in BITS and bits > MOST_BITS:
            raise TacitError(
                f"a message would be {bits:.3g} bits, too large to send: use secagg-fedlinucb, "
                "or a larger epsilon or delta"
            )

    def randomize(self, vector: Floats) -> Any:
        """The message of the next step."""
        p = self.protocol
        if np.shape(vector) != (p.size,):
            raise TacitError(
                f"a silo reported {np.shape(vector)} numbers; all silos report {p.size}: give "
                "every silo the same dimension"
            )
        if len(self.history) >= p.shape.steps:
            raise TacitError(
                f"all {p.shape.steps} synchronisations are used up: the noise was calibrated for "
                "no more"
            )
        # noise first, to avoid a timing leak
        noise = (
            draw_vector(p.size, p.share if p.integral else None, self.rng, p.sigma)
            if p.delivery.silos_draw
            else np.zeros(p.size)
        )
        self.history.append(np.array(vector, dtype=float))
        step = len(self.history)
        row = p.shape.right[step - 1, :step] @ np.array(self.history)
        sent = (np.rint(row * p.scale) if p.integral else row) + noise
        if p.shape.kind == "prefix":
            # post-processing of the noisy nodes: reveals no more than they do
            self.kept.append(sent)
            sent = p.shape.left[step - 1, :step] @ np.array(self.kept)
        return p.form(step - 1).message(sent.astype(np.int64), self.rng) if p.integral else sent

    def to_dict(self) -> dict[str, Any]:
        """The state that the silo must keep between steps."""
        return {
            "history": [v.tolist() for v in self.history],
            "kept": [v.tolist() for v in self.kept],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state of `to_dict`."""
        self.history = [np.array(v) for v in state["history"]]
        self.kept = [np.array(v) for v in state["kept"]]
