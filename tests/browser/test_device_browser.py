"""The browser device in a real Chromium with IndexedDB and Web Locks, against honest, failing and
malicious servers.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.browser.site import OPEN, Tab, ThrownError, World, both, serving, world
from tests.service.parties import KEYS, PINS, Open, Parties, pinned, terms
from tests.service.test_device_hostile import ROUNDS, altered

from tacit.aggregation import Collector, HpkeSuite
from tacit.client import Ledger
from tacit.client.exchange import LONGEST_REPLY, Request
from tacit.client.http import TIMEOUT, Device
from tacit.client.report_schedule import Attempt, RequestSchedule
from tacit.signatures import public_key
from tacit.terms import Aggregation, Answer, Noise, Party, StatedGuarantee

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

TICKS = "await Promise.all([device.tick(), device.tick(), device.tick()])"
ASKING = 16  # bytes of a nonce, which says nothing but that somebody asks


@pytest.fixture(scope="module")
def hosts() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


@pytest.fixture
def servers(hosts: World) -> Parties:
    """Servers of a new experiment: ε = 1 for two participations of one bit."""
    return hosts.start(terms())


@pytest.fixture
def tab(context: BrowserContext, hosts: World, servers: Parties) -> Tab:
    assert servers is hosts.parties
    return Tab(context, hosts)


def joined(tab: Tab, **round_: Any) -> Open:
    """A device that has a place in a new round."""
    released = tab.world.parties.open(**round_)
    tab.open()
    assert tab.call("join")["stage"] == "waiting"
    return released


def sending(tab: Tab) -> Any:
    """Advance the clock to the device's sending time."""
    tab.world.parties.clock.now = tab.call("state")["sendsAt"] / 1000
    return tab.call("tick")


def finishing(tab: Tab, released: Open) -> Any:
    """The round is over, and the device has asked what became of it."""
    tab.world.parties.clock.now = released.round.binding.closes + 25.0
    return tab.call("tick")


def puts(parties: Parties) -> list[bytes]:
    """The shares that were brought."""
    return [
        body
        for seen, body in zip(parties.trace, parties.bodies, strict=True)
        if seen.method == "PUT"
    ]


def summed(parties: Parties, released: Open) -> tuple[tuple[int, ...], int]:
    """The sum of both servers, which add no noise here."""
    collector = Collector(released.pinned, released.announcement, parties.records[2])
    for server in released.servers:
        for address, message in server.close(int(parties.clock.now)).items():
            if address == released.round.collector:
                collector.take(message)
    collector.close()
    view = collector.view()
    return view.numbers, view.reports


# From the terms to the outcome


def test_an_answer_from_the_page_reaches_the_sum(tab: Tab, servers: Parties) -> None:
    released = servers.open()
    shown = tab.open()
    assert (shown["question"], shown["digest"]) == (
        "Which greeting do people like?",
        servers.experiment.hex(),
    )
    assert tab.call("state")["stage"] == "fresh"
    waiting = tab.call("join")
    assert (waiting["stage"], waiting["option"], waiting["recorded"]) == ("waiting", "Hello", None)
    assert tab.call("ledger") == {
        "spent": "0",
        "delta": "0",
        "pending": "1/2",
        "limit": "1",
        "taken": 1,
        "participations": 2,
        "ownSpent": "0",
        "ownLimit": "8",
        "parties": [
            {
                "keys": sorted(public_key(key).hex() for key in KEYS[:2]),
                "experiments": [[servers.experiment.hex()]],
                "spent": "1/2",
            }
        ],
    }
    requests = len(servers.trace)
    assert tab.call("record", 0)["recorded"] == "0"
    assert tab.call("record", 1)["recorded"] == "1"
    assert tab.call("join") == tab.call("tick") == tab.call("state")
    assert len(servers.trace) == requests
    sent = sending(tab)
    assert (sent["stage"], sent["charge"], sent["recorded"]) == ("sent", "1/2", None)
    assert [half["party"] for half in sent["sent"]] == ["coordinator", "helper"]
    assert [half["bytes"] for half in sent["sent"]] == [len(body) for body in puts(servers)]
    assert all(half["acknowledged"] for half in sent["sent"])
    over = finishing(tab, released)
    assert (over["stage"], over["charge"]) == ("opened", "1/2")
    assert summed(servers, released) == ((1,), 1)


def test_unrecorded_answers_are_sent_as_zero_at_the_same_times_and_sizes(
    context: BrowserContext, hosts: World
) -> None:
    """With the same randomness, requests are the same whether the answer is 1, 0 or none."""
    traces = []
    for value in (None, 0, 1):
        parties = hosts.start(terms())
        released = parties.open()
        tab = Tab(context, hosts)
        tab.page.evaluate("() => { crypto.getRandomValues = (array) => array.fill(77) }")
        tab.open(database=f"answer {value}")
        tab.call("join")
        if value is not None:
            tab.call("record", value)
        sending(tab)
        finishing(tab, released)
        assert summed(parties, released) == ((value or 0,), 1)
        traces.append(
            [(seen.at, seen.method, seen.size, seen.url.split("/")[-1]) for seen in parties.trace]
        )
        tab.page.close()
    assert traces[0] == traces[1] == traces[2]


