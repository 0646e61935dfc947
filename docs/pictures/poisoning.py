"""Draws docs/pictures/poisoning.png: how often the best option is found under poisoning.

Run it as `python docs/pictures/poisoning.py`; it needs the extra `plot`.
"""

from __future__ import annotations

from pathlib import Path

from tacit.studies.plan import answer
from tacit.studies.plan_pictures import draw_poisoning
from tacit.studies.plan_request import PlanRequest

if __name__ == "__main__":
    question = PlanRequest.of(baseline=0.2, lift=0.25, poisoned=0.01, trusts=("two-servers",))
    draw_poisoning(question, answer(question), Path(__file__).with_suffix(".png"))
