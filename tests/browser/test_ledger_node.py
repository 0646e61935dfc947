"""The ledger of the browser's device, in Node: charges, limits, refunds and copies."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from tests.browser.make_vectors import described, local_terms
from tests.browser.test_borders_node import Bits, fewest, kept, local_round
from tests.browser.test_vectors_node import NODE, node
from tests.service.parties import ADDRESSES, KEYS, START, pinned, terms

from tacit.aggregation import announce
from tacit.aggregation.announcements import LiveRound, endorse
from tacit.aggregation.two_servers import RoundOutcome
from tacit.client import Ledger
from tacit.signatures import Signed, public_key, sign
from tacit.terms import Noise, Pinned, StatedGuarantee

SPACING = 1000  # seconds between rounds
TOKEN = bytes(16).hex()
pytestmark = pytest.mark.skipif(NODE is None, reason="the browser's device needs Node.js")


def published(of: Pinned, successor: dict[str, Any] | None = None) -> dict[str, Any]:
    signed = [signature.hex() for signature in of.signatures]
    text = of.terms.encode().decode()
    return {"terms": text, "signatures": signed, "state": "running", "successor": successor}


@dataclass
class Story:
    """Steps of devices that share a ledger, and their servers' answers."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    replies: dict[str, Any] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    rounds: int = 0

    def publish(self, of: Pinned, successor: dict[str, Any] | None = None) -> str:
        digest = of.terms.digest.hex()
        self.replies[f"{digest}/terms"] = published(of, successor)
        self.replies[f"{digest}/places"] = []
        return digest

    def step(self, digest: str, act: str, given: Any = None) -> None:
        at = START + SPACING * self.rounds
        self.steps.append({"at": at, "digest": digest, "act": act, "given": given})

    def join(self, of: Pinned, made: Any = None, *, again: bool = False) -> Any:
        """A slot in a new round of these terms, or once more in the last."""
        self.rounds += 0 if again else 1
        late = SPACING * self.rounds
        made = made or described(of.terms)
        at = made.binding.closes + late, made.assigned_until + late
        changed = {"identity": self.rounds.to_bytes(16, "big"), "assigned_until": at[1]}
        found: Any = replace(made, binding=replace(made.binding, closes=at[0]), **changed)
        keys = {public_key(key): key for key in KEYS}
        body = found.encode()
        whole = announce(body, [endorse(body, keys[key]) for key in of.terms.keys])
        digest = of.terms.digest.hex()
        slot = {"option": "Hello", "asked": True, "place": 0, "token": TOKEN}
        self.replies[f"{digest}/places"].append(slot | {"announcement": whole.hex()})
        self.step(digest, "join")
        return found

    def ends(self, found: LiveRound, role: int, said: RoundOutcome) -> None:
        """What a server signs about a round."""
        word = found.context + bytes((role, said))
        signature = sign(Signed.OUTCOME, word, KEYS[role])
        message = b"ta\x02\x24" + found.identity + word[-2:] + signature
        host = ADDRESSES[role].removeprefix("http://")
        self.outcomes[f"{host} {found.identity.hex()}"] = message.hex()

    def run(self, keys: int = 2) -> tuple[list[Any], dict[str, Any]]:
        names = zip(("coordinator", "helper"), KEYS[:keys], strict=False)
        own = {role: public_key(key).hex() for role, key in names}
        about = vars(self) | {"address": ADDRESSES[0], "pinned": own}
        about.pop("rounds")
        found = node("spending", about)
        return found["steps"], json.loads(found["exported"] or "null")


def exported(
    digest: str, epsilon: str = "9", name: str = "07", own: str | None = None, **round_: Any
) -> str:
    """The export of another device that took part once."""
    spent = {"round": name * 16, "report": name * 16, "cost": "1/10", "charged": True, **round_}
    entry = {"terms": [digest], "keys": [], "epsilon": epsilon, "participations": 9}
    entry |= {"withdrawn": False, "rounds": [spent | {"refused": False}]}
    return json.dumps({"format": "tacit ledger 3", "own_limit": own, "experiments": [entry]})


def said(steps: list[Any]) -> list[str]:
    return [one for one, _ in steps]