@pytest.mark.extended
def test_the_sending_time_is_uniform_between_window_and_deadline(
    tab: Tab, servers: Parties
) -> None:
    times = []
    for number in range(8):
        released = servers.open()
        tab.open(database=f"time {number}")
        state = tab.call("join")
        times.append(state["sendsAt"] / 1000 - servers.clock.now)
        assert state["deadline"] == released.round.binding.closes * 1000
    assert all(60 <= time <= 60 + 20 for time in times)
    assert len(set(times)) == 8


@pytest.mark.extended
def test_several_metrics_with_ranges_are_rounded_and_summed(tab: Tab, hosts: World) -> None:
    answer = Answer("x", ("walked", "liked"), 4, 60, Fraction(-1), Fraction(3))
    of = {"answer": answer, "noise": Noise(Fraction(16))}
    parties = hosts.start(terms(), **of)
    released = joined(tab)
    with pytest.raises(ThrownError, match="by name"):
        tab.call("record", 1)
    with pytest.raises(ThrownError, match="by name"):
        tab.call("record", {"run": 1})
    for wrong in (4, -2, "1e400", "x", "", " ", None, "1/0", [1]):
        with pytest.raises(ThrownError) as problem:
            tab.call("record", {"liked": wrong})
        assert problem.value.field == "answer"
    tab.call("record", {"liked": 3})
    assert json.loads(tab.call("record", {"walked": "2"})["recorded"]) == {
        "liked": 3,
        "walked": "2",
    }
    sending(tab)
    finishing(tab, released)
    assert summed(parties, released) == ((3, 4), 1)


@pytest.mark.extended
def test_twelve_metrics_are_sent_as_a_seed_and_one_full_share(tab: Tab, hosts: World) -> None:
    names = tuple(f"metric {number}" for number in range(12))
    parties = hosts.start(terms(), answer=Answer("x", names, 3, 60), noise=Noise(Fraction(72)))
    released = joined(tab)
    values = {name: ("0", "1/3", "2/3", "1")[place % 4] for place, name in enumerate(names)}
    tab.call("record", values)
    sending(tab)
    finishing(tab, released)
    assert summed(parties, released) == ((0, 1, 2, 3) * 3, 1)


def test_the_network_carries_encrypted_bytes_and_public_data_only(
    tab: Tab, servers: Parties, context: BrowserContext
) -> None:
    log: list[Any] = []
    context.on("request", lambda request: log.append(request))
    released = joined(tab)
    tab.call("record", 1)
    sending(tab)
    finishing(tab, released)
    experiment, identity = servers.experiment.hex(), released.round.identity.hex()
    allowed = {
        f"GET /experiments/{experiment}/terms",
        f"POST /experiments/{experiment}/places",
        f"PUT /rounds/{identity}/reports/0",
        f"GET /rounds/{identity}/outcome",
    }
    parties = [one for one in log if not one.url.startswith(tab.world.site)]
    assert {one.url.split("/")[2] for one in parties} == {
        address.removeprefix("http://") for address in tab.world.addresses
    }
    assert len(parties) == 7
    for one in parties:
        assert f"{one.method} /{one.url.split('/', 3)[3]}" in allowed
        assert not {"cookie", "referer", "authorization"} & set(one.all_headers())
    (place,) = [json.loads(one.post_data) for one in parties if one.method == "POST"]
    assert list(place) == ["nonce"]
    assert re.fullmatch("[0-9a-f]{32}", place["nonce"])
    for role, body in enumerate(puts(servers)):
        assert len(body) == released.round.share_size(role)
        assert body[:4] == b"ta\x02\x21"
    kept = json.dumps(tab.stored())
    assert '"levels": null' in kept
    assert '"recorded": null' in kept
    assert '"announcement": null' in kept


# Tabs, reloads, networks


@pytest.mark.extended
def test_two_tabs_send_every_report_share_once(context: BrowserContext, hosts: World) -> None:
    for _ in range(3):
        parties = hosts.start(terms(question=f"Which one of {_}?"))
        parties.open()
        tabs = [Tab(context, hosts) for _ in range(2)]
        for tab in tabs:
            tab.open()
        both(tabs, "await device.join()")
        states = [tab.call("state") for tab in tabs]
        assert states[0] == states[1]
        assert [seen.method for seen in parties.trace].count("POST") == 1
        parties.clock.now = states[0]["sendsAt"] / 1000
        both(tabs, "await device.tick()")
        assert len(puts(parties)) == 2
        assert [tab.call("state")["stage"] for tab in tabs] == ["sent", "sent"]
        for tab in tabs:
            tab.page.close()


