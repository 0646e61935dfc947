"""Attacks over HTTP on each trust model by strangers, devices and parties.

Every attack is answered with a rejection, stores nothing, and the round is released as if it had
not happened. `test_hostile.py` has the attacks that do not depend on the trust model.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sql
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.service.deployed import ADDRESSES, SECRETS
from tests.service.fronted import MODELS, Fronted, fronted, small

from tacit.aggregation import ReportSlot
from tacit.aggregation.masking_rounds import SLOWEST_STAGE, MaskingReports
from tacit.aggregation.wire import Kind, header
from tacit.client.entries import OpenParticipation
from tacit.client.exchange import Reply
from tacit.client.trust_models import reporter
from tacit.client.trust_models.masking import MaskingReporter, _answer, _key
from tacit.errors import Rejected
from tacit.records import RecordDirectory
from tacit.service import schema
from tacit.service.http.calls import new_call
from tacit.service.http.stages import MOST_HELD
from tacit.service.pending import PendingShares
from tacit.service.schema import Stage
from tacit.service.store import Store

REJECTED = (403, 409, 413, 422)
OVER = (404, 410)


@dataclass
class Guest:
    """A device by hand: its slot, and what it sends to whom."""

    running: OpenParticipation
    sent: dict[int, bytes]

    @property
    def path(self) -> str:
        return f"/rounds/{self.running.identity.hex()}/reports/{self.running.slot.number}"


class Scene:
    """One open round of each option, full of devices that have not sent anything."""

    def __init__(self, one: Fronted) -> None:
        self.one, self.terms = one, one.pinned.terms
        one.step(3)
        self.guests = []
        for assigned in one.join(one.wanted()):
            sent = dict(one.report(assigned, 0))
            self.guests.append(Guest(one.running[-1], sent))

    def address(self, role: int) -> str:
        return ADDRESSES[0 if role == self.terms.leader else 1]

    def put(self, role: int, path: str, content: bytes, **headers: str) -> int:
        url = self.address(role) + path
        return self.one.request("PUT", url, content=content, headers=headers).status_code

    def send(self, guest: Guest) -> list[int]:
        return [self.put(role, guest.path, said) for role, said in guest.sent.items()]

    def stored(self) -> int:
        """Reports that wait at all parties."""
        count = sql.select(sql.func.count()).select_from(schema.shares)
        found = 0
        for each in self.one.stores:
            with each.read() as transaction:
                found += transaction.rows(count)[0][0]
        return int(found)

    def finish(self) -> dict[bytes, int]:
        """The deadline passes; released reports by round."""
        self.one.clock.now += 200
        self.one.step(4)
        return self.released()

    def released(self) -> dict[bytes, int]:
        """Devices answer the stages that are left; released reports by round."""
        self.one.answer_stages()
        self.one.step(2)
        rows = self.one.coordinator.rounds(Stage.RELEASED)
        return {row.identity: row.reports or 0 for row in rows}

    def all_released(self) -> None:
        """All participants report, and every report counts once."""
        for guest in self.guests:
            assert set(self.send(guest)) == {204}
        released = self.finish()
        assert sum(released.values()) == len(self.guests)


class Copied(dict[bytes, bytes]):
    """The stored messages of a round, as they were."""

    def without(self, known: Collection[bytes]) -> list[tuple[bytes, bytes]]:
        """Those that are not known."""
        return [(name, content) for name, content in self.items() if name not in known]


@pytest.fixture(params=MODELS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with fronted(small(request.param), tmp_path) as one:
        yield Scene(one)


def test_forged_foreign_and_oversized_reports_are_not_stored(scene: Scene) -> None:
    first, second = scene.guests[0], scene.guests[1]
    other = next(g for g in scene.guests if g.running.identity != first.running.identity)
    slot = first.running.slot
    forged = replace(first.running, slot=ReportSlot(slot.number, bytes(16)))
    stolen = replace(first.running, slot=second.running.slot)
    elsewhere = replace(first.running, slot=other.running.slot)
    fresh = MaskingReporter() if scene.terms.kind == "masking" else reporter(scene.terms)
    for role, whole in first.sent.items():
        attacks = {
            "forged token": fresh.encode(forged)[role],
            "foreign slot": fresh.encode(stolen)[role],
            "slot of another round": fresh.encode(elsewhere)[role],
            "replay of another slot": second.sent[role],
            "replay of another round": other.sent[role],
            "cut": whole[:-1],
            "longer": whole + b"x",
            "oversized": whole + bytes(1 << 20),
            "noise": os.urandom(len(whole)),
            "empty": b"",
        }
        for what, content in attacks.items():
            assert scene.put(role, first.path, content) in REJECTED, (role, what)
    assert scene.stored() == 0
    scene.all_released()


def test_a_replayed_report_counts_once_and_a_second_one_does_not(scene: Scene) -> None:
    first = scene.guests[0]
    assert set(scene.send(first)) == {204}
    before = scene.stored()
    assert set(scene.send(first)) == {204}
    fresh = MaskingReporter() if scene.terms.kind == "masking" else reporter(scene.terms)
    again = Guest(first.running, dict(fresh.encode(first.running)))
    assert set(scene.send(again)) <= set(REJECTED)
    assert scene.stored() == before
    for guest in scene.guests[1:]:
        assert set(scene.send(guest)) == {204}
    assert sum(scene.finish().values()) == len(scene.guests)
    assert scene.put(next(iter(first.sent)), first.path, next(iter(first.sent.values()))) in OVER


def test_nothing_is_released_before_the_deadline_of_a_partial_round(scene: Scene) -> None:
    """An early close, also where the coordinator asks the helper for one."""
    for guest in scene.guests[:-2]:
        scene.send(guest)
    scene.one.step(4)
    early = {row.identity for row in scene.one.coordinator.rounds(Stage.RELEASED, Stage.ABORTED)}
    waiting = {guest.running.identity for guest in scene.guests[-2:]}
    assert not early & waiting
    if scene.one.helper is not None and scene.one.link is not None:
        for identity in waiting:
            assert scene.one.link.exchange(identity, b"")[1] == b""
    for guest in scene.guests[-2:]:
        assert set(scene.send(guest)) == {204}, "the round is still open"
    assert sum(scene.finish().values()) == len(scene.guests)


def test_calls_with_forged_or_replayed_signatures_are_rejected(scene: Scene) -> None:
    if scene.one.helper is None:
        pytest.skip("this trust model has no helper")
    identity, digest = scene.guests[0].running.identity, scene.terms.digest
    path, body = f"/rounds/{identity.hex()}/exchange", json.dumps({"listing": ""}).encode()

    def called(key: Ed25519PrivateKey) -> dict[str, str]:
        return new_call(path, digest, body, key) | {"content-type": "application/json"}

    def status(headers: dict[str, str]) -> int:
        url = ADDRESSES[1] + path
        return scene.one.request("POST", url, content=body, headers=headers).status_code

    right = called(SECRETS[0])
    assert status(right) == 200
    assert status(right) == 403, "the same call again"
    for forger in (SECRETS[1], SECRETS[2], Ed25519PrivateKey.generate()):
        assert status(called(forger)) == 403
    scene.all_released()


# The shuffler


@pytest.fixture
def shuffled(tmp_path: Path) -> Iterator[Scene]:
    with fronted(small("shuffler"), tmp_path) as one:
        yield Scene(one)


def test_the_shuffler_forwards_one_batch_whatever_is_stored(shuffled: Scene) -> None:
    """Envelopes that vanish or come back after the permutation change nothing."""
    one = shuffled.one
    for guest in shuffled.guests:
        assert set(shuffled.send(guest)) == {204}
    for file in one.directory.glob("helper.db*"):
        shutil.copy(file, file.with_suffix(file.suffix + ".copy"))
    one.clock.now += 200
    assert one.helper is not None
    identities = [row.identity for row in one.helper.rounds(*schema.LIVE)]
    first = {identity: one.helper.exchange(identity, b"")[1] for identity in identities}
    assert all(first.values())
    one.down()
    for each in one.stores:
        each.close()
    for file in one.directory.glob("helper.db*.copy"):
        file.rename(file.with_suffix(""))
    one.restart()
    with one.stores[1].begin() as transaction:
        some = sql.select(schema.shares.c.name).limit(2).scalar_subquery()
        some_shares = sql.delete(schema.shares).where(schema.shares.c.name.in_(some))
        transaction.change(some_shares, {})
    for identity in identities:
        assert one.helper is not None
        assert one.helper.exchange(identity, b"")[1] == first[identity]
    assert sum(shuffled.finish().values()) == len(shuffled.guests)


def test_the_analyzer_rejects_a_second_batch(
    shuffled: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = shuffled.one
    shuffled.all_released()
    before = {row.identity: row.total for row in one.coordinator.rounds(Stage.RELEASED)}
    assert one.link is not None
    asked: list[bytes] = []

    def again(identity: bytes, _message: bytes) -> tuple[bytes, bytes]:
        asked.append(identity)
        return b"", os.urandom(64)

    monkeypatch.setattr(one.link, "exchange", again)
    one.step(3)
    assert not set(asked) & set(before)
    after = {row.identity: row.total for row in one.coordinator.rounds(Stage.RELEASED)}
    assert after == before


# Secure aggregation


@pytest.fixture
def masked(tmp_path: Path) -> Iterator[Scene]:
    with fronted(small("secure-aggregation"), tmp_path) as one:
        yield Scene(one)


def session_of(scene: Scene, guest: Guest) -> Any:
    """The masking client of a device."""
    found = reporter(scene.terms)
    assert isinstance(found, MaskingReporter)
    return found._sessions[_key(guest.running)]


def asked(scene: Scene, guest: Guest, after: int) -> bytes:
    session = session_of(scene, guest)
    url = f"{ADDRESSES[0]}/rounds/{guest.running.identity.hex()}/messages"
    named = {"Tacit-Slot": guest.running.slot.encode().hex()}
    where = f"{url}/{session.client.address.hex()}/{after}"
    answer = scene.one.request("GET", where, headers=named)
    return answer.content if answer.status_code == 200 else b""


def said(scene: Scene, guest: Guest, content: bytes, slot: ReportSlot | None = None) -> int:
    path = f"/rounds/{guest.running.identity.hex()}/messages"
    named = (slot or guest.running.slot).encode().hex()
    return scene.put(0, path, content, **{"Tacit-Slot": named})


def stage(scene: Scene, after: int) -> dict[int, bytes]:
    """All devices answer this stage; their answers by slot of the first round."""
    answers = {}
    for guest in scene.guests:
        session = session_of(scene, guest)
        content = _answer(session, asked(scene, guest, after))
        assert said(scene, guest, content) == 204
        session.after += 1
        if guest.running.identity == scene.guests[0].running.identity:
            answers[guest.running.slot.number] = content
    scene.one.step(2)
    return answers


def begun(scene: Scene) -> None:
    for guest in scene.guests:
        assert set(scene.send(guest)) == {204}
    scene.one.clock.now += 200
    scene.one.step(3)


def test_unauthenticated_and_stale_stage_messages_change_nothing(masked: Scene) -> None:
    first, second = masked.guests[0], masked.guests[1]
    begun(masked)
    sent = stage(masked, 0)[first.running.slot.number]
    changed = sent[:-1] + bytes([sent[-1] ^ 1])
    before = masked.stored()
    for content, slot, statuses in (
        (changed, None, REJECTED),  # another message of a stage that is over
        (sent, ReportSlot(first.running.slot.number, bytes(16)), (403,)),
        (sent, ReportSlot(1 << 20, first.running.slot.token), REJECTED),
        (sent + bytes(1 << 12), None, (413,)),
        (os.urandom(200), None, REJECTED),
        (b"", None, REJECTED),
    ):
        assert said(masked, first, content, slot) in statuses
    assert said(masked, first, sent) == 204, "the same bytes again"
    assert masked.stored() == before
    stale = said(masked, second, sent)  # another device's message under this slot
    assert stale in (204, *REJECTED)
    assert sum(masked.released().values()) == len(masked.guests)
    assert said(masked, first, sent) in OVER


def test_early_stage_messages_take_no_slot_of_others(masked: Scene) -> None:
    """Each stored message counted as a report: a ninth of the devices closed a round for all."""
    first = masked.guests[0]
    same = [g for g in masked.guests if g.running.identity == first.running.identity]
    kinds = (Kind.SHARES, Kind.CHECKED, Kind.MASKED, Kind.ACCUSED, Kind.KEYS, Kind.SEEDS)
    for guest in same[: len(same) // len(kinds) + 1]:
        for kind in kinds:
            early = header(kind, first.running.identity) + bytes(200)
            assert said(masked, guest, early) in REJECTED
    assert masked.stored() == 0
    masked.one.step(3)
    masked.all_released()


def test_a_stage_path_accepts_one_method(masked: Scene) -> None:
    """A GET stored the answer in its body, and a PUT was a question."""
    guest = masked.guests[0]
    begun(masked)
    answer = _answer(session_of(masked, guest), asked(masked, guest, 0))
    url = f"{ADDRESSES[0]}/rounds/{guest.running.identity.hex()}/messages"
    where = f"{url}/{session_of(masked, guest).client.address.hex()}/0"
    named, before = {"Tacit-Slot": guest.running.slot.encode().hex()}, masked.stored()
    for method, path in (("GET", url), ("POST", url), ("PUT", where), ("POST", where)):
        found = masked.one.request(method, path, content=answer, headers=named)
        assert (found.status_code, found.json()["type"]) == (405, "/problems/method-not-allowed")
    assert masked.stored() == before
    assert said(masked, guest, answer) == 204


def test_the_first_of_two_slots_in_a_header_needs_its_token(masked: Scene) -> None:
    guest, other = masked.guests[:2]
    begun(masked)
    answer = _answer(session_of(masked, guest), asked(masked, guest, 0))
    path = f"/rounds/{guest.running.identity.hex()}/messages"
    forged = ReportSlot(other.running.slot.number, bytes(16))
    slots = [("Tacit-Slot", one.encode().hex()) for one in (forged, guest.running.slot)]
    before = masked.stored()
    for headers in (slots, slots[::-1]):
        found = masked.one.request("PUT", ADDRESSES[0] + path, content=answer, headers=headers)
        assert found.status_code in (204, *REJECTED)
    assert masked.stored() <= before + 1  # under the slot whose token was given


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    kind = answer.headers["content-type"]
    return answer.status_code, kind, answer.json()["type"] if answer.content else ""


CLOSED = (410, "application/problem+json", "/problems/round-closed")


def test_a_late_device_learns_that_the_round_is_closed(masked: Scene) -> None:
    """410 ends a device's part for good; 404 and 503 would let it ask again or join elsewhere."""
    one, (guest, late) = masked.one, masked.guests[:2]
    rounds = f"{ADDRESSES[0]}/rounds/{guest.running.identity.hex()}"
    named = {"Tacit-Slot": guest.running.slot.encode().hex()}
    one.clock.now += 200
    report = one.request("PUT", ADDRESSES[0] + late.path, content=late.sent[0])
    assert problem(report) == CLOSED  # past the deadline, before any stage
    one.clock.now -= 200
    begun(masked)
    again = one.request("PUT", ADDRESSES[0] + late.path, content=late.sent[0])
    assert problem(again) == CLOSED  # stages have begun
    stranger = one.request("GET", f"{rounds}/messages/{'ab' * 32}/0", headers=named)
    assert problem(stranger) == CLOSED  # nobody joined under this address
    where = f"{rounds}/messages/{session_of(masked, guest).client.address.hex()}/0"
    setup = one.request("GET", where, headers=named)
    assert setup.status_code == 200
    answer = _answer(session_of(masked, guest), setup.content)
    one.coordinator.staged(guest.running.identity).abort()  # by another process: the row is open
    for method, path, content in (("GET", where, b""), ("PUT", f"{rounds}/messages", answer)):
        found = one.request(method, path, content=content, headers=named)
        assert problem(found) == CLOSED


