"""Contextual experiments, live over two servers: choices on devices, tables, policies, noise."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import count, product
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scipy import stats
from tests.service.deployed import ADDRESSES, KEYS, SECRETS, Deployed, definition_of, deployed
from tests.service.pairs import Link, described
from tests.service.served import served, wait_for

from tacit.aggregation.aggregator_context import Draw
from tacit.aggregation.announcements import Binding, announce, endorse
from tacit.client import AsyncDevice, Device, Ledger, Pins
from tacit.client.choices import choose, numbers_of
from tacit.contextual.policies import ONE, TablePolicy
from tacit.errors import Rejected, TacitError
from tacit.noise import DiscreteLaplace
from tacit.service.assignment import Assigned
from tacit.service.definition import Definition
from tacit.service.definition_files import parse, write
from tacit.service.definition_text import DefinitionError
from tacit.service.helper import Helper
from tacit.service.party import exact_noise
from tacit.service.schema import Stage
from tacit.service.timing import Timing
from tacit.service.trust_models import coordinator_engine
from tacit.service.trust_models.contract import decoded
from tacit.terms import BY_POLICY, Pinned, Terms, in_words
from tacit.terms.pinned import check_successor

FIELDS = ("device: phone, desktop", "returning: no, yes")
MEANS = {"phone": {"plain": 0.1, "friendly": 0.9}, "desktop": {"plain": 0.9, "friendly": 0.1}}
Context = dict[str, str]


def contextual(fields: tuple[str, ...] = FIELDS, **changed: Any) -> Definition:
    given = {"algorithm": "private-contextual", "context_fields": fields}
    return definition_of("two-servers", **given | changed)


def somebody(rng: random.Random) -> Context:
    return {"device": rng.choice(["phone", "desktop"]), "returning": rng.choice(["no", "yes"])}


def report(one: Deployed, assigned: Assigned, rng: random.Random) -> Mapping[int, bytes]:
    """The report of a device with a random context, which chooses by the policy."""
    context = somebody(rng)
    chosen = choose(one.pinned.terms, described(assigned).binding, context)
    reward = rng.random() < MEANS[context["device"]][chosen.option]
    return one.report(assigned, *chosen.levels[:-1], int(reward))


def hold(one: Deployed, rng: random.Random) -> int:
    """All slots are joined, devices choose and report; then the deadline passes."""
    one.step(2)
    wanted = sum(row.slots - row.assigned for row in one.coordinator.rounds(Stage.OPEN))
    asked = one.join(wanted) if wanted else []
    assert set(one.send([(each, report(one, each, rng)) for each in asked])) <= {None}
    one.clock.now += 200
    one.step(3)
    return len(asked)


# Definition and terms


def test_a_contextual_definition_round_trips_into_terms() -> None:
    defined = contextual(participants=3000, epsilon=Fraction(1, 3))
    assert parse(write(defined)) == defined
    assert parse(write(defined, yaml=True)) == defined
    terms = defined.terms(ADDRESSES[0], KEYS[0])
    assert Terms.decode(terms.encode()) == terms
    assert terms.context is not None
    assert terms.numbers(chosen=True) == 16
    assert terms.noise.scale == 6
    words = " ".join(in_words(terms))
    assert "Your device chooses which one" in words
    assert "never sent" in words
    assert "10% of participants get an option at random" in words


def test_terms_without_contexts_omit_their_field() -> None:
    assert b"context" not in definition_of("two-servers").terms(ADDRESSES[0], KEYS[0]).encode()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"context_fields": ()}, "contextual.fields is missing"),
        ({"algorithm": "private-med"}, 'needs algorithm = "private-contextual"'),
        ({"context_fields": ("device",)}, "such as"),
        ({"context_fields": ("device: phone",)}, "such as"),
        ({"context_fields": ("device: phone, phone",)}, "twice"),
        ({"context_fields": ("a: x, y", "a: u, v")}, "two fields alike"),
        ({"context_fields": ("a: " + ", ".join(map(str, range(41))),)}, "82 cells"),
        (
            {"trust": "local", "context_fields": ("a: " + ", ".join(map(str, range(13))),)},
            r"at most 24 cells .*: at epsilon 1 the noise .* of 1.9 √n",
        ),
        ({"levels": 4}, "1 with contextual.fields"),
        ({"participations": 2}, "1 with contextual.fields"),
        ({"guardrail": "complaints"}, "evaluation slice measures the guardrail"),
        ({"no_show": Fraction(1, 2)}, "0 with contextual.fields"),
    ],
)
def test_invalid_definitions_are_rejected(changed: dict[str, Any], said: str) -> None:
    given = vars(contextual()) | {"control_share": 0, "evaluation": 0, "exploration": 0} | changed
    if given["trust"] == "local":
        given |= {"helper_address": None, "helper_key": None}
    with pytest.raises(DefinitionError, match=said):
        Definition.of(**given)


@pytest.mark.parametrize(
    ("trust", "fields", "said"),
    [
        ("local", (*FIELDS, "hour: 0, 1, 2, 3"), "a cell holds n/32 of them"),
        ("local", ("age: 18 to 90",), r"a standard deviation of 9 √n"),
        ("shuffler", (*FIELDS, "hour: 0, 1, 2, 3"), r"would send [\d,]+ bits"),
        ("shuffler", ("age: 18 to 90",), r"would send [\d,]+ bits"),
    ],
)
def test_other_trust_models_are_rejected_with_their_cost(
    trust: str, fields: tuple[str, ...], said: str
) -> None:
    given = {"algorithm": "private-contextual", "context_fields": fields}
    with pytest.raises(DefinitionError, match=said):
        definition_of(trust, **given)


def test_terms_reject_noise_below_the_sensitivity_of_a_table() -> None:
    terms = contextual().terms(ADDRESSES[0], KEYS[0])
    half = replace(terms.noise, scale=terms.noise.scale / 2, minimum=None)
    with pytest.raises(TacitError, match=r"noise\.minimum is 1/2: must be at least 1"):
        replace(terms, noise=half)


def test_successors_keep_contexts_and_options() -> None:
    old = contextual().terms(ADDRESSES[0], KEYS[0])
    new = replace(old, predecessor=old.digest)
    check_successor(old, new)
    with pytest.raises(Rejected, match="options of successor terms"):
        check_successor(old, replace(new, options=("plain", "other")))
    with pytest.raises(Rejected, match="context of successor terms"):
        check_successor(old, replace(new, context=None))


# Live


def test_each_segment_gets_its_best_option(tmp_path: Path) -> None:
    small: dict[str, Any] = {"participants": 320, "min_batch_size": 5, "evaluation": Fraction(1, 4)}
    defined = contextual(epsilon=Fraction(8), **small)
    with deployed(defined, tmp_path) as one:
        rng = random.Random(3)
        while hold(one, rng):
            pass
        status = one.coordinator.status(one.digest)
        found = one.coordinator.estimates(one.digest)["contexts"]
        export = json.dumps(one.coordinator.export(one.digest))
        (late,) = one.coordinator.join([ticket(one)])
    assert status["state"] == "finished"
    assert status["guarantee"]["epsilon"] == 8
    best = {one["context"]["device"]: one["option"] for one in found["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}
    assert len(found["answers"]) == 4
    assert {one["option"] for one in found["gains"]} == {"plain", "friendly"}
    assert status["best"] is status["decided"] is None
    assert "contexts" in export
    assert isinstance(late, Assigned)
    assert late.slot is None
    assert late.option == ""  # the latest policy, for a device that is not asked
    assert described(late).binding.option == BY_POLICY


def ticket(one: Deployed) -> Any:
    from tacit.service.assignment import Ticket

    return Ticket(one.digest, bytes(16))


def test_the_state_survives_a_restart_between_evaluation_and_policy_round(tmp_path: Path) -> None:
    """Rounds of the slice are released first; the gain counts all the same, after a restart."""
    defined = contextual(epsilon=Fraction(4), participants=600, evaluation=Fraction(1, 2))
    with deployed(defined, tmp_path) as one:
        one.step(2)
        rng, rounds = random.Random(1), one.coordinator.rounds(Stage.OPEN)
        asked = one.join(sum(row.slots for row in rounds))
        slices = [each for each in asked if each.option]
        policy = [each for each in asked if not each.option]
        assert slices
        assert policy
        one.send([(each, report(one, each, rng)) for each in slices])
        one.step(3)  # all slots of these rounds have reported
        assert len(one.coordinator.rounds(Stage.RELEASED)) == 2
        assert one.coordinator.estimates(one.digest)["contexts"]["gains"] == []
        one.restart()
        one.send([(each, report(one, each, rng)) for each in policy])
        one.step(3)
        assert len(one.coordinator.estimates(one.digest)["contexts"]["gains"]) == 2


def test_an_aborted_round_is_planned_again_at_the_same_size(tmp_path: Path) -> None:
    with deployed(contextual(participants=3000, evaluation=Fraction(0)), tmp_path) as one:
        sizes = []
        for _ in range(3):
            one.step(2)
            (row,) = one.coordinator.rounds(Stage.OPEN)
            sizes.append(row.slots)
            one.clock.now += 200
            one.step(3)
        status = one.coordinator.status(one.digest)
    assert len(set(sizes)) == 1
    assert status["state"] == "running"
    assert [row["stage"] for row in status["rounds"][:3]] == ["refused"] * 3


def test_options_and_the_horizon_are_fixed() -> None:
    experiment = contextual().experiment()
    with pytest.raises(TacitError, match="devices choose among the options"):
        experiment.extend(10**6)
    with pytest.raises(TacitError, match="devices choose among the options"):
        experiment.add("another")


def test_a_guardrail_pauses_an_option_in_every_segment(tmp_path: Path) -> None:
    """Friendly is liked by phones and makes everybody complain: nobody gets it in the end."""
    small: dict[str, Any] = {
        "participants": 2000,
        "min_batch_size": 5,
        "evaluation": Fraction(1, 2),
    }
    defined = contextual(
        ("device: phone, desktop",),
        epsilon=Fraction(8),
        guardrail="complaints",
        control="plain",
        **small,
    )
    rng = random.Random(2)

    def answers(each: Assigned) -> tuple[int, ...]:
        context = {"device": rng.choice(["phone", "desktop"])}
        chosen = choose(terms, described(each).binding, context)
        option = each.option or chosen.option
        liked = rng.random() < MEANS[context["device"]][option]
        return (*chosen.levels[:-2], int(liked), int(option == "friendly"))

    with deployed(defined, tmp_path) as one:
        terms = one.pinned.terms
        assert one.coordinator.estimates(one.digest)["options"][0]["guardrail"] is None
        for _ in range(4):
            one.step(2)
            rows = one.coordinator.rounds(Stage.OPEN)
            asked = one.join(sum(row.slots for row in rows))
            assert set(one.send([(each, one.report(each, *answers(each))) for each in asked])) == {
                None
            }
            one.step(3)
            found = one.coordinator.estimates(one.digest)
            if found["options"][1]["paused"]:
                break
        one.restart()
        one.step(2)
        (row,) = (r for r in one.coordinator.rounds(Stage.OPEN) if r.option == BY_POLICY)
        slices = [r for r in one.coordinator.rounds(Stage.OPEN) if r.option != BY_POLICY]
        engine = coordinator_engine(terms)
        policy = decoded(engine, terms, row.announcement).binding.policy
    assert "complaints is clearly worse" in found["options"][1]["paused"]
    assert found["options"][0]["paused"] is None
    assert {one["option"] for one in found["contexts"]["answers"]} == {"plain"}
    assert TablePolicy.decode(policy, 2, 2).weights == ((ONE, 0), (ONE, 0))
    assert [r.option for r in slices] == [0]  # the slice stops offering it, too


@pytest.mark.extended
def test_devices_over_http_learn_the_best_option_per_context(tmp_path: Path) -> None:
    """Both servers over real HTTP with their own noise; devices choose, record and report."""
    made = contextual(epsilon=Fraction(8), participants=320, window=0, min_batch_size=2)
    rng = random.Random(5)

    with served(tmp_path) as both:
        terms = made.terms(both.urls[0], both.keys[0])
        own: dict[str, Any] = {"context": terms.context, "noise": terms.noise}
        own |= {"guarantee": terms.guarantee, "answer": terms.answer}
        timing = Timing(joining=600, margin=2, grace=60)
        digest = both.begin(made.experiment(), timing, aggregation=terms.aggregation, **own)
        pins = Pins(both.urls[0], both.keys[0].hex(), both.keys[1].hex())

        async def person(http: httpx.AsyncClient) -> bool:
            context = somebody(rng)
            device = AsyncDevice(Ledger(":memory:"), pins, http=http)
            slot = await device.choose(digest, context)
            again = await device.choose(digest, context)
            assert again.option == slot.option
            if slot.asked and rng.random() < MEANS[context["device"]][slot.option]:
                assert device.record(digest, 1)
            await device.wait_and_report()
            return slot.asked

        async def everybody(wanted: int) -> list[bool]:
            async with httpx.AsyncClient(timeout=60.0) as http:
                return await asyncio.gather(*(person(http) for _ in range(wanted)))

        def free() -> int:
            rounds = both.status(digest)["rounds"]
            return sum(one["places"] - one["given"] for one in rounds if one["stage"] == "open")

        while both.status(digest)["state"] == "running":
            wait_for(lambda: free() or both.status(digest)["state"] != "running")
            if wanted := free():
                asyncio.run(everybody(wanted))
        status = both.status(digest)
        page = both.get(0, f"/e/{digest.hex()}").text
    best = {one["context"]["device"]: one["option"] for one in status["contexts"]["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}
    assert "Which option for whom" in page
    assert "friendly for device phone; plain for device desktop" in page


# The device


@pytest.fixture
def one(tmp_path: Path) -> Any:
    with deployed(contextual(epsilon=Fraction(1), participants=3000), tmp_path) as made:
        made.step(2)
        yield made


def transport(one: Deployed, given: Assigned, sent: list[httpx.Request]) -> httpx.MockTransport:
    """Both parties' answers to a device that is assigned this slot."""

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        path = request.url.path.split("/")
        if path[-1] == "terms":
            known = one.coordinator.terms(one.digest)
            said: dict[str, Any] = {
                "terms": known.terms.encode().decode(),
                "signatures": [word.hex() for word in known.signatures],
                "state": "running",
                "successor": None,
            }
        elif path[-1] == "places":
            said = {"asked": given.slot is not None, "option": given.option or None}
            said["announcement"] = given.announcement.hex()
            if given.slot is not None:
                said |= {"place": given.slot.number, "token": given.slot.token.hex()}
        else:
            return httpx.Response(204)
        return httpx.Response(200, content=json.dumps(said))

    return httpx.MockTransport(answer)


