import json
from typing import Any

import pytest
from tests.curves.record import CASES, PRINTED, RECORD, simulated
from tests.tables import extended_but_every

SAID = json.loads(PRINTED.read_text(encoding="utf-8"))
RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))
FEDERATED = 1e-12  # sums over silos may be added up in another order
PROCESSORS = 1e-14  # the last digits of a float differ between processors


def test_every_recorded_case_is_still_run() -> None:
    assert set(RECORDED) == set(SAID) == set(CASES)


def numbers(printed: dict[str, Any]) -> list[float]:
    """ε and δ of the printed guarantee, if there is one."""
    guarantee = printed["guarantee"]
    return [] if guarantee is None else [guarantee["epsilon"], guarantee["delta"]]


def identifiers(printed: dict[str, Any]) -> dict[str, Any]:
    """What is printed besides ε and δ."""
    guarantee = printed["guarantee"]
    if guarantee is None:
        return printed
    others = {key: guarantee[key] for key in guarantee if key not in ("epsilon", "delta")}
    return printed | {"guarantee": others}


@pytest.mark.parametrize("case", extended_but_every(2, zip(CASES)))
def test_the_curve_equals_the_recorded_one(case: str) -> None:
    tolerance = FEDERATED if "linucb" in case else 0.0
    found, printed = simulated(case)
    assert numbers(printed) == pytest.approx(numbers(SAID[case]), rel=PROCESSORS, abs=0.0)
    assert identifiers(printed) == identifiers(SAID[case])
    assert found == {
        seed: pytest.approx(values, rel=tolerance, abs=0.0)
        for seed, values in RECORDED[case].items()
    }
