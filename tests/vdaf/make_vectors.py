"""Write tacit's own vectors in the layout of the VDAF draft: `python tests/vdaf/make_vectors.py`.

They hold what the draft's published ones do not: limits that are no power of two less one, of one
bit and of many, several nonces, and shares that are no shares, rejected at the first step. What is
written was computed by this implementation, whose agreement with the draft rests on the draft's
own vectors.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tacit.vdaf import (
    HISTOGRAM_RANDOM_SIZE,
    KEY_SIZE,
    NONCE_SIZE,
    RANDOM_SIZE,
    Prio3,
    Prio3Histogram,
    prio3_count,
    prio3_histogram,
    prio3_sum,
)
from tacit.vdaf.field import FIELD128, MODULUS, pack

FOLDER = Path(__file__).parent / "vectors"


def drawn(label: str, size: int) -> bytes:
    """Bytes that follow from a label."""
    return hashlib.shake_256(b"tacit vdaf vector " + label.encode()).digest(size)


def made(name: str, prio3: Prio3, measurements: list[int]) -> dict[str, Any]:
    """A vector of valid reports, from the first step to the last."""
    context, key = drawn(f"{name} context", 32), drawn(f"{name} key", KEY_SIZE)
    operations: list[dict[str, Any]] = []
    reports, outputs = [], list[list[int]]([[], []])
    for index, measurement in enumerate(measurements):
        about = {"report_index": index, "success": True}
        nonce = drawn(f"{name} nonce {index}", NONCE_SIZE)
        rand = drawn(f"{name} rand {index}", RANDOM_SIZE)
        shares = prio3.shard(context, measurement, nonce, rand)
        asked = prio3.question(key, context, nonce)
        both = [prio3.verify_init(asked, context, role, shares[role]) for role in (0, 1)]
        message = prio3.verifier_shares_to_message(both[0].share, both[1].share)
        operations.append({"operation": "shard", **about})
        for role in (0, 1):
            operations.append({"operation": "verify_init", "aggregator_id": role, **about})
            outputs[role].append(prio3.verify_next(both[role], message))
        operations.append({"operation": "verifier_shares_to_message", "round": 0, **about})
        operations += [
            {"operation": "verify_next", "aggregator_id": role, "round": 1, **about}
            for role in (0, 1)
        ]
        reports.append(
            {
                "measurement": measurement,
                "nonce": nonce.hex(),
                "rand": rand.hex(),
                "public_share": "",
                "input_shares": [share.hex() for share in shares],
                "verifier_shares": [[one.share.hex() for one in both]],
                "verifier_messages": [message.hex()],
                "out_shares": [pack([outputs[role][-1]]).hex() for role in (0, 1)],
            }
        )
    operations += [
        {"operation": "aggregate", "aggregator_id": role, "success": True} for role in (0, 1)
    ]
    operations.append({"operation": "unshard", "success": True})
    limit = {} if prio3.number == 1 else {"max_measurement": prio3.circuit.limit}
    return limit | {
        "shares": 2,
        "verify_key": key.hex(),
        "agg_param": "",
        "ctx": context.hex(),
        "operations": operations,
        "reports": reports,
        "agg_shares": [pack([prio3.aggregate(outputs[role])]).hex() for role in (0, 1)],
        "agg_result": sum(measurements),
    }


def spoilt(vector: dict[str, Any]) -> dict[str, Any]:
    """The same with an input share that holds a number beyond the field."""
    report = dict(vector["reports"][0])
    share = bytes.fromhex(report["input_shares"][0])
    report["input_shares"] = [
        (MODULUS.to_bytes(8, "little") + share[8:]).hex(),
        report["input_shares"][1],
    ]
    report |= {"measurement": None, "out_shares": [], "verifier_messages": []}
    step = {"operation": "verify_init", "aggregator_id": 0, "report_index": 0, "success": False}
    return vector | {
        "operations": [step],
        "reports": [report],
        "agg_shares": [],
        "agg_result": None,
    }


def unproved(vector: dict[str, Any], prio3: Prio3) -> dict[str, Any]:
    """The same with a proof whose last value is another: rejected when both shares meet."""
    report = dict(vector["reports"][0])
    share = bytes.fromhex(report["input_shares"][0])
    changed = share[:-8] + pack([(int.from_bytes(share[-8:], "little") + 1) % MODULUS])
    context, key = bytes.fromhex(vector["ctx"]), bytes.fromhex(vector["verify_key"])
    asked = prio3.question(key, context, bytes.fromhex(report["nonce"]))
    first = prio3.verify_init(asked, context, 0, changed).share.hex()
    report |= {
        "measurement": None,
        "input_shares": [changed.hex(), report["input_shares"][1]],
        "verifier_shares": [[first, report["verifier_shares"][0][1]]],
        "verifier_messages": [],
        "out_shares": [],
    }
    about = {"report_index": 0}
    steps: list[dict[str, Any]] = [
        {"operation": "verify_init", "aggregator_id": role, "success": True, **about}
        for role in (0, 1)
    ]
    steps.append({"operation": "verifier_shares_to_message", "round": 0, "success": False, **about})
    return vector | {"operations": steps, "reports": [report], "agg_shares": [], "agg_result": None}


def made_histogram(name: str, prio3: Prio3Histogram, measurements: list[int]) -> dict[str, Any]:
    """A vector of valid Prio3Histogram reports."""
    context, key = drawn(f"{name} context", 32), drawn(f"{name} key", KEY_SIZE)
    operations: list[dict[str, Any]] = []
    reports, outputs = [], list[list[list[int]]]([[], []])
    for index, measurement in enumerate(measurements):
        about = {"report_index": index, "success": True}
        nonce = drawn(f"{name} nonce {index}", NONCE_SIZE)
        rand = drawn(f"{name} rand {index}", HISTOGRAM_RANDOM_SIZE)
        public, shares = prio3.shard(context, measurement, nonce, rand)
        asked = prio3.question(key, context, nonce)
        both = [
            prio3.verify_init(asked, context, nonce, role, public, shares[role]) for role in (0, 1)
        ]
        message = prio3.verifier_shares_to_message(context, both[0].share, both[1].share)
        operations.append({"operation": "shard", **about})
        for role in (0, 1):
            operations.append({"operation": "verify_init", "aggregator_id": role, **about})
            outputs[role].append(prio3.verify_next(both[role], message))
        operations.append({"operation": "verifier_shares_to_message", "round": 0, **about})
        operations += [
            {"operation": "verify_next", "aggregator_id": role, "round": 1, **about}
            for role in (0, 1)
        ]
        reports.append(
            {
                "measurement": measurement,
                "nonce": nonce.hex(),
                "rand": rand.hex(),
                "public_share": public.hex(),
                "input_shares": [share.hex() for share in shares],
                "verifier_shares": [[one.share.hex() for one in both]],
                "verifier_messages": [message.hex()],
                "out_shares": [FIELD128.pack(outputs[role][-1]).hex() for role in (0, 1)],
            }
        )
    operations += [
        {"operation": "aggregate", "aggregator_id": role, "success": True} for role in (0, 1)
    ]
    operations.append({"operation": "unshard", "success": True})
    length = prio3.circuit.length
    return {
        "length": length,
        "chunk_length": prio3.circuit.chunk,
        "shares": 2,
        "verify_key": key.hex(),
        "agg_param": "",
        "ctx": context.hex(),
        "operations": operations,
        "reports": reports,
        "agg_shares": [FIELD128.pack(prio3.aggregate(outputs[role])).hex() for role in (0, 1)],
        "agg_result": [measurements.count(bucket) for bucket in range(length)],
    }


def vectors() -> dict[str, dict[str, Any]]:
    """All of them, by the names of their files."""
    made_of = {
        "Prio3Count_tacit": (prio3_count(), [0, 1, 1]),
        "Prio3Sum_tacit_1": (prio3_sum(1), [1, 0]),
        "Prio3Sum_tacit_6": (prio3_sum(6), [0, 3, 4, 6]),
        "Prio3Sum_tacit_1023": (prio3_sum(1023), [0, 511, 512, 1023]),
        "Prio3Sum_tacit_large": (prio3_sum(10**15), [0, 10**15, 123456789]),
    }
    found = {name: made(name, *about) for name, about in made_of.items()}
    found["Prio3Count_tacit_bad_number"] = spoilt(found["Prio3Count_tacit"])
    found["Prio3Sum_tacit_bad_number"] = spoilt(found["Prio3Sum_tacit_6"])
    found["Prio3Sum_tacit_bad_proof"] = unproved(found["Prio3Sum_tacit_6"], prio3_sum(6))
    found["Prio3Histogram_tacit_1"] = made_histogram(
        "Prio3Histogram_tacit_1", prio3_histogram(1), [0, 0]
    )
    found["Prio3Histogram_tacit_16"] = made_histogram(
        "Prio3Histogram_tacit_16", prio3_histogram(16), [0, 15, 7, 7]
    )
    found["Prio3Histogram_tacit_12_5"] = made_histogram(
        "Prio3Histogram_tacit_12_5", prio3_histogram(12, 5), [11, 3]
    )
    return found


if __name__ == "__main__":
    for name, vector in vectors().items():
        text = json.dumps(vector, indent=1, sort_keys=True) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