def policy_slot(one: Deployed) -> Assigned:
    return next(each for each in one.join(200) if not each.option)


def device(one: Deployed, given: Assigned, sent: list[httpx.Request] | None = None) -> Device:
    pins = Pins(ADDRESSES[0], KEYS[0].hex(), KEYS[1].hex())
    http = transport(one, given, [] if sent is None else sent)
    return Device(Ledger(":memory:"), pins, http=http, clock=one.clock, sleep=lambda _: None)


def forged(assigned: Assigned, **changed: Any) -> Assigned:
    """Another description of the round, signed by both servers."""
    about = described(assigned)
    binding = replace(about.binding, **changed.pop("binding", {}))
    description = replace(about, binding=binding, **changed).encode()
    signed = announce(description, [endorse(description, key) for key in SECRETS[:2]])
    return replace(assigned, announcement=signed)


def test_a_device_sends_neither_context_nor_choice_nor_reward(one: Deployed) -> None:
    given, sent = policy_slot(one), list[httpx.Request]()
    own = device(one, given, sent)
    slot = own.choose(one.digest, {"device": "phone", "returning": "yes"})
    assert slot.option in one.pinned.terms.options
    assert own.record(one.digest, 1)
    (running,) = own.ledger.running()
    assert running.levels == (1, one.pinned.terms.options.index(slot.option), 1)
    one.clock.now = (slot.reports_at or 0) + 1
    own.run_due()
    everything = b"".join(str(request.url).encode() + request.content for request in sent)
    for word in (b"phone", b"returning", slot.option.encode()):
        assert word not in everything
    sizes = {len(request.content) for request in sent if request.method == "PUT"}
    about = described(given)
    assert sizes == {about.share_size(0), about.share_size(1)}  # whatever was chosen


