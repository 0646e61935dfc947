"""The committed test vectors: deterministic derivations are reproduced, ciphertexts decrypt as
stated.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.aggregation import (
    HpkeSuite,
    MaskingRound,
    PrivateKey,
    ShufflerSession,
    masks,
    shamir,
)

FOLDER = Path(__file__).parent
MAKE = runpy.run_path(str(FOLDER / "make_vectors.py"))


def vectors(name: str) -> Any:
    return json.loads((FOLDER / "vectors" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["primitives", "masking"])
def test_derivations_from_fixed_bytes_match_the_vectors(name: str) -> None:
    assert MAKE[name]() == vectors(name)


def test_shares_and_masks_match_the_vectors() -> None:
    known = vectors("primitives")
    shares = {
        int(number): bytes.fromhex(share) for number, share in known["shamir"]["shares"].items()
    }
    assert (
        shamir.combine((2, 3, 5), [shares[2], shares[3], shares[5]]).hex()
        == known["shamir"]["secret"]
    )
    for case in known["masks"]:
        numbers = masks.expand(
            bytes.fromhex(case["seed"]), int(case["modulus"]), len(case["numbers"])
        )
        assert numbers == [int(number) for number in case["numbers"]]


def test_the_masking_vector_sums_to_its_survivors() -> None:
    known = vectors("masking")
    announced = MaskingRound.decode(bytes.fromhex(known["round"]))
    assert announced.context.hex() == known["context"]
    staying = [value for place, value in enumerate(known["clients"]["values"]) if place != 2]
    assert known["sum"] == [
        sum(column) % announced.modulus for column in zip(*staying, strict=True)
    ]


def key(sealing: HpkeSuite, private: dict[str, str]) -> tuple[PrivateKey, X25519PrivateKey]:
    lattice = (
        MLKEM768PrivateKey.from_seed_bytes(bytes.fromhex(private["mlkem768_seed"]))
        if sealing is HpkeSuite.HYBRID
        else None
    )
    classical, line = (
        X25519PrivateKey.from_private_bytes(bytes.fromhex(private[name]))
        for name in ("x25519", "line")
    )
    return PrivateKey(sealing, classical, lattice), line


@pytest.mark.parametrize(
    ("name", "length"),
    [*((sealing.name.lower(), 2) for sealing in HpkeSuite), ("seed", 12), ("verified", 2)],
)
def test_the_two_server_vectors_decrypt_to_their_stated_values(name: str, length: int) -> None:
    """Everything but what HPKE draws by itself comes out the same; the committed messages, taken
    by parties that were made anew, open to the committed sum.
    """
    known, verified = vectors(f"two-servers-{name}"), name == "verified"
    if verified:
        pytest.importorskip("Crypto", reason="needs pycryptodome: pip install '.[verified]'")
    sealing = HpkeSuite.X25519_AES if name in ("seed", "verified") else HpkeSuite[name.upper()]
    again = MAKE["two_servers"](sealing, length, verified)
    for entry, value in again.items():
        assert entry in MAKE["DRAWN"]["two-servers"] or value == known[entry], entry
    session = MAKE["two_server_session"](sealing, length, verified)
    for place, report in enumerate(known["halves"]):
        for role in (0, 1) if place != 2 else (0,):
            session.server(role).take(bytes.fromhex(report[role]), session.now)
    late, collector = session.round.binding.closes, session.collector()
    for role in (0, 1):
        session.server(role).take(bytes.fromhex(known["present"][1 - role]), late)
        session.server(role).close(late)
        assert session.server(role).outcome().hex() == known["outcome"][role]
        collector.take(bytes.fromhex(known["partial"][role]))
    collector.close()
    assert list(collector.view().numbers) == known["sum"]
    noise = [2 * (3, -2)[place % 2] for place in range(length)]
    truth = [sum(column) for column in zip(*known["values"][:2], strict=True)]
    modulus = session.round.modulus
    assert known["sum"] == [(a + b) % modulus for a, b in zip(truth, noise, strict=True)]
    assert collector.view().reports == known["reports"] == 2


@pytest.mark.parametrize("sealing", list(HpkeSuite))
def test_the_shuffler_vectors_decrypt_to_their_stated_values(sealing: HpkeSuite) -> None:
    known = vectors(f"mixing-{sealing.name.lower()}")
    session = ShufflerSession(3, 2, 2, 2, sealing, source=MAKE["source"]("mixing round"))
    assert session.announcement.hex() == known["announcement"]
    shuffler, analyzer = session.shuffler, session.analyzer
    for report in known["reports"]:
        shuffler.take(bytes.fromhex(report))
    assert shuffler.full
    analyzer.take(bytes.fromhex(known["batch"]))
    analyzer.close()
    assert sorted(message.hex() for message in analyzer.view().messages) == known["messages"]


def test_regenerating_the_vectors_changes_none(tmp_path: Path) -> None:
    pytest.importorskip("Crypto", reason="needs pycryptodome: pip install '.[verified]'")
    committed = {path.name: path.read_bytes() for path in (FOLDER / "vectors").iterdir()}
    for name, content in committed.items():
        (tmp_path / name).write_bytes(content)
    MAKE["main"](tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == committed
    other = vectors("two-servers-hybrid") | {"sum": [1, 2]}
    (tmp_path / "two-servers-hybrid.json").write_text(json.dumps(other))
    (tmp_path / "masking.json").unlink()
    MAKE["main"](tmp_path)
    assert (tmp_path / "masking.json").read_bytes() == committed["masking.json"]
    again = json.loads((tmp_path / "two-servers-hybrid.json").read_text(encoding="utf-8"))
    assert again["sum"] == vectors("two-servers-hybrid")["sum"]