@pytest.mark.extended
def test_without_locks_transactions_alone_prevent_duplicate_sending(
    context: BrowserContext, hosts: World
) -> None:
    parties = hosts.start(terms())
    parties.open()
    tabs = [Tab(context, hosts) for _ in range(2)]
    for tab in tabs:
        tab.open(unlocked=True)
    both(tabs, "await device.join()")
    assert tabs[0].call("state") == tabs[1].call("state")
    assert len(tabs[0].stored()["entries"][0]["rounds"]) == 1
    parties.clock.now = tabs[0].call("state")["sendsAt"] / 1000
    parties.fail = lambda _: httpx.Response(503)
    both(tabs, TICKS)
    assert len(puts(parties)) == 2
    parties.fail = lambda _: None
    parties.clock.now += 1
    both(tabs, TICKS)
    assert len(puts(parties)) == 4
    assert tabs[0].call("ledger")["spent"] == "1/2"


def test_two_tabs_cannot_overspend(context: BrowserContext, hosts: World) -> None:
    """Each of two experiments fits under the participant's own limit, both together do not."""
    first = hosts.start(terms(question="Which one?"))
    second = Parties(hosts.located(terms(question="Which other?")), first.clock)
    released = {one.experiment: one.open() for one in (first, second)}
    answer = first.answer

    def by_experiment(request: httpx.Request) -> httpx.Response:
        mine = second.experiment.hex() in request.url.path or any(
            one.hex() in request.url.path for one in second.rounds
        )
        return second.answer(request) if mine else answer(request)

    first.answer = by_experiment  # type: ignore[method-assign]
    tabs = [Tab(context, hosts) for _ in range(2)]
    for tab, experiment in zip(tabs, released, strict=True):
        tab.open(experiment, limit="3/4")
    both(tabs, "await device.join()")
    stages = sorted(tab.call("state")["stage"] for tab in tabs)
    assert stages == ["fresh", "waiting"]
    first.clock.now += 99
    both(tabs, "await device.tick()")
    assert tabs[0].call("ledger")["ownSpent"] == tabs[1].call("ledger")["ownSpent"] == "1/2"
    assert len(puts(first) + puts(second)) == 2


@pytest.mark.extended
def test_a_reload_loses_nothing_and_sends_nothing_twice(tab: Tab, servers: Parties) -> None:
    joined(tab)
    before = tab.call("record", 1)
    tab.reload()
    tab.open()
    assert tab.call("state") == before
    assert tab.call("join") == before
    sent = sending(tab)
    tab.reload()
    tab.open()
    assert tab.call("tick") == sent
    assert len(puts(servers)) == 2


@pytest.mark.extended
def test_after_going_offline_the_same_bytes_are_sent(
    tab: Tab, servers: Parties, context: BrowserContext
) -> None:
    joined(tab)
    tab.call("record", 1)
    context.set_offline(True)
    encrypted = sending(tab)
    assert (encrypted["stage"], encrypted["charge"]) == ("sealed", "1/2")
    assert not puts(servers)
    servers.clock.now += 0.1
    tab.call("tick")
    context.set_offline(False)
    tab.reload()
    tab.open()
    for _ in range(12):
        servers.clock.now += 0.5
        if tab.call("tick")["stage"] == "sent":
            break
    state = tab.call("state")
    assert state["stage"] == "sent"
    assert [half["digest"] for half in state["sent"]] == [
        half["digest"] for half in encrypted["sent"]
    ]
    assert len(puts(servers)) == 2


@pytest.mark.extended
def test_an_opened_device_starts_offline_from_its_storage(
    tab: Tab, servers: Parties, context: BrowserContext
) -> None:
    joined(tab)
    servers.clock.now += 2
    servers.fail = lambda _: httpx.Response(503)
    other = Tab(context, tab.world)
    other.open()
    assert other.call("state")["stage"] == "waiting"
    with pytest.raises(ThrownError, match="try again later"):
        other.open(database="new")


@pytest.mark.extended
def test_run_joins_reports_and_closes_by_itself(tab: Tab, servers: Parties) -> None:
    released = servers.open()
    tab.open()
    tab.page.evaluate(
        """async () => {
          window.told = [];
          window.stop = device.run((state) => told.push(state.stage));
          await device.join();
          await device.record(1);
          stop(); stop = device.run((state) => told.push(state.stage));
        }"""
    )
    tab.page.wait_for_function("told.includes('waiting')")
    servers.clock.now = tab.call("state")["sendsAt"] / 1000
    tab.tell()
    tab.page.wait_for_function("told.at(-1) === 'sent'")
    servers.clock.now = released.round.binding.closes + 25.0
    tab.tell()
    tab.page.wait_for_function("told.at(-1) === 'opened'")
    tab.page.evaluate("stop()")
    assert summed(servers, released) == ((1,), 1)


@pytest.mark.extended
def test_other_tabs_are_notified_of_changes(context: BrowserContext, hosts: World) -> None:
    hosts.start(terms()).open()
    tabs = [Tab(context, hosts) for _ in range(2)]
    for tab in tabs:
        tab.open()
    tabs[1].page.evaluate(
        "() => { window.told = []; device.run((state) => told.push(state.stage)) }"
    )
    tabs[0].call("join")
    tabs[1].page.wait_for_function("told.includes('waiting')", timeout=5000)