def test_every_round_counts_at_any_cost_and_limits_apply() -> None:
    story, of = Story(), pinned(terms())
    digest = story.publish(of)
    noisy = described(of.terms, scale=Fraction(200))
    for made in (noisy, noisy, None):
        story.join(of, made)
        story.step(digest, "send")
    steps, copy = story.run()
    assert said(steps)[:4] == ["waiting", "sent", "waiting", "sent"]
    assert [found["spent"] for _, found in steps] == ["0", "1/200", "1/200", *["1/100"] * 3]
    assert [found["taken"] for _, found in steps[:4]] == [1, 1, 2, 2]
    assert said(steps)[4] != "waiting", "two participations, as the terms say"
    assert steps[4][1]["taken"] == 2
    ledger = Ledger(":memory:")
    ledger.merge(json.dumps(copy))
    assert ledger.spent == Fraction(1, 100)


def test_epsilon_of_the_terms_and_of_the_participant_limit_every_round() -> None:
    one = pinned(terms(guarantee=StatedGuarantee(Fraction(1), participations=2)))
    other = pinned(terms(question="And now?", noise=Noise(Fraction(2))))
    story = Story()
    first, second = story.publish(one), story.publish(other)
    story.step(first, "import", exported(first, cost="2/3"))
    story.join(one)  # 2/3 and 1/2 exceed ε = 1
    story.step(second, "limit", "7/6")
    story.join(other)  # exactly at the participant's limit
    story.step(second, "send")
    story.join(other)
    steps, _ = story.run()
    told = said(steps)
    assert told[1] == "epsilon"
    assert told[3:5] == ["waiting", "sent"]
    assert steps[4][1]["ownSpent"] == "7/6"
    assert told[5] != "waiting"
    assert steps[5][1]["pending"] == "0", "7/6 of 7/6 are spent over both experiments"


def test_pending_rounds_count_before_they_are_charged() -> None:
    """One round of each experiment waits: together they are all that the participant allows."""
    one, other = pinned(terms()), pinned(terms(question="And now?"))
    story = Story()
    first = story.publish(one)
    story.publish(other)
    story.step(first, "limit", "3/4")
    story.join(one)
    story.join(other)
    steps, _ = story.run()
    assert said(steps)[1:] == ["waiting", "limit"]
    assert steps[1][1]["pending"] == "1/2"
    assert steps[1][1]["spent"] == "0"


def test_a_limit_that_was_lowered_stops_a_report_before_it_is_sent() -> None:
    story, of = Story(), pinned(terms())
    digest = story.publish(of)
    story.join(of)
    story.step(digest, "limit", "1/4")
    story.step(digest, "send")
    steps, _ = story.run()
    assert said(steps)[0] == "waiting"
    assert steps[2][0] == "broken"
    assert steps[2][1]["spent"] == "0"


def test_a_device_joins_a_round_once() -> None:
    story, of = Story(), pinned(terms())
    digest = story.publish(of)
    story.join(of)
    story.step(digest, "withdraw")
    story.step(digest, "agree")
    story.join(of, again=True)
    steps, _ = story.run()
    assert said(steps)[0] == "waiting"
    assert said(steps)[3] == "round"


def test_a_withdrawal_during_the_first_join_stands() -> None:
    """The first join counts as agreement, which revoked the withdrawal of another tab."""
    story, of = Story(), pinned(terms())
    story.publish(of)
    story.join(of)
    story.steps[-1]["act"] = "leave"
    steps, _ = story.run()
    assert said(steps) == ["withdrawn"]
    assert steps[0][1]["pending"] == "0"


@pytest.mark.parametrize("words", [(2, 2), (2, None), (None, 2), (2, 1), (None, None)])
def test_a_refund_needs_signed_aborts_of_both_servers(words: tuple[int | None, int | None]) -> None:
    story, of = Story(), pinned(terms())
    digest = story.publish(of)
    found = story.join(of)
    story.step(digest, "send")
    for role, word in enumerate(words):
        if word is not None:
            story.ends(found, role, RoundOutcome(word))
    story.step(digest, "finish")
    steps, _ = story.run()
    assert steps[-1][1]["spent"] == ("0" if words == (2, 2) else "1/2")


def test_one_server_alone_refunds_nothing() -> None:
    of = next(local_terms())
    story, whole = Story(), pinned(of)
    digest = story.publish(whole)
    found = story.join(whole, local_round(of)[0].round)
    story.step(digest, "send")
    story.ends(found, 0, RoundOutcome.ABORTED)
    story.step(digest, "finish")
    steps, _ = story.run(keys=1)
    assert said(steps) == ["waiting", "sent", "refused"]
    assert [found["spent"] for _, found in steps] == ["0", "1/2", "1/2"]