def test_openfeature_forwards_the_fields_of_the_evaluation_context(one: Deployed) -> None:
    from openfeature.evaluation_context import EvaluationContext

    from tacit.client.openfeature import Flag, TacitProvider

    own = device(one, policy_slot(one))
    provider = TacitProvider(own, {"layout": Flag(one.digest.hex())}, reporter=False)
    attributes: dict[str, Any] = {"device": "desktop", "returning": "no", "unknown": 1}
    found = provider.resolve_string_details("layout", "none", EvaluationContext(None, attributes))
    assert found.value in one.pinned.terms.options
    (running,) = own.ledger.running()
    assert running.levels is not None
    assert running.levels[0] == 2  # desktop, not returning
    other = TacitProvider(device(one, policy_slot(one)), provider.flags, reporter=False)
    assert other.resolve_string_details("layout", "none").value == "none"


def test_a_table_report_is_one_hot() -> None:
    terms = contextual().terms(ADDRESSES[0], KEYS[0])
    policy = TablePolicy(((ONE, 0),) * 4).encode()
    binding = Binding(terms.digest, BY_POLICY, policy=policy)
    for segment, (device_, returning) in enumerate(product(("phone", "desktop"), ("no", "yes"))):
        chosen = choose(terms, binding, {"device": device_, "returning": returning})
        assert chosen.option == "plain"
        for reward in (0, 1):
            vector = numbers_of(terms, binding, (*chosen.levels[:-1], reward))
            assert sum(vector) == 1
            assert vector.index(1) == 4 * segment + reward


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"device": "phone"}, "context has no returning"),
        ({"device": "phone", "returning": "maybe"}, "returning is 'maybe'"),
        ({"device": "phone", "returning": "no", "age": 3}, "context has 'age'"),
        (None, "context is missing"),
    ],
)
def test_an_invalid_context_is_rejected_before_anything_is_sent(
    one: Deployed, context: Any, said: str
) -> None:
    sent: list[httpx.Request] = []
    own = device(one, policy_slot(one), sent)
    with pytest.raises(TacitError, match=said):
        own.choose(one.digest, context)
    assert not [request for request in sent if request.method != "GET"]