# What it rejects


def assert_rejects(tab: Tab, database: str, field: str = "") -> None:
    """Nothing but a nonce is drawn; nothing is kept, charged or sent but the questions."""
    parties = tab.world.parties
    tab.open(database=database)
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.name == "Refused"
    assert not field or problem.value.field == field
    assert set(tab.drawn()) <= {ASKING}
    requests = len(parties.trace)
    tab.call("tick")
    assert len(parties.trace) == requests
    assert not puts(parties)
    (entry,) = tab.stored(database)["entries"]
    assert (entry["rounds"], entry["option"], entry["nonce"]) == ({}, None, None)


def test_a_lying_coordinator_is_rejected_before_anything_is_drawn(tab: Tab, hosts: World) -> None:
    fields = {
        "of other terms": "terms",
        "with less noise": "noise",
        "without noise": "noise",
        "with a longer window": "window",
        "with a shorter window": "window",
        "signed by nobody we know": "signatures",
        "signed by the coordinator alone": "signatures",
        "spoilt": "signatures",
        "outside of the terms' days": "deadline",
        "without room": "modulus",
    }
    for name, (change, _) in ROUNDS.items():
        parties = hosts.start(terms(aggregation=Aggregation(3)))
        released = parties.open()
        parties.given = partial(change, parties, released)
        assert_rejects(tab, name, fields.get(name, ""))


@pytest.mark.extended
def test_the_unchanged_round_is_joined(tab: Tab, servers: Parties) -> None:
    """What is rejected above is rejected for its change."""
    released = servers.open()
    give = altered(lambda round_: round_)
    servers.given = lambda reply: give(servers, released, reply)
    tab.open()
    assert tab.call("join")["stage"] == "waiting"


def test_a_smaller_minimum_batch_and_other_keys_of_a_round_are_rejected(
    tab: Tab, hosts: World
) -> None:
    for name, change in {
        "minimum": lambda round_: replace(round_, minimum=2),
        "grace": lambda round_: replace(round_, grace=86_401),
        "suite": lambda round_: replace(round_, suite=HpkeSuite.X25519),
        "noise": lambda round_: replace(round_, scale=Fraction(199, 100)),
        "keys": lambda round_: replace(
            round_, servers=(round_.servers[0][:32] + bytes(32), round_.servers[1])
        ),
    }.items():
        parties = hosts.start(terms(), aggregation=Aggregation(3))
        released = parties.open()
        parties.given = partial(altered(change), parties, released)
        assert_rejects(tab, name, name)


def test_terms_under_other_keys_unsigned_or_unknown_are_rejected(tab: Tab, hosts: World) -> None:
    keys = tuple(public_key(key) for key in KEYS)
    parties = hosts.start(terms())
    for pins in ((keys[1], keys[0]), (keys[0], keys[2]), (keys[2], keys[1])):
        with pytest.raises(ThrownError) as problem:
            tab.open(pins=pins)
        assert problem.value.field == "keys"
    good = dict(parties.copies[0][parties.experiment])
    own = good["signatures"]
    for signatures in ([own[0], own[0]], own[:1], [], own[::-1], "no", [1, 2], ["zz", "zz"], None):
        parties.copies[0][parties.experiment] = good | {"signatures": signatures}
        with pytest.raises(ThrownError) as problem:
            tab.open()
        assert problem.value.name == "Refused"
    for role in (0, 1):
        parties = hosts.start(terms())
        other = pinned(hosts.located(terms(guarantee=StatedGuarantee(Fraction(9)))))
        parties.copies[role][parties.experiment] |= {
            "terms": other.terms.encode().decode(),
            "signatures": [one.hex() for one in other.signatures],
        }
        with pytest.raises(ThrownError) as problem:
            tab.open()
        assert problem.value.field == "digest"
        del parties.copies[role][parties.experiment]
        with pytest.raises(ThrownError, match="not known here"):
            tab.open()
    assert tab.stored()["entries"] == []
    assert tab.drawn() == []


def _said(status: int, content: bytes, _request: httpx.Request) -> httpx.Response:
    return httpx.Response(status, content=content)


@pytest.mark.extended
@pytest.mark.parametrize("status", [200, 400, 404, 409, 500])
def test_invalid_replies_are_rejected_or_retried(tab: Tab, servers: Parties, status: int) -> None:
    for content in (b"", b"\xff", b"[]", b"{", b"null", b'{"error": 7}', b"[" * 100_000):
        servers.fail = partial(_said, status, content)
        with pytest.raises(ThrownError) as problem:
            tab.open()
        assert problem.value.name in ("Refused", "Offline")