def test_the_least_delta_ever_shown_limits_rounds() -> None:
    """0.4 of δ are spent elsewhere; successors halve δ, and a round costs a quarter."""
    one = Bits(participations=2, delta=Fraction(1, 10**6))
    old = pinned(one.terms)
    halved = replace(one, delta=one.delta / 2)
    new = pinned(replace(halved.terms, predecessor=old.terms.digest))
    text = new.terms.encode()
    successor = published(new) | {
        "approvals": [sign(Signed.SUCCESSOR, text, key).hex() for key in KEYS[:2]]
    }
    _, keys = kept()
    made = halved.round(fewest(halved, keys), keys)
    made = replace(made, binding=replace(made.binding, terms=new.terms.digest))
    for spent, expected in (("4/10000000", "delta"), ("25/100000000", "waiting")):
        story = Story()
        first = story.publish(old, successor)
        story.publish(new)
        amount = str(Fraction(spent))
        story.step(first, "import", exported(first, cost="1/100", delta=amount))
        story.join(new, made)
        story.steps[-1]["digest"] = first
        if expected == "waiting":
            story.step(first, "send")
        steps, copy = story.run()
        assert said(steps)[1] == expected
        if expected == "waiting":
            assert steps[2][1]["delta"] == str(Fraction(spent) + one.delta / 4)
            ledger = Ledger(":memory:")
            ledger.merge(json.dumps(copy))
            assert ledger.spent_delta == Fraction(spent) + one.delta / 4


def test_imports_raise_no_limit_and_related_terms_add_up() -> None:
    """Two devices took part under terms that this one learns to be successors of each other."""
    old = pinned(terms())
    new = pinned(terms(predecessor=old.terms.digest, question="And now?"))
    text = new.terms.encode()
    approvals = [sign(Signed.SUCCESSOR, text, key).hex() for key in KEYS[:2]]
    story = Story()
    first = story.publish(old, published(new) | {"approvals": approvals})
    second = story.publish(new)
    other = story.publish(pinned(terms(question="Something else?")))
    story.step(other, "import", exported(first, cost="1/3"))
    story.step(other, "import", exported(second, cost="1/3", name="08"))
    story.step(first, "import", exported(other, epsilon="1/9", name="05", cost="1/2"))
    story.step(other, "limit", None)
    steps, copy = story.run()
    assert steps[2][1] | {"participations": 2, "limit": "1", "spent": "2/3"} == steps[2][1]
    assert steps[3][1] | {"participations": 2, "limit": "1/9", "spent": "1/2"} == steps[3][1]
    ledger = Ledger(":memory:")
    ledger.merge(json.dumps(copy))
    assert ledger.spent == Fraction(7, 6)


def test_the_participant_s_own_limit_is_eight_over_all_experiments() -> None:
    about: dict[str, Any] = {
        "guarantee": StatedGuarantee(Fraction(5)),
        "noise": Noise(Fraction(1, 5)),
    }
    one, other = pinned(terms(**about)), pinned(terms(**about, question="And now?"))
    story = Story()
    story.publish(one)
    story.publish(other)
    story.join(one)
    story.join(other)
    assert said(story.run()[0]) == ["waiting", "limit"]


def test_a_round_with_the_least_noise_costs_more_than_terms_at_their_scale() -> None:
    of = pinned(terms(noise=Noise(Fraction(8), minimum=Fraction(2))))
    story = Story()
    digest = story.publish(of)
    story.step(digest, "import", exported(digest, cost="2/3"))
    story.join(of, described(of.terms, scale=Fraction(2)))
    story.join(of, described(of.terms, scale=Fraction(6)))
    steps, _ = story.run()
    assert said(steps)[1:] == ["epsilon", "waiting"]
    assert steps[2][1]["pending"] == "1/6"


def test_a_device_joins_no_more_than_three_aborted_rounds() -> None:
    guarantee = StatedGuarantee(Fraction(1), participations=2)
    of, story = pinned(terms(guarantee=guarantee)), Story()
    digest = story.publish(of)
    for _ in range(3):
        found = story.join(of)
        story.step(digest, "send")
        for role in (0, 1):
            story.ends(found, role, RoundOutcome.ABORTED)
        story.step(digest, "finish")
    story.join(of)
    assert said(story.run()[0]) == [*["waiting", "sent", "refused"] * 3, "refused"]


