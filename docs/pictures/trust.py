"""Draws trust-*.svg: one picture per trust model, who sees what and what the guarantee assumes.

Adversary and assumptions are those of the protocol's own guarantee. Run it as
`python docs/pictures/trust.py`; it needs the extra `plot`.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from tacit import ApproximateDP, Guarantee, PureDP
from tacit.assumptions import TRUST_OF_VIEW, Assumption
from tacit.protocols import factories

HERE = Path(__file__).parent
USERS, PURE = 1000, PureDP(1.0)


@dataclass(frozen=True)
class Node:
    """A party: its name, what it sees, where it stands, and whether it sees a bare answer."""

    name: str
    sees: str
    x: float
    y: float
    bare: bool = False


@dataclass(frozen=True)
class Picture:
    """A trust model: its parties, who sends to whom, and the guarantee of its protocol."""

    nodes: tuple[Node, ...]
    arrows: tuple[tuple[int, int], ...]
    guarantee: Guarantee


DEVICE = "the answer"
LEARNER = "noisy sums"
PICTURES = {
    "central": Picture(
        (
            Node("device", DEVICE, 0.12, 0.5, bare=True),
            Node("server", "every answer;\nadds the noise", 0.5, 0.5, bare=True),
            Node("learner", LEARNER, 0.88, 0.5),
        ),
        ((0, 1), (1, 2)),
        factories.central_laplace(
            USERS, target=PURE, binary=True, failure_probability=None
        ).guarantee,
    ),
    "two-servers": Picture(
        (
            Node("device", DEVICE, 0.12, 0.5, bare=True),
            Node("coordinator", "random shares;\nadds noise", 0.48, 0.76),
            Node("helper", "random shares;\nadds noise", 0.48, 0.24),
            Node("learner", LEARNER, 0.88, 0.5),
        ),
        ((0, 1), (0, 2), (1, 3), (2, 3)),
        factories.two_servers_laplace(USERS, target=PURE, binary=True).guarantee,
    ),
    "verified": Picture(
        (
            Node("device", "the answer;\nproves its range", 0.12, 0.5, bare=True),
            Node("coordinator", "random shares,\nproofs hold or not;\nadds noise", 0.48, 0.76),
            Node("helper", "random shares,\nproofs hold or not;\nadds noise", 0.48, 0.24),
            Node("learner", LEARNER, 0.88, 0.5),
        ),
        ((0, 1), (0, 2), (1, 3), (2, 3)),
        factories.verified_laplace(USERS, target=PURE, binary=True).guarantee,
    ),
    "secure-aggregation": Picture(
        (
            Node("device", "the answer;\nadds a share\nof noise", 0.12, 0.5, bare=True),
            Node("server", "masked numbers,\nthen their\nnoisy sum", 0.52, 0.5),
            Node("learner", LEARNER, 0.88, 0.5),
        ),
        ((0, 1), (1, 2)),
        factories.polya_tight(USERS, target=PURE, binary=True, dropout=0.0).guarantee,
    ),
    "shuffler": Picture(
        (
            Node("device", "the answer;\nadds noise bits", 0.12, 0.5, bare=True),
            Node("shuffler", "who sends,\nencrypted\nmessages", 0.37, 0.5),
            Node("analyzer", "messages in\nrandom order", 0.63, 0.5),
            Node("learner", LEARNER, 0.88, 0.5),
        ),
        ((0, 1), (1, 2), (2, 3)),
        factories.shuffled_tight(
            USERS, target=ApproximateDP(1.0, 1e-6), binary=True, dropout=0.0
        ).guarantee,
    ),
    "local": Picture(
        (
            Node("device", "the answer;\nadds all noise", 0.12, 0.5, bare=True),
            Node("server", "noisy messages", 0.5, 0.5),
            Node("learner", "their sums", 0.88, 0.5),
        ),
        ((0, 1), (1, 2)),
        factories.response(USERS, target=PURE).guarantee,
    ),
}


def stated(guarantee: Guarantee) -> list[str]:
    """The lines under a picture: the guarantee and what it assumes."""
    words = [f"{guarantee.short} towards {guarantee.view.text()}, if"]
    assumed = {TRUST_OF_VIEW[guarantee.view], *guarantee.assumptions}
    words += [f"• {one.text()}" for one in sorted(assumed, key=Assumption.sort_key)]
    return [line for word in words for line in textwrap.wrap(word, 62, subsequent_indent="\u2003")]


def draw(picture: Picture, path: Path) -> None:
    """Write one picture."""
    mpl.rcParams["svg.hashsalt"] = "tacit"
    mpl.rcParams["svg.fonttype"] = "none"
    rows = len({node.y for node in picture.nodes}) > 1
    lines = stated(picture.guarantee)
    heights = (2.5 if rows else 1.55, 0.2 * len(lines) + 0.1)
    figure, (axes, below) = plt.subplots(
        2, 1, figsize=(5.4, sum(heights)), height_ratios=heights, layout="constrained"
    )
    for one in (axes, below):
        one.set_axis_off()
        one.set_xlim(-0.04, 1.04)
        one.set_ylim(0, 1)
    wide, reach = (0.13, 54) if len({node.x for node in picture.nodes}) < 4 else (0.1, 36)
    for start, end in picture.arrows:
        a, b = picture.nodes[start], picture.nodes[end]
        arrow = FancyArrowPatch(
            (a.x, a.y),
            (b.x, b.y),
            arrowstyle="-|>",
            mutation_scale=12,
            shrinkA=reach,
            shrinkB=reach + 1,
        )
        axes.add_patch(arrow)
    half = 0.21 if rows else 0.36
    for node in picture.nodes:
        colour = "#ee6677" if node.bare else "#4477aa"
        box = FancyBboxPatch(
            (node.x - wide, node.y - half),
            2 * wide,
            2 * half,
            boxstyle="round,pad=0.01",
            facecolor=colour,
            alpha=0.18,
            edgecolor=colour,
        )
        axes.add_patch(box)
        axes.text(
            node.x,
            node.y + 0.6 * half,
            node.name,
            ha="center",
            va="center",
            weight="bold",
            fontsize=12,
        )
        axes.text(node.x, node.y - 0.3 * half, node.sees, ha="center", va="center", fontsize=9)
    below.text(0, 1, "\n".join(lines), va="top", fontsize=10.5)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    for name, picture in PICTURES.items():
        draw(picture, HERE / f"trust-{name}.svg")