@pytest.mark.extended
def test_an_endless_reply_is_cut_off_at_its_size_limit(tab: Tab, servers: Parties) -> None:
    """No later than in Python, and long before its time is up."""
    sent: list[int] = []

    def parts() -> Iterator[bytes]:
        while len(sent) < 1 << 16:
            sent.append(1 << 16)
            yield b" " * sent[-1]

    digest, pins = servers.experiment.hex(), [public_key(key).hex() for key in KEYS[:2]]
    with serving(lambda *_: (200, parts())) as address:
        asked = [address, digest, {"coordinator": pins[0], "helper": pins[1]}, {}]
        started = time.monotonic()
        said = tab.page.evaluate(OPEN, asked)
        lasted = time.monotonic() - started
    assert said["threw"]["name"] == "Offline"
    assert lasted < TIMEOUT
    assert sum(sent) < 64 * LONGEST_REPLY  # what was read, and what lay between


@pytest.mark.extended
def test_the_reply_size_limit_equals_pythons(
    tab: Tab, servers: Parties, hosts: World, tmp_path: Path
) -> None:
    path = f"{hosts.addresses[0]}/experiments/{servers.experiment.hex()}/terms"
    with closing(Ledger(tmp_path / "ledger.db")) as ledger, Device(ledger, PINS) as device:
        for size, name in ((LONGEST_REPLY, "Refused"), (LONGEST_REPLY + 1, "Offline")):
            servers.fail = partial(_said, 200, b" " * size)
            with pytest.raises(ThrownError) as problem:
                tab.open()
            assert problem.value.name == name
            assert (device._exchange(Request("GET", path)).status == 0) == (name == "Offline")