def test_a_device_rejects_an_altered_policy(one: Deployed) -> None:
    """Neither one bit of the policy, nor a policy of another shape that both servers signed."""
    given, context = policy_slot(one), {"device": "phone", "returning": "yes"}
    policy = described(given).binding.policy
    at = given.announcement.index(policy)
    altered = given.announcement[:at] + b"\x00" + given.announcement[at + 1 :]
    assert altered == given.announcement  # the first byte of a weight is 0
    altered = given.announcement[: at + 2] + b"\x81" + given.announcement[at + 3 :]
    with pytest.raises(Rejected, match="did not sign this round"):
        device(one, replace(given, announcement=altered)).choose(one.digest, context)
    for wrong in (policy[:-4], policy + bytes(4), b"\xff" * len(policy), bytes(len(policy))):
        signed = forged(given, binding={"policy": wrong})
        with pytest.raises(Rejected, match="policy of the round is invalid"):
            device(one, signed).choose(one.digest, context)


def test_a_device_rejects_less_noise_and_a_wrong_length(one: Deployed) -> None:
    given, context = policy_slot(one), {"device": "phone", "returning": "yes"}
    assert described(given).scale == 2
    for changed, said in (
        ({"scale": Fraction(1)}, "noise scale of the round is 1: must be at least 2"),
        ({"length": 1}, "number of metrics of the round is 1: must be 16"),
        ({"scale": None}, "adds the noise"),
    ):
        with pytest.raises(Rejected, match=said):
            device(one, forged(given, **changed)).choose(one.digest, context)
    scalar = next(each for each in one.join(200) if each.option)
    assert described(scalar).scale == described(scalar).length == 1
    weak = forged(scalar, scale=Fraction(1, 2))
    with pytest.raises(Rejected, match="noise scale of the round is 1/2: must be at least 1"):
        device(one, weak).choose(one.digest, context)


