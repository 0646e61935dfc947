"""Writes vectors of features, choices and reports: `python tests/contextual/make_vectors.py`.

A device in another language must compute the same integers and choose the same options.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tacit.bandits.contextual.ellipsoid import scaled_map
from tacit.contextual import (
    BoundedNumber,
    Category,
    FeatureMap,
    LinearPolicy,
    MomentReport,
    TablePolicy,
    TableReport,
)
from tacit.contextual.feature_maps import interactions
from tacit.contextual.policies import ONE, shares_of

FILE = Path(__file__).parents[2] / "clients" / "js" / "vectors" / "contextual.json"
FIELDS = (
    Category("device", ("phone", "tablet", "desktop")),
    BoundedNumber("age", 18, 90),
    Category("returning", ("no", "yes")),
)
OPTIONS = ("old", "new", "other")


def scaled_maps() -> dict[str, FeatureMap]:
    """Feature maps: all interactions, few, and categories only.

    Axes of an ellipsoid are not unique, so another processor may find other coordinates.
    """
    few = {"device": ["new"], "age": ["other"]}
    categories = (FIELDS[0], FIELDS[2])
    return {
        "all": scaled_map(FIELDS, OPTIONS, interactions(FIELDS, OPTIONS)),
        "few": scaled_map(FIELDS, OPTIONS, interactions(FIELDS, OPTIONS, few), resolution=1000),
        "categories": scaled_map(categories, OPTIONS, interactions(categories, OPTIONS)),
    }


def contexts(features: FeatureMap, source: random.Random) -> list[dict[str, Any]]:
    """Contexts at bounds, beyond them, and between."""
    found = []
    for at in (0.0, 1.0, 1.5, -0.5, *(source.random() for _ in range(6))):
        found.append(
            {
                one.name: source.choice(one.values)
                if isinstance(one, Category)
                else one.low + at * (one.high - one.low)
                for one in features.fields
            }
        )
    return found


def vectors(maps: dict[str, FeatureMap]) -> dict[str, Any]:
    """All vectors of these feature maps."""
    source = random.Random(20)
    cases: list[dict[str, Any]] = []
    for name, features in maps.items():
        d = features.dimension
        roots = tuple(
            tuple(tuple(source.gauss(0, 0.2 / (1 + part)) for _ in range(d)) for _ in range(d))
            for part in range(2)
        )
        mean = tuple(source.gauss(0, 0.3) for _ in range(d))
        policy = LinearPolicy(mean, roots, paused=(1,) if name == "few" else ())
        report = MomentReport(d, features.resolution, levels=1 if name == "all" else 16)
        people = []
        for context in contexts(features, source):
            part, normals = source.randrange(2), [source.gauss(0, 1) for _ in range(d)]
            found = features.of(context)
            chosen = policy.choose(found, part, normals)
            level = source.randint(0, report.levels)
            people.append(
                {
                    "context": context,
                    "code": features.code(context),
                    "features": [list(vector) for vector in found],
                    "part": part,
                    "normals": normals,
                    "option": chosen,
                    "level": level,
                    "report": report.vector(found[chosen], level),
                }
            )
        cases.append(
            {
                "name": name,
                "map": features.to_dict(),
                "policy": policy.to_dict(),
                "levels": report.levels,
                "people": people,
            }
        )
    return {"linear": cases, "table": _table(maps["categories"], source)}


def _table(features: FeatureMap, source: random.Random) -> dict[str, Any]:
    rows = tuple(shares_of([source.random() for _ in OPTIONS]) for _ in range(features.segments))
    policy, report = TablePolicy(rows), TableReport(features.segments, len(OPTIONS))
    people = []
    for context in contexts(features, source):
        segment, drawn = features.segment(context), source.randrange(ONE)
        option, success = policy.choose(segment, drawn), source.randrange(2)
        people.append(
            {
                "context": context,
                "segment": segment,
                "drawn": drawn,
                "option": option,
                "success": success,
                "cell": report.cell(segment, option, success),
            }
        )
    return {"map": features.to_dict(), "policy": policy.to_dict(), "people": people}


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(scaled_maps()), indent=1) + "\n", encoding="utf-8")
