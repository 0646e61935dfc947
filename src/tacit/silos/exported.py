"""An exported policy: small JSON, and a function that chooses an action by it. Needs NumPy only.

The format is in docs/reference/wire-formats/federations.md. A policy is post-processing of
released sums: using or publishing it costs no privacy budget.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError
from tacit.silos.context import ContextColumn, ContextSpec

FORMAT = 1
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ExportedPolicy:
    """Estimated mean rewards as a linear function of a context.

    Parameters
    ----------
    context : ContextSpec
        Columns with their declared bounds, and actions.
    step : int
        The number of released synchronisations that it is learned from.
    effects : array
        With columns: actions × (1 + scaled values), an intercept and slopes. Otherwise one row:
        an intercept and one number per feature.
    """

    context: ContextSpec
    step: int
    effects: Floats

    def estimates(self, context: Any) -> Floats:
        """The estimated mean reward of every action."""
        if self.context.columns:
            scaled = self.context.scaled(context)
            return np.asarray(self.effects[:, 0] + self.effects[:, 1:] @ scaled)
        table = self.context.table(context)
        return np.asarray(self.effects[0, 0] + table @ self.effects[0, 1:])

    def choose(self, context: Any) -> str:
        """The action with the largest estimate; its index as text where actions have no names."""
        best = int(np.argmax(self.estimates(context)))
        return self.context.actions[best] if self.context.actions else str(best)

    def to_json(self) -> str:
        """The policy as a document."""
        columns = [
            vars(one) | {"low": str(one.low), "high": str(one.high)} for one in self.context.columns
        ]
        document = {
            "format": FORMAT,
            "step": self.step,
            "columns": columns,
            "actions": list(self.context.actions),
            "features": self.context.features,
            "effects": self.effects.tolist(),
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ExportedPolicy:
        """Read the document of `to_json`."""
        try:
            document = json.loads(text)
            columns = tuple(
                ContextColumn(
                    str(one["name"]),
                    str(one["kind"]),
                    _bound(one["low"]),
                    _bound(one["high"]),
                    tuple(map(str, one["levels"])),
                )
                for one in document["columns"]
            )
            spec = ContextSpec(columns, tuple(document["actions"]), int(document["features"]))
            effects = np.array(document["effects"], dtype=float)
            step, written = int(document["step"]), int(document["format"])
        except (
            ArithmeticError,
            AttributeError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
        ) as problem:
            raise TacitError(f"file has no exported policy ({problem!r}): name another") from None
        wanted = (len(spec.actions), spec.width + 1) if columns else (1, spec.features + 1)
        if written != FORMAT or effects.shape != wanted or not np.isfinite(effects).all():
            raise TacitError(
                f"policy has format {written} and effects of shape {effects.shape}: must be "
                f"{FORMAT} and {wanted}, all finite. Export it again"
            )
        return cls(spec, step, effects)


def _bound(text: Any) -> Fraction:
    """A bound as `to_json` writes it: an exponent of a few digits would make a number of GB."""
    return Fraction(*map(int, str(text).split("/")))


def load_policy(path: str | Path) -> Callable[[Any], str]:
    """Read an exported policy; return the function that chooses an action for a context."""
    return ExportedPolicy.from_json(Path(path).read_text(encoding="utf-8")).choose