def test_unauthenticated_clients_hold_no_long_poll_and_slots_only_few(masked: Scene) -> None:
    """Held questions count as connections in use: without a limit they kept everybody else out."""
    guest = masked.guests[0]
    slot, path = (
        guest.running.slot,
        f"/rounds/{guest.running.identity.hex()}/messages/{'ab' * 32}/0",
    )
    forged = ReportSlot(slot.number, bytes(16))
    for headers, status in (({}, 422), ({"Tacit-Slot": forged.encode().hex()}, 403)):
        assert masked.one.request("GET", ADDRESSES[0] + path, headers=headers).status_code == status
    front = masked.one.router.clients["coordinator.example"].app
    named = {"Tacit-Slot": slot.encode().hex()}

    async def several() -> list[int]:
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESSES[0]) as client:
            asked = [client.get(path, headers=named) for _ in range(MOST_HELD + 3)]
            return [one.status_code for one in await asyncio.gather(*asked)]

    for _ in range(2):  # all are let go
        assert sorted(asyncio.run(several())) == [204] * MOST_HELD + [503] * 3


def test_a_device_reveals_for_one_set_of_survivors(masked: Scene) -> None:
    """A coordinator that goes back to an older state, without one masked report, asks again."""
    one, witness = masked.one, masked.guests[0]
    begun(masked)
    stage(masked, 0)
    stage(masked, 1)
    answers = {}
    for guest in masked.guests:
        session = session_of(masked, guest)
        answers[guest.running.slot, guest.running.identity] = _answer(
            session, asked(masked, guest, 2)
        )
    late = next(
        g for g in reversed(masked.guests) if g.running.identity == witness.running.identity
    )
    for guest in masked.guests:
        if guest is not late:
            assert said(masked, guest, answers[guest.running.slot, guest.running.identity]) == 204
    identity = witness.running.identity
    shutil.copytree(one.directory / "keys0", one.directory / "older")
    table = Copied(PendingShares(one.stores[0], identity).items())
    row = one.coordinator.round(identity)
    older = MaskingReports(one.pinned, row.announcement, RecordDirectory(one.directory / "older"))
    older.advance(table, one.clock.now)
    older.advance(table, one.clock.now + SLOWEST_STAGE + 1)  # the late one has dropped out
    address = session_of(masked, witness).client.address
    fewer = older.next_message(address, 3)
    assert said(masked, late, answers[late.running.slot, late.running.identity]) == 204
    one.step(2)
    everybody = asked(masked, witness, 3)
    assert everybody
    assert fewer
    revealed = _answer(session_of(masked, witness), everybody)
    assert _answer(session_of(masked, witness), everybody) == revealed
    with pytest.raises(Rejected, match="it answers no request about dropouts"):
        _answer(session_of(masked, witness), fewer)