@pytest.mark.extended
@pytest.mark.parametrize("byte", [0, 127, 255])
def test_retry_pauses_have_the_distribution_of_python(
    tab: Tab, servers: Parties, byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, where what is drawn for a time is the same."""
    tab.open()
    tab.page.evaluate(FIXED, byte)
    released, began = servers.open(), servers.clock.now
    tab.call("join")
    share = int.from_bytes(bytes([byte]) * 6, "big") / 2**48
    monkeypatch.setattr(RequestSchedule, "_uniform", lambda *_: share)
    pace = RequestSchedule.of(released.round, began, b"")
    assert tab.call("state")["sendsAt"] == math.ceil(pace.first_send * 1000)
    servers.fail = partial(_said, 500, b"")
    due = pace.first_send
    for what in (Attempt.REPORT, Attempt.OUTCOME):
        for attempts in range(1, 6):
            servers.clock.now = due
            tab.call("tick")
            now = float(tab.page.evaluate("window.clock")) / 1000
            (entry,) = tab.stored()["entries"]
            (round_,) = entry["rounds"].values()
            for role in (0, 1):
                expected = [
                    attempts,
                    pytest.approx(pace.next_attempt(what, role, attempts, now), abs=1e-4),
                ]
                assert round_["posts"][role][what.value] == expected
            due = round_["posts"][0][what.value][1]
        due = pace.first_query


FIXED = """byte => {
  const draw = crypto.getRandomValues;
  crypto.getRandomValues = (array) => (array.length === 6 ? array.fill(byte) : draw(array));
}"""  # six bytes are what a time is drawn with


# Successor terms


@pytest.mark.extended
def test_successors_are_followed_and_changed_questions_shown_again(
    tab: Tab, servers: Parties
) -> None:
    first, of = servers.experiment, tab.world.located
    tab.open()
    servers.succeed(of(noise=Noise(Fraction(4)), predecessor=first))
    tab.reload()
    tab.open(first)
    servers.clock.now += 3601
    servers.open()
    assert tab.call("join")["stage"] == "waiting"
    assert tab.page.evaluate("device.terms.noise.scale") == "4"
    assert tab.call("ledger")["pending"] == "1/4"
    tab.open(first, database="other")
    second = servers.experiment
    servers.succeed(
        of(noise=Noise(Fraction(4)), predecessor=second, options=("Hello", "Hi", "Hey"))
    )
    servers.clock.now += 3601
    servers.open(2)
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.field == "agreement"
    assert len([seen for seen in servers.trace if seen.method == "POST"]) == 1
    assert tab.page.evaluate("device.terms.options.length") == 3
    tab.call("agree")
    assert tab.call("join")["option"] == "Hey"


@pytest.mark.extended
def test_terms_that_agreed_ones_named_unseen_need_an_agreement_of_their_own(
    tab: Tab, hosts: World
) -> None:
    """The terms that came first named the digest of others, which nobody had published yet."""
    longer = hosts.located(answer=Answer("1 if you are ill", window=61))
    servers = hosts.start(hosts.located(predecessor=longer.digest))
    tab.open(servers.experiment)
    tab.call("agree")
    servers.know(pinned(longer))
    tab.open(longer.digest)
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.field == "agreement"
    assert not [seen for seen in servers.trace if seen.method == "POST"]


@pytest.mark.extended
def test_weaker_unapproved_or_several_successors_are_rejected(tab: Tab, hosts: World) -> None:
    longer = Answer("1 if you liked it", window=61)
    changed: tuple[tuple[dict[str, Any], Any], ...] = (
        ({"guarantee": StatedGuarantee(Fraction(2), participations=2)}, KEYS[:2]),
        ({"noise": Noise(Fraction(4)), "answer": longer}, KEYS[:2]),
        ({"question": "Which one?"}, (KEYS[0], KEYS[2])),
        ({"question": "Which one?"}, (KEYS[0], KEYS[0])),
    )
    for number, (changes, approvers) in enumerate(changed):
        parties = hosts.start(terms())
        first = parties.experiment
        parties.succeed(hosts.located(**({"predecessor": first} | changes)), approvers)
        with pytest.raises(ThrownError) as problem:
            tab.open(first, database=f"{number}")
        assert problem.value.field in ("successor", "signatures")
        assert tab.stored(f"{number}")["entries"] == []
    parties = hosts.start(terms())
    first = parties.experiment
    parties.succeed(hosts.located(predecessor=first, question="Which one?"))
    kept = dict(parties.copies[0][first])
    parties.succeed(hosts.located(predecessor=first, question="Which other?"))
    parties.copies[0][first] = kept
    with pytest.raises(ThrownError) as problem:
        tab.open(first)
    assert problem.value.field == "successor"


@pytest.mark.extended
def test_terms_that_another_page_pinned_are_not_followed_without_approval(
    tab: Tab, servers: Parties
) -> None:
    """Two pages of one origin: the second has terms that say they succeed those of the first."""
    first = servers.experiment
    tab.open()
    foreign = tuple(
        Party(role, address, public_key(key))
        for role, address, key in zip(
            ("coordinator", "helper"), tab.world.addresses, KEYS[2:], strict=True
        )
    )
    servers.know(pinned(tab.world.located(predecessor=first, parties=foreign)))
    made_up = next(digest for digest in servers.copies[0] if digest != first)
    with pytest.raises(ThrownError) as problem:
        tab.open(made_up, tuple(public_key(key) for key in KEYS[2:]))
    assert problem.value.field == "predecessor"
    assert tab.open()["digest"] == first.hex()


@pytest.mark.extended
def test_keys_change_through_successors_only_and_the_ledger_is_shared(
    tab: Tab, servers: Parties
) -> None:
    first = servers.experiment
    released = joined(tab)
    sending(tab)
    finishing(tab, released)
    changed = tuple(
        Party(role, address, public_key(key))
        for role, address, key in zip(
            ("coordinator", "helper"), tab.world.addresses, (KEYS[0], KEYS[2]), strict=True
        )
    )
    servers.succeed(tab.world.located(predecessor=first, parties=changed))
    servers.clock.now += 3601
    servers.open()
    assert tab.call("join")["stage"] == "waiting"
    spending = tab.call("ledger")
    assert (spending["spent"], spending["pending"], spending["limit"]) == ("1/2", "1/2", "1")


# The ledger


def test_no_more_than_was_guaranteed_is_ever_spent(tab: Tab, servers: Parties) -> None:
    tab.open()
    for _ in range(4):
        released = servers.open()
        tab.call("join")
        servers.clock.now = float(released.round.binding.closes) - 1
        tab.call("tick")
        finishing(tab, released)
        servers.clock.now = released.round.binding.closes + 3700.0
    assert len(puts(servers)) == 4
    assert tab.call("ledger")["spent"] == "1"
    assert tab.call("state")["stage"] == "opened"


@pytest.mark.extended
def test_cheap_rounds_are_joined_as_often_as_the_terms_allow(tab: Tab, servers: Parties) -> None:
    tab.open()
    for _ in range(2):
        released = servers.open(scale=Fraction(200))
        assert tab.call("join")["stage"] == "waiting"
        servers.clock.now = float(released.round.binding.closes) - 1
        tab.call("tick")
        finishing(tab, released)
        servers.clock.now = released.round.binding.closes + 3700.0
    spending = tab.call("ledger")
    assert (spending["spent"], spending["taken"]) == ("1/100", 2)
    servers.open(scale=Fraction(200))
    before, drawn = len(servers.bodies), len(tab.drawn())
    assert tab.call("join")["stage"] == "opened"
    assert {seen.method for seen in servers.trace[before:]} <= {"GET"}
    assert len(tab.drawn()) == drawn
    exported = tab.call("exportLedger")
    tab.open(database="another", limit=None)
    tab.call("importLedger", exported)
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.field == "participations"
    assert len(puts(servers)) == 4


@pytest.mark.extended
def test_the_default_epsilon_limit_is_eight(tab: Tab, hosts: World) -> None:
    hosts.start(terms(), guarantee=StatedGuarantee(Fraction(9)), noise=Noise(Fraction(1, 9))).open()
    tab.open()
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.field == "limit"
    assert "your own limit of 8 over all experiments" in str(problem.value)
    for raised in ("20", None):
        tab.open(limit=raised)
        assert tab.call("ledger")["ownLimit"] == "8"
        tab.open(database=f"fresh {raised}", limit=raised)
        assert tab.call("ledger")["ownLimit"] == "8"
    tab.open()
    tab.call("setLimit", "20")
    tab.open(limit="30")
    assert tab.call("ledger")["ownLimit"] == "20"
    assert tab.call("join")["stage"] == "waiting"


@pytest.mark.extended
def test_the_overview_of_parties_equals_pythons(tab: Tab, hosts: World) -> None:
    first = hosts.start(terms(question="Which one?"))
    released = joined(tab)
    sending(tab)
    finishing(tab, released)
    ledger = Ledger(":memory:")
    first.device(ledger).terms(first.experiment)
    ledger.merge(tab.call("exportLedger"))
    foreign = pinned(terms(question="By others?", parties=strangers()))
    ledger.remember(foreign, "running", first.clock.now)
    sibling = pinned(terms(question="Which other?"))
    ledger.remember(sibling, "running", first.clock.now)
    exported = json.loads(ledger.export())
    tab.call("importLedger", json.dumps(exported))
    assert tab.call("ledger")["parties"] == exported["parties"]
    assert json.loads(tab.call("exportLedger"))["parties"] == exported["parties"]
    assert [one["spent"] for one in exported["parties"]] == ["1/2", "0"]
    assert len(exported["parties"][0]["experiments"]) == 2


def strangers() -> tuple[Party, ...]:
    """Other operators of servers."""
    return tuple(
        replace(party, key=public_key(key))
        for party, key in zip(terms().parties, KEYS[2:], strict=True)
    )


def test_a_round_above_the_remaining_budget_is_not_joined(tab: Tab, hosts: World) -> None:
    """The terms' own noise would fit under the limit; a round may have as little as ε asks for."""
    parties = hosts.start(terms(), noise=Noise(Fraction(4), minimum=Fraction(2)))
    parties.open(scale=Fraction(2))
    tab.open(limit="1/4")
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.field == "limit"
    assert tab.stored()["entries"][0]["rounds"] == {}
    tab.call("setLimit", "1/2")
    assert tab.call("join")["stage"] == "waiting"


@pytest.mark.extended
def test_the_participants_own_limit_applies_and_lowering_it_withholds_reports(
    tab: Tab, servers: Parties
) -> None:
    servers.open()
    tab.open(limit="1/4")
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.field == "limit"
    tab.open(limit="3/4")
    assert tab.call("ledger")["ownLimit"] == "1/4"
    tab.call("setLimit", "1/2")
    assert tab.call("join")["stage"] == "waiting"
    tab.call("setLimit", "2/5")
    state = sending(tab)
    assert (state["stage"], state["charge"], puts(servers)) == ("broken", None, [])
    for wrong in ("-1", "1/0", "x", "", "1.5"):
        with pytest.raises(ThrownError):
            tab.call("setLimit", wrong)
    tab.call("setLimit", None)
    assert tab.call("ledger")["ownLimit"] is None


def _silent(prefix: str, request: httpx.Request) -> httpx.Response | None:
    """A server that does not report outcomes of rounds."""
    asked = str(request.url).startswith(prefix) and "outcome" in request.url.path
    return httpx.Response(404) if asked else None


@pytest.mark.extended
def test_a_refund_needs_signed_aborts_of_both_servers(tab: Tab, hosts: World) -> None:
    for attacker in (None, 0, 1):
        parties = hosts.start(terms(), aggregation=Aggregation(3))
        released = parties.open()
        tab.open(database=f"refund {attacker}")
        tab.call("join")
        sending(tab)
        if attacker is not None:
            prefix = ("http://coordinator.test", "http://helper.test")[attacker]
            parties.fail = partial(_silent, prefix)
        state = finishing(tab, released)
        if attacker is None:
            assert (state["stage"], state["charge"]) == ("refused", None)
            assert tab.call("ledger")["spent"] == "0"
            continue
        assert (state["stage"], state["charge"]) == ("sent", "1/2")
        for _ in range(25):
            parties.clock.now += 90_000
            state = tab.call("tick")
        assert (state["stage"], state["charge"]) == ("refused", "1/2")


@pytest.mark.extended
@pytest.mark.parametrize("stage", ["refused", "sent"])
def test_after_three_aborted_rounds_no_further_one_is_joined(
    tab: Tab, hosts: World, stage: str
) -> None:
    """Nor where nobody says what became of them."""
    parties = hosts.start(
        terms(),
        aggregation=Aggregation(3),
        guarantee=StatedGuarantee(Fraction(2), participations=4),
    )
    if stage == "sent":
        parties.fail = partial(_silent, "http://")
    tab.open()
    for _ in range(3):
        released = parties.open()
        tab.call("join")
        sending(tab)
        assert finishing(tab, released)["stage"] == stage
    parties.open()
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.field == "refused"


@pytest.mark.extended
def test_after_withdrawal_nothing_is_sent_and_rejoining_needs_consent(
    tab: Tab, servers: Parties
) -> None:
    joined(tab)
    tab.call("record", 1)
    sends = tab.call("state")["sendsAt"] / 1000
    assert tab.call("withdraw")["stage"] == "withdrawn"
    servers.clock.now = sends
    assert tab.call("tick")["stage"] == "withdrawn"
    assert not puts(servers)
    assert '"levels": null' in json.dumps(tab.stored())
    with pytest.raises(ThrownError) as problem:
        tab.call("join")
    assert problem.value.field == "agreement"
    assert tab.call("agree")["stage"] == "fresh"
    servers.clock.now -= 60
    with pytest.raises(ThrownError, match="joined this round before"):
        tab.call("join")
    servers.open()
    assert tab.call("join")["stage"] == "waiting"
    sending(tab)
    spent = tab.call("withdraw")
    assert (spent["stage"], tab.call("ledger")["spent"]) == ("withdrawn", "1/2")


@pytest.mark.extended
def test_a_slot_assigned_after_withdrawal_is_not_kept(
    context: BrowserContext, hosts: World
) -> None:
    parties = hosts.start(terms())
    parties.open()
    tabs = [Tab(context, hosts) for _ in range(2)]
    for tab in tabs:
        tab.open()
    asked, go = threading.Event(), threading.Event()

    def late(request: httpx.Request) -> None:
        if request.method == "POST":
            asked.set()
            go.wait(10)

    parties.fail = late
    tabs[0].page.evaluate("() => { window.done = device.join() }")
    assert asked.wait(10)
    tabs[1].call("withdraw")
    go.set()
    tabs[0].page.evaluate("() => window.done")
    (entry,) = tabs[0].stored()["entries"]
    assert (entry["withdrawn"], entry["rounds"], entry["option"]) == (True, {}, None)


@pytest.mark.extended
def test_a_device_offline_until_the_deadline_misses_the_round(tab: Tab, servers: Parties) -> None:
    released = joined(tab)
    state = finishing(tab, released)
    assert (state["stage"], state["charge"], puts(servers)) == ("missed", None, [])


@pytest.mark.extended
def test_ledgers_are_exchanged_between_browsers_and_python(tab: Tab, servers: Parties) -> None:
    released = joined(tab)
    sending(tab)
    finishing(tab, released)
    exported = tab.call("exportLedger")
    for hidden in ("levels", "sealed", "recorded", "announcement"):
        assert hidden not in exported
    ledger = Ledger(":memory:")
    ledger.merge(exported)
    assert ledger.spent == Fraction(1, 2)
    python = servers.device(ledger)
    servers.open()
    python.join(servers.experiment)
    ledger.set_own_limit(Fraction(5, 2))
    tab.call("importLedger", ledger.export())
    tab.call("importLedger", ledger.export())
    spending = tab.call("ledger")
    assert (spending["spent"], spending["ownLimit"]) == ("1", "5/2")
    ledger.set_own_limit(Fraction(9))
    tab.call("importLedger", exported)
    tab.call("importLedger", ledger.export())
    assert tab.call("ledger") == spending
    servers.open()
    tab.call("join")
    assert tab.call("ledger") == spending


NO_REPORTS = (None, "", "00" * 15, "zz" * 16)


def without_report(good: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The exported experiment, with another name of the report in its round."""
    entry: dict[str, Any]
    (entry,) = good["experiments"]
    (round_,) = entry["rounds"]
    return entry | {"rounds": [round_ | {"report": name}]}


OLDER = """name => new Promise((done) => {
  const asked = indexedDB.open(name, 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("ledger").put({ entries: [] }, 0);
  asked.onsuccess = () => done(asked.result.close());
})"""
VERSION = "async name => (await indexedDB.databases()).find((one) => one.name === name).version"


@pytest.mark.extended
def test_a_ledger_of_an_older_format_is_rejected_unchanged(tab: Tab, servers: Parties) -> None:
    tab.page.evaluate(OLDER, "tacit")
    with pytest.raises(ThrownError, match="has format 1, not 2: use the version") as problem:
        tab.open()
    assert (problem.value.name, problem.value.field) == ("Refused", "ledger")
    assert tab.page.evaluate(VERSION, "tacit") == 1
    assert tab.stored() == {"entries": []}
    assert not servers.trace


@pytest.mark.extended
def test_a_corrupt_export_changes_nothing(tab: Tab, servers: Parties) -> None:
    joined(tab)
    good = json.loads(tab.call("exportLedger"))
    before = tab.stored()
    for spoilt in (
        "",
        "{}",
        "[]",
        json.dumps(good | {"format": "tacit ledger 1"}),
        json.dumps(good | {"format": "tacit ledger 2"}),
        *(json.dumps(good | {"experiments": [without_report(good, name)]}) for name in NO_REPORTS),
        json.dumps(good | {"experiments": [good["experiments"][0] | {"participations": "1"}]}),
        json.dumps(good | {"experiments": [good["experiments"][0] | {"keys": ["zz"]}]}),
        json.dumps(good | {"own_limit": "-1"}),
        json.dumps(good | {"own_limit": "1", "experiments": [{"terms": ["zz"]}]}),
        json.dumps(
            good | {"own_limit": "1", "experiments": [good["experiments"][0] | {"epsilon": "x"}]}
        ),
        json.dumps(good | {"own_limit": "1", "experiments": None}),
    ):
        with pytest.raises(ThrownError) as problem:
            tab.call("importLedger", spoilt)
        assert problem.value.field == "export"
        assert tab.stored() == before
    assert servers.trace
