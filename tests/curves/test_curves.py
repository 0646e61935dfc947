import json

import pytest
from tests.curves.record import CASES, PRINTED, RECORD, simulated
from tests.tables import extended_but_every

SAID = json.loads(PRINTED.read_text(encoding="utf-8"))
RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))
FEDERATED = 1e-12  # sums over silos may be added up in another order


def test_every_recorded_case_is_still_run() -> None:
    assert set(RECORDED) == set(SAID) == set(CASES)


@pytest.mark.parametrize("case", extended_but_every(2, zip(CASES)))
def test_the_curve_is_the_recorded_one(case: str) -> None:
    tolerance = FEDERATED if "linucb" in case else 0.0
    found, printed = simulated(case)
    assert printed == SAID[case]
    assert found == {
        seed: pytest.approx(values, rel=tolerance, abs=0.0)
        for seed, values in RECORDED[case].items()
    }
