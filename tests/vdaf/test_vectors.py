"""The VDAF draft's test vectors, and tacit's own, byte for byte.

The draft's are read from the folder that TACIT_VDAF_VECTORS names, or from shared/vectors/vdaf
beside the repository.
"""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("Crypto", reason="verified sums need pycryptodome: pip install '.[verified]'")

from tests.vdaf.replay import Replay, kind_of, replay_of

from tacit.vdaf.field import MODULUS, pack
from tacit.vdaf.xof import expand, stream

HERE = Path(__file__).parent
OWN = sorted((HERE / "vectors").glob("*.json"))
FOLDER = Path(
    os.environ.get("TACIT_VDAF_VECTORS") or HERE.parents[2] / "shared" / "vectors" / "vdaf"
)
DRAFTS = sorted(FOLDER.glob("*.json"))
MAKE = runpy.run_path(str(HERE / "make_vectors.py"))
FIELD128 = 2**66 * 4611686018427387897 + 1


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def check(file: Path) -> None:
    """Replays a vector; skips, by name, what is not for two aggregators or of another kind."""
    vector = read(file)
    if file.stem.startswith("XofTurboShake128"):
        return check_xof(vector)
    replay = replay_of(file.stem, vector)
    if replay is None:
        pytest.skip(f"{file.name} is about another function than those of tacit.vdaf")
    if vector["shares"] != 2:
        pytest.skip(f"{file.name} is for {vector['shares']} aggregators; here there are two")
    rejected = replay.run()
    assert len(rejected) == sum(not step["success"] for step in vector["operations"])
    return None


def check_xof(vector: dict[str, Any]) -> None:
    seed, tag, binder = (bytes.fromhex(vector[name]) for name in ("seed", "dst", "binder"))
    assert stream(seed, tag, binder).read(32).hex() == vector["derived_seed"]
    source, numbers = stream(seed, tag, binder), list[bytes]()
    while len(numbers) < vector["length"]:
        word = source.read(16)
        numbers += [word] if int.from_bytes(word, "little") < FIELD128 else []
    assert b"".join(numbers).hex() == vector["expanded_vec_field128"]
    ours, words = pack(expand(seed, tag, binder, 20)), stream(seed, tag, binder).read(20 * 8)
    assert ours == words  # of 20 words none is beyond the field but with probability 2^-27


@pytest.mark.parametrize("file", DRAFTS, ids=lambda file: file.stem)
def test_the_test_vectors_of_the_draft_are_reproduced_byte_for_byte(file: Path) -> None:
    check(file)


def test_there_are_test_vectors_of_the_draft() -> None:
    if not DRAFTS:
        pytest.skip(
            f"no vectors in {FOLDER}: nothing was compared with the draft; name a folder of its "
            "test_vec/vdaf files in TACIT_VDAF_VECTORS"
        )
    assert any(file.stem.startswith("Prio3") for file in DRAFTS)


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.stem)
def test_tacits_own_vectors_verify(file: Path) -> None:
    check(file)


def test_tacits_own_vectors_are_reproduced() -> None:
    assert MAKE["vectors"]() == {file.stem: read(file) for file in OWN}


@pytest.mark.parametrize("field", ["input_shares", "verifier_shares", "out_shares", "agg_shares"])
def test_an_altered_vector_is_detected(field: str) -> None:
    """The comparison can fail: each of the values that a vector fixes is looked at."""
    vector = read(HERE / "vectors" / "Prio3Sum_tacit_6.json")
    holder = vector if field == "agg_shares" else vector["reports"][1]
    values = holder[field][0] if field == "verifier_shares" else holder[field]
    flipped = bytes((bytes.fromhex(values[0])[0] ^ 1,)) + bytes.fromhex(values[0])[1:]
    values[0] = flipped.hex()
    prio3 = kind_of("Prio3Sum_", vector)
    assert prio3 is not None
    with pytest.raises(AssertionError):
        Replay(vector, prio3=prio3).run()


def test_words_outside_the_field_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """One word of 2^32 is beyond the field, so that no vector has one."""
    words = [MODULUS, 5, 2**64 - 1, MODULUS - 1, 7, 8]
    data = b"".join(word.to_bytes(8, "little") for word in words)

    class Given:
        at = 0

        def read(self, size: int) -> bytes:
            self.at += size
            return data[self.at - size : self.at]

    monkeypatch.setattr("tacit.vdaf.xof.stream", lambda *_: Given())
    assert expand(b"", b"", b"", 3) == [5, MODULUS - 1, 7]
