"""Invitations of an issuer who is no party: servers admit nobody whom it did not invite."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.service.deployed import ADDRESSES, KEYS, SECRETS, Deployed, definition_of, deployed
from tests.service.fronted import Fronted, fronted, small

from tacit.aggregation.masking_rounds import MaskingReports
from tacit.client import Acceptance
from tacit.client.invitations import without_secret
from tacit.client.trust_models import reporter
from tacit.client.trust_models.masking import MaskingReporter, _key
from tacit.errors import Rejected, TacitError
from tacit.service import invitations
from tacit.service.assignment import Assigned, Ticket
from tacit.service.errors import Forbidden
from tacit.service.issuers import create_issuer, issuer_secret, read_issuer
from tacit.service.schema import Stage
from tacit.terms import OBEDIENT, check_live, in_words

INVITED = {"admission": "invitation", "issuer": KEYS[2]}
SHARED = ("shuffler", "secure-aggregation")


def request_slot(one: Deployed, invitation: str | None) -> Assigned | Rejected:
    (answer,) = one.coordinator.join([Ticket(one.digest, os.urandom(16), invitation)])
    return answer


@pytest.mark.parametrize("trust", SHARED)
def test_only_invitations_of_the_issuer_are_accepted(tmp_path: Path, trust: str) -> None:
    with deployed(definition_of(trust, **INVITED), tmp_path) as one:
        one.step(2)
        for nobody in (None, *(made for n in (0, 1) for made in one.invitations(1, SECRETS[n]))):
            assert isinstance(request_slot(one, nobody), Forbidden), "a party signed it, or nobody"
        (invitation,) = one.invitations(1)
        assert isinstance(request_slot(one, invitation), Assigned)
        assert isinstance(request_slot(one, invitation), Forbidden), "each is for one participation"


def test_the_shuffler_rejects_participants_invented_by_the_coordinator(
    tmp_path: Path,
) -> None:
    """A malicious coordinator gives a slot without an invitation; the shuffler rejects it."""
    with deployed(definition_of("shuffler", **INVITED), tmp_path) as one:
        one.step(2)
        (assigned,) = one.join(1)
        assert assigned.slot is not None
        assert one.helper is not None
        identity, helper = one.identity(assigned), one.pinned.terms.helper
        assert helper is not None
        message = one.report(assigned, 1)[helper]
        (forged,) = invitations.make(one.digest, SECRETS[0], 1)
        for signed in (None, forged):
            with pytest.raises(Forbidden, match="the invitation is"):
                one.helper.report(identity, assigned.slot.number, message, signed)
        (invited,) = invitations.make(one.digest, SECRETS[2], 1)
        waiting = one.helper.report(identity, assigned.slot.number, message, invited)
        assert one.helper.keep([waiting]) == [None]


def test_a_coordinator_cannot_reuse_invitations_that_it_receives(tmp_path: Path) -> None:
    """It kept those of participants whom it gave no slot, and filled rounds with its own
    participants.
    """
    with fronted(small("shuffler", **INVITED), tmp_path) as one:
        one.step(3)
        invited = one.invitations(3)
        guests = [one.device() for _ in invited]
        for device, invitation in zip(guests, invited, strict=True):
            assert device.join(one.digest, invitation).asked
        bodies = [
            json.loads(each.request.content)
            for each in one.router.seen
            if each.request.url.path.endswith("/places")
        ]
        stolen = [body["invitation"] for body in bodies]
        assert len(stolen) == len(invited)
        assert not set(stolen) & set(invited)
        assert isinstance(request_slot(one, stolen[0]), Forbidden), "used by its owner"
        assert isinstance(request_slot(one, invited[0]), Forbidden), (
            "it is one invitation in both forms"
        )
        fresh, *_ = one.invitations(1)
        assert fresh is not None
        assigned = request_slot(one, without_secret(fresh))
        assert isinstance(assigned, Assigned)
        assert assigned.slot is not None
        assert one.helper is not None
        message = one.report(assigned, 1)[1]
        about = one.identity(assigned), assigned.slot.number, message
        for shown in (stolen[0], without_secret(fresh)):
            with pytest.raises(Forbidden, match="the invitation is invalid"):
                one.helper.report(*about, shown)
        assert one.helper.keep([one.helper.report(*about, fresh)]) == [None]
        one.clock.now += 45
        for device in guests:
            device.run_due()
            assert [share.sent is not None for share in device.status()[0].shares] == [True]
            assert device.ledger.spent_delta == one.pinned.terms.delta_cost > 0


def test_a_coordinator_of_secure_aggregation_can_invent_clients_despite_an_issuer(
    tmp_path: Path,
) -> None:
    """Nobody but the coordinator checks invitations there, so a careful device does not join.

    Devices joined, though all others in the round could be invented: the coordinator subtracts
    what it made up, and is left with one participant's number and one share of the noise.
    """
    with fronted(small("secure-aggregation", **INVITED), tmp_path) as one:
        one.step(3)
        invitation, again = one.invitations(2)
        careful = one.device()
        careful._accept = Acceptance()
        with pytest.raises(Rejected, match="could invent all other participants"):
            careful.join(one.digest, invitation)
        victim = one.device()
        assert victim.join(one.digest, again).asked
        (mine,) = victim.ledger.running()
        served, row = one.coordinator.staged(mine.identity), one.coordinator.round(mine.identity)
        numbers = [number for number in range(row.slots) if number != mine.slot.number]
        invented = [Assigned("", row.announcement, slot) for slot in served.slots(numbers)]
        assert set(one.send([(each, one.report(each, 0)) for each in invented])) == {None}
        made_up = sum(kept.numbers[0] for kept in sessions(one).values())
        one.clock.now += 45
        victim.run_due()
        (hidden,) = sessions(one)[_key(mine)].numbers
        one.clock.now += 155
        for _ in range(8):
            one.step()
            victim.run_due()
            one.running = [each for each in one.running if one._answered(each)]
        assert one.coordinator.round(mine.identity).stage is Stage.RELEASED
        released = MaskingReports(one.pinned, row.announcement, one.coordinator.records).view()
        modulus = served.round.modulus
        assert (released.numbers[0] - made_up - hidden) % modulus == 0


def sessions(one: Fronted) -> dict[tuple[bytes, int, bytes], Any]:
    found = reporter(one.pinned.terms)
    assert isinstance(found, MaskingReporter)
    return dict(found._sessions)


@pytest.mark.parametrize("trust", SHARED)
def test_where_devices_share_the_noise_no_party_is_the_issuer(trust: str) -> None:
    for key in KEYS[: 2 if trust == "shuffler" else 1]:
        defined = definition_of(trust, admission="invitation", issuer=key)
        with pytest.raises(Rejected, match="must be a key of no party"):
            check_live(defined.terms(ADDRESSES[0], KEYS[0]))


@pytest.mark.parametrize("trust", ["two-servers", "local", *SHARED])
def test_open_admission_is_stated_first_and_needs_consent(trust: str) -> None:
    """The guarantee begins with it, wherever devices share the noise and one party admits them."""
    terms = definition_of(trust).terms(ADDRESSES[0], KEYS[0])
    words, shared = in_words(terms), trust in SHARED
    assert (OBEDIENT in words) == shared
    if shared:
        guarantee = next(n for n, line in enumerate(words) if "had answered differently" in line)
        assert words.index(OBEDIENT) == guarantee - 1
        with pytest.raises(Rejected, match="could invent all other participants"):
            Acceptance().check(terms)
        invited = definition_of(trust, **INVITED).terms(ADDRESSES[0], KEYS[0])
        assert (OBEDIENT in in_words(invited)) == (trust == "secure-aggregation")
    else:
        Acceptance().check(terms)


def test_an_issuer_has_a_key_and_a_card(tmp_path: Path) -> None:
    key = create_issuer(tmp_path / "issuer")
    assert read_issuer(tmp_path / "issuer" / "card.toml") == key
    assert (tmp_path / "issuer" / "issuer.key").stat().st_mode & 0o777 == 0o600
    secret = issuer_secret(tmp_path / "issuer", key)
    (made,) = invitations.make(bytes(32), secret, 1)
    assert invitations.check(made, bytes(32), key)
    with pytest.raises(TacitError, match="never overwritten"):
        create_issuer(tmp_path / "issuer")
    with pytest.raises(TacitError, match="the terms name another issuer's key"):
        issuer_secret(tmp_path / "issuer", KEYS[0])
    card = tmp_path / "other.toml"
    card.write_text((tmp_path / "issuer" / "card.toml").read_text().replace("issuer", "helper"))
    with pytest.raises(TacitError, match="is the card of a helper"):
        read_issuer(card)
    with pytest.raises(TacitError, match="cannot be read"):
        read_issuer(tmp_path / "missing.toml")
    card.write_text("role = 1")
    with pytest.raises(TacitError, match="is not an issuer's card"):
        read_issuer(card)