def test_participants_with_the_same_slot_share_no_session(masked: Scene) -> None:
    """The second one's client answered for the first, also after the second had withdrawn."""
    first, model = masked.guests[0], reporter(masked.terms)
    begun(masked)
    own = session_of(masked, first)
    other = replace(first.running, seed=bytes([1]) * 32)
    model.encode(other)
    assert session_of(masked, first) is own
    model.forget(other)
    assert sum(masked.released().values()) == len(masked.guests)


def test_concurrent_answers_for_a_device_lose_no_message(masked: Scene) -> None:
    """A reporter in the background beside the app's own call: message 2 was asked for after 0."""
    one, guest = masked.one, masked.guests[0]
    begun(masked)
    url = f"{ADDRESSES[0]}/rounds/{guest.running.identity.hex()}"
    both = [reporter(masked.terms).stages(guest.running, url, one.clock.now) for _ in range(2)]
    asking = [next(talk) for talk in both]
    assert {request.url.rsplit("/", 1)[1] for request in asking} == {"0"}
    setup = Reply(200, asked(masked, guest, 0))
    answers = [talk.send(setup) for talk in both]
    assert answers[0] == answers[1]
    later = [talk.send(Reply(said(masked, guest, answers[0].content))) for talk in both]
    assert {request.url.rsplit("/", 1)[1] for request in later} == {"1"}
    assert session_of(masked, guest).after == 1


def test_the_helpers_public_signature_causes_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each repetition by anybody was a durable transaction that locked the experiment."""
    with fronted(small("two-servers"), tmp_path) as one:
        url = f"{ADDRESSES[0]}/experiments/{one.digest.hex()}"
        _, published = one.request("GET", f"{url}/terms").json()["signatures"]
        monkeypatch.setattr(Store, "begin", None)
        answer = one.request("POST", f"{url}/cosignature", json={"signature": published})
        assert answer.status_code == 204
        monkeypatch.undo()