def test_terms_without_contexts_reject_policies(tmp_path: Path) -> None:
    with deployed(definition_of("two-servers"), tmp_path) as plain:
        plain.step(2)
        (given,) = plain.join(1)
        policy = TablePolicy(((ONE, 0),)).encode()
        signed = forged(given, binding={"option": BY_POLICY, "policy": policy})
        with pytest.raises(Rejected, match="terms, which have no context"):
            device(plain, replace(signed, option="plain")).join(plain.digest)
        with pytest.raises(TacitError, match="context is given"):
            device(plain, given).choose(plain.digest, {"device": "phone"})


def test_both_kinds_of_rounds_cost_epsilon(one: Deployed) -> None:
    assigned = one.join(200)
    for each in (next(a for a in assigned if a.option), next(a for a in assigned if not a.option)):
        assert one.pinned.check(described(each).offer()) == 1


# The guarantee, from the noise that is drawn


def test_the_guarantee_matches_the_recomputed_one(one: Deployed) -> None:
    """Over all pairs of cells, and outputs around them: the largest ratio is e^ε, no more.

    One server's noise is independent in every cell; only the two cells differ between neighbours.
    """
    given = policy_slot(one)
    about = described(given)
    terms, binding = one.pinned.terms, about.binding
    rate = math.exp(-float(1 / about.scale)) if about.scale else 0.0

    def log_pmf(k: int) -> float:
        return math.log((1 - rate) / (1 + rate)) + abs(k) * math.log(rate)

    worst = 0.0
    reports = [
        numbers_of(terms, binding, levels)
        for levels in product(range(4), range(len(terms.options)), range(2))
    ]
    for first, second in product(reports, reports):
        loss = 0.0
        for a, b in zip(first, second, strict=True):
            loss += max(log_pmf(out - a) - log_pmf(out - b) for out in range(-8, 9))
        worst = max(worst, loss)
    assert worst == pytest.approx(float(terms.guarantee.epsilon))
    exact = DiscreteLaplace(Fraction(about.scale or 0))
    assert log_pmf(3) == pytest.approx(float(exact.log_pmf(3)))