def test_terms_that_were_not_signed_as_pinned_are_not_used() -> None:
    old = pinned(terms())
    same = {"predecessor": old.terms.digest, "question": "And now?"}
    new = pinned(terms(**same))
    weaker = pinned(terms(**same, aggregation=old.terms.aggregation, grace=old.terms.grace + 1))
    approved = {
        one: [sign(Signed.SUCCESSOR, one.terms.encode(), key).hex() for key in KEYS[:2]]
        for one in (new, weaker)
    }
    good, wrong = published(new), published(new)["signatures"][::-1]
    cases: list[tuple[Any, Any, str | None]] = [
        (None, None, None),
        ({"signatures": wrong}, None, "signatures"),
        ({"signatures": []}, None, "signatures"),
        ({}, good | {"approvals": approved[new]}, None),
        ({}, good | {"approvals": approved[new][::-1]}, "signatures"),
        ({}, good | {"approvals": approved[new][:1]}, "signatures"),
        ({}, good | {"approvals": good["signatures"]}, "signatures"),
        ({}, good | {"approvals": approved[new], "signatures": approved[new]}, "signatures"),
        ({}, published(weaker) | {"approvals": approved[weaker]}, "successor"),
    ]
    for changed, successor, expected in cases:
        story = Story()
        digest = story.publish(old, successor)
        story.publish(new)
        story.publish(weaker)
        story.replies[f"{digest}/terms"] |= changed or {}
        story.step(digest, "agree")
        assert said(story.run()[0]) == [expected or "fresh"]
    story = Story()
    story.step(story.publish(old), "agree")
    assert said(story.run(keys=1)[0]) == ["keys"]


def test_a_copy_lowers_the_participant_s_limit_and_adds_charges_only() -> None:
    story, of = Story(), pinned(terms())
    digest = story.publish(of)
    for charged, own in ((False, None), (True, "3/5"), (False, "4/5")):
        given = exported(digest, cost="1/7", charged=charged, own=own)
        story.step(digest, "import", given)
    story.join(of)
    steps, _ = story.run()
    assert [found["spent"] for _, found in steps] == ["0", *["1/7"] * 3]
    assert said(steps)[3] == "limit"


def test_what_waits_to_be_sent_is_exported_as_spent() -> None:
    story, of = Story(), pinned(terms())
    story.publish(of)
    story.join(of)
    steps, copy = story.run()
    assert steps[0][1]["pending"] == "1/2"
    ledger = Ledger(":memory:")
    ledger.merge(json.dumps(copy))
    assert ledger.spent == Fraction(1, 2)


def test_a_participant_who_left_joins_after_a_new_agreement_only() -> None:
    story, of = Story(), pinned(terms())
    digest = story.publish(of)
    story.step(digest, "agree")
    story.step(digest, "withdraw")
    story.join(of)
    story.step(digest, "agree")
    story.step(digest, "join")
    assert said(story.run()[0]) == ["fresh", "withdrawn", "agreement", "fresh", "waiting"]


def test_terms_that_an_app_names_are_no_weaker_than_known_ones_and_of_the_same_parties() -> None:
    old = pinned(terms())
    known = {"predecessor": old.terms.digest}
    parties = tuple(
        replace(party, key=public_key(key))
        for party, key in zip(terms().parties, KEYS[2:], strict=True)
    )
    cases = (
        (terms(**known, question="And now?"), KEYS[:2], "fresh"),
        (terms(**known, grace=old.terms.grace + 1), KEYS[:2], "successor"),
        (terms(**known, parties=parties), KEYS[2:], "predecessor"),
    )
    for new, keys, expected in cases:
        story = Story()
        story.step(story.publish(old), "agree")
        digest = story.publish(pinned(new))
        story.step(digest, "agree")
        story.steps[-1]["pinned"] = dict(
            zip(("coordinator", "helper"), (public_key(key).hex() for key in keys), strict=True)
        )
        assert said(story.run()[0]) == ["fresh", expected]


def test_copies_of_terms_and_rounds_are_those_asked_for_and_signed() -> None:
    of, other = pinned(terms()), pinned(terms(question="And now?"))
    story = Story()
    digest = story.publish(of)
    story.replies[f"{digest}/terms"] = published(other)
    story.step(digest, "agree")
    assert said(story.run()[0]) == ["digest"]
    story = Story()
    digest = story.publish(of)
    story.join(of)
    (place,) = story.replies[f"{digest}/places"]
    place["announcement"] = place["announcement"][:-2] + "00"
    assert said(story.run()[0]) == ["signatures"]
