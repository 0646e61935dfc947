"""Report of the demonstration: one self-contained HTML page with pictures."""

from __future__ import annotations

import base64
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np

from tacit import html
from tacit.silos.demo.patients import HELD_OUT, HOSPITALS, WARD
from tacit.silos.demo.play import DemoFederation
from tacit.silos.demo.study import coefficient_widths
from tacit.silos.explanations import explain

CASE_MIX = "a hospital treats one kind of patients only: alone it cannot learn about the others"
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#666666"


def page(demo: DemoFederation) -> str:
    """The whole page."""
    result = demo.result
    facts = {
        "mean regret of the shared policy, ε = 1": f"{result.shared:.4f}",
        **{
            f"mean regret of {name}'s own non-private LinUCB": f"{own:.4f}"
            for name, own in zip(HOSPITALS, result.own, strict=True)
        },
        "held-out patients": f"{HELD_OUT:,}, of all hospitals alike",
        "case mix": CASE_MIX,
        "patients whose outcome was in time": "{:,} of {:,}".format(*demo.in_time),
        "synchronisations": str(len(demo.terms.batches)),
        "seconds per synchronisation": f"{demo.seconds_per_row:.2f}",
        "bytes from each hospital": f"{max(result.received.values()):,}",
        "status of the FLARE job": demo.job,
        "seconds": f"{demo.seconds:.0f}",
    }
    text = html.render(
        __package__ or "",
        "silos.html",
        answer=answer(demo),
        facts=facts,
        pictures=[(title, picture(draw, demo)) for title, draw in PICTURES if can_draw()],
        seen=who_saw_what(demo),
        words=explain(demo.terms, 0),
    )
    return str(text)


def answer(demo: DemoFederation) -> str:
    """The result in one sentence."""
    result = demo.result
    worse = sum(own > result.shared for own in result.own)
    used, of = demo.in_time
    late = (
        f" Only {used:,} of {of:,} patients were in time for a sum, because this machine was busy:"
        f" repeat it with --pace {2 * demo.terms.schedule.pace}."
    )
    return (
        f"On {HELD_OUT:,} patients whom nobody has learned from, the shared policy loses "
        f"{result.shared:.4f} per patient; it is better than what {worse} of {len(result.own)} "
        "hospitals learn alone without privacy." + late * demo.hurried
    )


def who_saw_what(demo: DemoFederation) -> list[tuple[str, str]]:
    """Who saw what, in words."""
    numbers = len(demo.policy.bias)
    size = numbers + numbers * (numbers + 1) // 2
    return [
        ("A hospital's agent", "its own patients' records, its own noise, and every policy"),
        (
            "FLARE's processes",
            f"signed messages: policies, and {size} masked numbers per hospital and "
            "synchronisation; no record",
        ),
        ("The coordinator", f"{len(demo.terms.batches)} noisy sums over all hospitals"),
        ("The other hospitals", "the policies, which are made of these sums"),
        ("Nobody else", "how many patients a hospital had, or which slots were unused"),
    ]


def can_draw() -> bool:
    """Whether matplotlib, which the extra `flare` does not bring, is installed."""
    return find_spec("matplotlib") is not None


def picture(draw: Any, demo: DemoFederation) -> str:
    """A drawing as the text of an image."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    draw(figure.subplots(), demo)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _draw_regret(axes: Any, demo: DemoFederation) -> None:
    result, places = demo.result, np.arange(len(HOSPITALS))
    axes.bar(places - 0.2, result.own, 0.4, color=ORANGE, label="alone, without privacy")
    axes.bar(places + 0.2, [result.shared] * len(places), 0.4, color=BLUE, label="shared, ε = 1")
    axes.set_xticks(places, HOSPITALS)
    axes.set_ylabel("mean regret")
    axes.legend()


def _draw_effects(axes: Any, demo: DemoFederation) -> None:
    effects, truth = demo.result.effects, demo.result.truth
    widths = coefficient_widths(demo.policy)
    names = ["intercept - ½", *(column.name for column in WARD.columns)]
    places = np.arange(len(names))
    for number, (action, colour) in enumerate(zip(WARD.actions, (BLUE, ORANGE), strict=True)):
        shift = 0.2 * (number - 0.5)
        centre = np.array([0.5, *([0.0] * len(WARD.columns))])
        axes.errorbar(
            places + shift,
            effects[number] - centre,
            widths[number],
            fmt="o",
            capsize=3,
            color=colour,
            label=action,
        )
        axes.plot(places + shift, truth[number] - centre, "x", color=GREY)
    axes.plot([], [], "x", color=GREY, label="truth")
    axes.axhline(0, color=GREY, linewidth=0.5)
    axes.set_xticks(places, names)
    axes.legend()


def _draw_budget(axes: Any, demo: DemoFederation) -> None:
    terms = demo.terms
    epsilon = float(terms.silos[0].epsilon)
    releases = np.arange(1, len(terms.batches) + 1)
    axes.step([0, *releases], [epsilon] * (len(releases) + 1), where="post", color=BLUE)
    axes.set_ylim(0, 1.3 * epsilon)
    axes.set_xlabel("synchronisation")
    axes.set_ylabel("ε of all releases together")
    axes.set_title("one participant: one record, in one synchronisation", fontsize=9)


PICTURES = (
    ("Regret on held-out patients", _draw_regret),
    ("What was learned: coefficients with 95% intervals", _draw_effects),
    ("Privacy budget by synchronisation", _draw_budget),
)