# The noise of a real coordinator and a real helper

ROUNDS, PEOPLE = 12, 10
WIDE = ("a: " + ", ".join(f"v{n}" for n in range(40)),)  # 80 cells, 160 numbers
ALARM = 1e-6  # false positive rate of each statistic
Noises = np.ndarray[Any, np.dtype[np.float64]]
Factory = Callable[[bytes], Draw]


def released_noise(
    directory: Path,
    coordinator: Factory = exact_noise,
    helper: Factory = exact_noise,
    **changed: Any,
) -> Noises:
    """Released sums less the true ones, in standard deviations: rounds × cells."""
    usual: dict[str, Any] = {"fields": WIDE, "participants": 10**7, "evaluation": Fraction(0)}
    defined, found = contextual(**usual | {"epsilon": Fraction(1, 20)} | changed), []
    assert defined.context is not None
    report = (7, 1) if defined.context.statistic == "corners" else (7, 1, 1)
    with deployed(defined, directory, options={"noise": coordinator}) as one:
        one.options = {"noise": helper}
        assert one.helper is not None
        one.helper = Helper(
            SECRETS[1], one.stores[1], one.helper.records, clock=one.clock, noise=helper
        )
        one.link = Link(one.helper)
        for _ in range(ROUNDS):
            one.step(2)
            asked = one.join(PEOPLE)
            binding = described(asked[0]).binding
            true = len(asked) * np.array(numbers_of(one.pinned.terms, binding, report))
            assert set(one.send([(each, one.report(each, *report)) for each in asked])) == {None}
            one.clock.now += 200
            one.step(3)
            row = max(one.coordinator.rounds(Stage.RELEASED), key=lambda row: row.number)
            assert row.reports == PEOPLE
            found.append(np.array(json.loads(row.total or "")) - true)
        scale = float(one.pinned.terms.noise.scale)
    assert scale == 40
    return np.array(found) / math.sqrt(2 * DiscreteLaplace(Fraction(40)).variance)


def problems(noise: Noises) -> set[str]:
    """What is wrong with the noise of both servers together.

    The mean square is 1. Squares of a sum of two Laplace draws have a second moment of 4.5, so it
    is below 1 - c with probability at most exp(-n c² / 9), for nonnegative variables. It exceeds
    1.5 by 11 standard deviations. Sums over the cells of a round and products of successive rounds
    are normal up to the central limit theorem, with 160 and 1,760 terms.
    """
    n, found = noise.size, set()
    mean = float((noise**2).mean())
    if mean < 1 - math.sqrt(9 * math.log(1 / ALARM) / n):
        found.add("too little")
    if mean > 1.5:
        found.add("too much")
    sums = (noise.sum(axis=1) ** 2).sum() / noise.shape[1]
    if stats.chi2.sf(sums, len(noise)) < ALARM:
        found.add("reused between cells")
    products = float((noise[1:] * noise[:-1]).sum()) / math.sqrt(noise[1:].size)
    if stats.norm.sf(abs(products)) < ALARM:
        found.add("reused between rounds")
    return found


def halved(_identity: bytes) -> Draw:
    return lambda scale: int(DiscreteLaplace(scale / 2).draw())


def missing(_identity: bytes) -> Draw:
    return lambda _scale: 0


def once_per_round(_identity: bytes) -> Draw:
    drawn: list[int] = []

    def draw(scale: Fraction) -> int:
        drawn.extend([int(DiscreteLaplace(scale).draw())] * (not drawn))
        return drawn[0]

    return draw


class Repeated:
    """The same numbers in every round."""

    def __init__(self) -> None:
        self._known: list[int] = []

    def __call__(self, _identity: bytes) -> Draw:
        places = count()

        def draw(scale: Fraction) -> int:
            place = next(places)
            if place >= len(self._known):
                self._known.append(int(DiscreteLaplace(scale).draw()))
            return self._known[place]

        return draw


def test_released_tables_have_the_noise_of_both_servers(tmp_path: Path) -> None:
    assert problems(released_noise(tmp_path)) == set()


@pytest.mark.extended
@pytest.mark.parametrize("fault", [halved, missing, once_per_round, Repeated()])
@pytest.mark.parametrize("role", ["coordinator", "helper"])
def test_wrong_noise_of_one_server_is_detected(tmp_path: Path, fault: Factory, role: str) -> None:
    assert problems(released_noise(tmp_path, **{role: fault})) != set()


def test_devices_pin_terms_with_contexts(one: Deployed) -> None:
    pinned = one.pinned
    assert isinstance(pinned, Pinned)
    engine = coordinator_engine(pinned.terms)
    row = next(row for row in one.coordinator.rounds(Stage.OPEN) if row.option == BY_POLICY)
    assert decoded(engine, pinned.terms, row.announcement).binding.policy
