"""Writes the vectors of the browser device: `python -m tests.browser.make_vectors`.

What is in them is what Python accepts, rejects and computes; `check.mjs` holds the module against
it, in Node and in Chromium, beside the vectors of terms and of two servers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

from tests.aggregation.make_vectors import source
from tests.service.parties import GRACE, JOINING, KEYS, MARGIN, START, pinned, terms
from tests.terms.mutations import MUTATIONS
from tests.terms.mutations import mutated as mutated_terms

from tacit.aggregation import Binding, TwoServerRound, accept, announce
from tacit.aggregation.agreement import new_key, public_bytes
from tacit.aggregation.announcements import endorse
from tacit.aggregation.encryption import DEFAULT, HpkeSuite
from tacit.aggregation.interface import Source
from tacit.aggregation.two_servers import read_outcome
from tacit.aggregation.verified import MODULUS
from tacit.aggregation.wire import pack_integer
from tacit.client.levels import round_to_level
from tacit.client.report_schedule import check_times
from tacit.contextual.policies import ONE, TablePolicy
from tacit.errors import TacitError
from tacit.sampling import coins
from tacit.sampling.coins import Chance
from tacit.sampling.draws import draw_laplace, flip_response
from tacit.signatures import Signed, sign
from tacit.terms import (
    BY_POLICY,
    LONGEST_GRACE,
    ROLES,
    Aggregation,
    Answer,
    ContextField,
    ContextTerms,
    Noise,
    Pinned,
    StatedGuarantee,
    Terms,
    check_live,
    check_successor,
)
from tacit.terms.context import TABLE
from tacit.terms.parts import BINOMIAL, RANDOMIZED_RESPONSE
from tacit.trust import TrustModel, View
from tacit.vdaf import MODULUS128

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "clients" / "js" / "vectors" / "device.json"
RFC_9180 = {  # appendix A.1.1
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "ephemeral": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "enc": "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
    "private": "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
    "recipient": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
    "key": "4531685d41d65f03dc48f6b8302c05b0",
    "nonce": "56d890e5accaaf011cff4b7d",
}


IN_BROWSERS = (View.OTHER_SERVER, View.MESSAGE, View.SHUFFLED)


# Terms


def decided(text: str) -> dict[str, Any]:
    """What a device in Python makes of a text."""
    try:
        made = Terms.decode(text.encode("utf-8", "surrogatepass"))
        check_live(made)
    except (TacitError, UnicodeError):
        return {"text": text, "digest": None}
    shared = made.trust is TrustModel.SHUFFLER and made.noise.distribution != BINOMIAL
    table = made.context is not None and made.context.statistic == TABLE
    chosen = made.context is None or (table and len(made.answer.metrics) == 1)
    if made.view not in IN_BROWSERS or shared or made.suite != DEFAULT.identifier or not chosen:
        return {"text": text, "digest": None}
    return {"text": text, "digest": made.digest.hex()}


def accepted_terms() -> Iterator[Terms]:
    yield terms()
    yield terms(question='Größe "egal"\\ – 𝄞\u2028?', options=("ö", "日本", "a" * 99))
    yield terms(
        answer=Answer("x", ("b", "a"), 7, 0, Fraction(-1, 3), Fraction(10**39, 7)),
        guarantee=StatedGuarantee(Fraction(1, 10**13), participations=3),
        noise=Noise(Fraction(42 * 10**37, 3), minimum=Fraction(42 * 10**13)),
        admission="invitation",
        issuer=bytes(range(32)),
        grace=LONGEST_GRACE,
        organisation="Größe & Co",
        purpose="to learn",
        contact="a@b.example",
        predecessor=bytes(range(32)),
    )
    yield terms(
        aggregation=Aggregation((1 << 32) - 1), question="\ufeffa mark that is no space\ufeff"
    )
    yield terms(no_show=Fraction(9, 10))
    yield terms(answer=replace(terms().answer, labels=("Nö", "Yes")))
    yield terms(proofs=1)
    yield from local_terms()
    yield shuffler_terms()
    yield contextual_terms()
    yield contextual_terms(context=ContextTerms((FIELD,), evaluation=Fraction(0)))


FIELD = ContextField("Schicht – früh?", ("früh", "spät"))
CONTEXT = ContextTerms((FIELD, ContextField("b", ("1", "2", "3"))), evaluation=Fraction(1, 10))


def contextual_terms(**changes: Any) -> Terms:
    """Devices choose by two fields."""
    about: dict[str, Any] = {
        "guarantee": StatedGuarantee(Fraction(1)),
        "noise": Noise(Fraction(2)),
        "context": CONTEXT,
    }
    return terms(**(about | changes))


def rejected_contexts() -> Iterator[str]:
    """Contextual terms that are sound but for one value, and contexts where none may be."""
    for path, values in CONTEXTS.items():
        for value in values:
            yield mutated_terms(contextual_terms(), path, value)
    context = json.loads(contextual_terms().encode())["context"]
    for made in (*local_terms(), shuffler_terms(), terms(), terms(proofs=1)):
        yield at("context", value=context, of=made)
    yield at("assumptions", value=json.loads(contextual_terms().encode())["assumptions"])


CONTEXTS: dict[tuple[Any, ...], tuple[Any, ...]] = {
    ("context",): ({}, [], "", 0, "table", {"fields": []}),
    ("context", "evaluation"): ("1", "-1/10", "2/20", "3/2", 0, ""),
    ("context", "fields"): ([], {}, "a", [1], [{"name": "a", "values": ["b", "c"]}] * 2),
    ("context", "fields", 0, "name"): ("", " a", 1, "b", "a\u202eb"),
    ("context", "fields", 1, "values"): (
        [],
        ["1"],
        ["1", "1"],
        ["1", 2],
        "12",
        [str(n) for n in range(129)],  # 516 cells with two values and two options
        [str(n) for n in range(128)],
    ),
    ("context", "statistic"): ("tables", "", 1, "moment"),
    ("assumptions",): ([], [{"id": "public-membership"}]),
    ("answer", "levels"): (2,),
    ("answer", "metrics"): (["a", "b"],),
    ("guarantee", "participations"): (2,),
    ("guarantee", "epsilon"): ("99/100", "2"),
    ("noise", "minimum"): ([199, 100], [1, 1]),
    ("proofs",): (1, 2),
}


def local_terms() -> Iterator[Terms]:
    """The local model with both kinds of noise, for one server."""
    about: dict[str, Any] = {"trust": TrustModel.LOCAL, "parties": terms().parties[:1]}
    yield terms(**about, noise=Noise(Fraction(2), "devices"))
    yield terms(**about, noise=Noise(Fraction(2), "devices", RANDOMIZED_RESPONSE))


def shuffler_terms(**changes: Any) -> Terms:
    """Noisy bits through a shuffler."""
    named = zip(terms().parties, ROLES[TrustModel.SHUFFLER], strict=True)
    about: dict[str, Any] = {
        "trust": TrustModel.SHUFFLER,
        "parties": tuple(replace(party, role=role) for party, role in named),
        "guarantee": StatedGuarantee(Fraction(1), Fraction(1, 10**6), 2),
        "noise": Noise(Fraction(7), "devices", BINOMIAL),
        "aggregation": Aggregation(40, Fraction(1, 5), 1, Fraction(1, 10)),
    }
    return terms(**(about | changes))


def rejected_elsewhere() -> Iterator[str]:
    """Terms of other trust models that are sound but for one value, or not for browsers."""
    local, response = local_terms()
    for made in (local, response, shuffler_terms()):
        for path, values in ELSEWHERE.items():
            for value in values:
                yield mutated_terms(made, path, value)
    yield mutated_terms(response, ("answer", "levels"), 2)
    yield shuffler_terms(admission="invitation", issuer=shuffler_terms().keys[0]).encode().decode()
    pure = Noise(Fraction(10**6), "devices")
    yield (
        shuffler_terms(noise=pure, admission="invitation", issuer=bytes(range(32)))
        .encode()
        .decode()
    )


ELSEWHERE: dict[tuple[Any, ...], tuple[Any, ...]] = {
    ("trust",): ("two-servers", "secure-aggregation", "none", "__proto__", ""),
    ("proofs",): (1, "0"),
    ("assumptions",): ([], [{"id": "honest-device"}, {"id": "pinned-keys"}]),
    ("guarantee", "delta"): ("1", "-1/10", "1/0", 0),
    ("guarantee", "view"): ("other-server", "opened-sum", ""),
    ("guarantee", "epsilon"): ("0", "1/100"),
    ("noise", "by"): ("servers",),
    ("noise", "distribution"): ("skellam", "rehearsed", "discrete-gaussian"),
    ("no_show",): ("1/10",),
    ("aggregation", "missing_fraction"): ("1", "-1/5", "2/10", "1/3"),
    ("aggregation", "dishonest_fraction"): ("1", "-1/5", "1/3"),
    ("aggregation", "dishonest_count"): (-1, 2, "1"),
    ("aggregation", "claim"): ("two-fates",),
}


def spelt(change: Callable[[dict[str, Any]], object], of: Terms | None = None) -> str:
    """Canonical text of terms that are changed, whether they make sense or not."""
    document = json.loads((of or terms()).encode())
    change(document)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def at(*path: Any, value: Any, of: Terms | None = None) -> str:
    """Terms with another value somewhere."""

    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return spelt(change, of)


def rejected_texts() -> Iterator[str]:
    good = terms().encode().decode()
    for path, values in MUTATIONS.items():
        for value in values:
            yield mutated_terms(terms(), path, value)
    invited = terms(admission="invitation", issuer=bytes(range(32)))
    for value in ("", "00", "AB" * 32):
        yield mutated_terms(invited, ("issuer",), value)
    yield mutated_terms(terms(), ("noise", "minimum"), [199, 100])
    yield mutated_terms(terms(), ("noise", "minimum"), [201, 100])
    yield mutated_terms(terms(), ("guarantee", "epsilon"), "99/100")
    yield mutated_terms(terms(), ("guarantee", "participations"), 3)
    yield from (
        "",
        "{}",
        "[]",
        "null",
        "2",
        "{",
        good[:-1],
        good + "\n",
        " " + good,
        "\ufeff" + good,
    )
    yield good.replace(":3}", ":3.0}")
    yield good.replace(":3}", ":3e0}")
    yield good.replace('"window":60', '"window":60.5')
    yield good.replace('"window":60', '"window":6e1')
    yield good.replace('"window":60', '"window":-0')
    yield good.replace('"window":60', '"window":9007199254740993')
    yield good.replace('"window":60', '"window":60,"window":60')
    yield good.replace('"version":3', '"version":3,"version":3')
    yield good.replace("Hello", "\\u0048ello")
    yield good.replace("Hello", "H\\/ello")
    yield good.replace("Hello", "\\ud800")
    yield good.replace("Hello", "\\u001f")
    yield good.replace(",", ", ", 1)
    yield good.replace('{"admission":"open",', "{", 1)
    yield json.dumps(dict(reversed(json.loads(good).items())), separators=(",", ":"))
    for path, values in REFUSED.items():
        for value in values:
            yield at(*path, value=value)
    yield spelt(lambda document: document.update(more="x"))
    yield spelt(lambda document: document["answer"].update(more="x"))
    yield spelt(lambda document: document["parties"].reverse())
    yield spelt(lambda document: document["parties"].pop())
    yield spelt(lambda document: document["parties"].append(document["parties"][0]))
    yield spelt(lambda document: document["parties"][1].update(key=document["parties"][0]["key"]))


REFUSED: dict[tuple[Any, ...], tuple[Any, ...]] = {
    ("question",): ("", " a", "a ", "a\u3000", "\u0085a", "a\u202eb", "a\tb", 1, "\u200e", ["a"]),
    ("options",): ([], ["a", "a"], ["a", ""], "a", ["a", 1]),
    ("answer", "metrics"): ([], ["a", "a"], ["a", 1]),
    ("answer", "meaning"): ("", "a\nb"),
    ("answer", "levels"): (0, -1, 1 << 32, "1", 3),
    ("answer", "window"): (-1, 1 << 32, "60"),
    ("answer", "range"): (["0"], ["1", "1"], ["1", "0"], ["0", "2/2"], ["-0", "1"], ["0", "1/0"]),
    ("answer", "range", 1): ("01", "1.0", " 1", "+1", "1/02", "4/2", "1" * 41, 1, "1/1"),
    ("first_day",): ("2027-01-01", "2026-13-01", "2026-02-30", "20261101", "0000-01-01", "", 5),
    ("last_day",): ("2026-10-31", "2026-12-32", "+10000-01-01", "2026-12-31T00:00:00"),
    ("predecessor",): ("00", "AB" * 32, "zz" * 32, 0),
    ("parties", 0, "key"): ("AB" * 32, "00" * 31, "", 3),
    ("parties", 0, "role"): ("helper", "Coordinator"),
    ("parties", 0, "address"): ("", "a ", 1),
    ("parties", 0): ("x", {}),
}


def mutated(seed: int, count: int) -> list[dict[str, Any]]:
    """Texts of terms with a few signs changed, and what Python makes of each."""
    draw = random.Random(seed)
    texts = [made.encode().decode() for made in accepted_terms()]
    signs = '{}[]",:0123456789-+.eE/\\ abu\u00e9\u2028\u200b\ufeff\u202e'
    found = []
    for _ in range(count):
        whole = list(draw.choice(texts))
        for _ in range(draw.choice((1, 1, 2))):
            place = draw.randrange(len(whole))
            whole[place : place + draw.randrange(2)] = draw.choice((draw.choice(signs), ""))
        found.append(decided("".join(whole)))
    return found


ALONE = terms().parties[:1]


def successors() -> Iterator[dict[str, Any]]:
    old = terms(
        aggregation=Aggregation(3), guarantee=StatedGuarantee(Fraction(1), participations=2)
    )
    named = {"predecessor": old.digest, "aggregation": Aggregation(3)}
    yield from contextual_successors()
    yield succeeded(old, contextual_terms(**named))
    for changes in (
        {},
        {"question": "Which one?", "options": ("Hello", "Hi", "Hey")},
        {"guarantee": StatedGuarantee(Fraction(1, 2), participations=1)},
        {"noise": Noise(Fraction(4)), "aggregation": Aggregation(9)},
        {"grace": 0, "organisation": "a", "purpose": "b", "contact": "c"},
        {"admission": "invitation", "issuer": bytes(range(32))},
        {"grace": 86_401},
        {"no_show": Fraction(1, 10)},
        {"noise": Noise(Fraction(4), minimum=Fraction(2))},
        {"predecessor": bytes(32)},
        {"aggregation": Aggregation(2)},
        {"guarantee": StatedGuarantee(Fraction(2), participations=2)},
        {"guarantee": StatedGuarantee(Fraction(1), participations=3), "noise": Noise(Fraction(3))},
        {"guarantee": StatedGuarantee(Fraction(1), participations=1), "noise": Noise(Fraction(1))},
        {"answer": Answer("1 if you liked it", window=61)},
        {"answer": Answer("2 if you liked it", window=60)},
        {"proofs": 1},
        {"trust": TrustModel.LOCAL, "noise": Noise(Fraction(2), "devices"), "parties": ALONE},
    ):
        yield succeeded(old, terms(**(named | changes)))


def contextual_successors() -> Iterator[dict[str, Any]]:
    """Terms that succeed contextual ones: neither the context nor the options may change."""
    old = contextual_terms()
    changed: tuple[dict[str, Any], ...] = (
        {},
        {"question": "Which one?"},
        {"options": ("Hi", "Hello")},
        {"context": ContextTerms((FIELD,))},
        {"context": ContextTerms(CONTEXT.fields)},
        {"context": None},
    )
    for changes in changed:
        yield succeeded(old, contextual_terms(predecessor=old.digest, **changes))


def succeeded(old: Terms, new: Terms) -> dict[str, Any]:
    """What a device in Python makes of terms that succeed others."""
    try:
        check_successor(old, new)
        rejected = False
    except TacitError:
        rejected = True
    return {
        "old": old.encode().decode(),
        "new": new.encode().decode(),
        "approvals": [sign(Signed.SUCCESSOR, new.encode(), key).hex() for key in KEYS[:2]],
        "refused": rejected,
    }


# Rounds


def described(of: Terms, **changes: Any) -> TwoServerRound:
    """A round that keeps to the terms, but for what is changed."""
    fixed = source("browser rounds")
    keys = [public_bytes(new_key(fixed)) for _ in range(5)]
    now, answer = int(START), of.answer
    closes = now + JOINING + answer.window + MARGIN
    made = TwoServerRound(
        Binding(of.digest, 0, answer.levels, answer.window, closes),
        slots=4,
        minimum=of.aggregation.minimum_batch_size,
        modulus=1 << 20,
        servers=(keys[0] + keys[1], keys[2] + keys[3]),
        collector=keys[4],
        length=len(answer.metrics),
        scale=of.noise.scale,
        assigned_until=now + JOINING,
        grace=GRACE,
        identity=bytes(range(16)),
    )
    binding = {name: changes.pop(name) for name in list(changes) if hasattr(made.binding, name)}
    return replace(made, binding=replace(made.binding, **binding), **changes)


def announced(description: bytes, *keys: Any) -> bytes:
    return announce(description, [endorse(description, key) for key in keys or KEYS[:2]])


def verdict(of: Pinned, announcement: bytes, now: float = START) -> dict[str, Any]:
    """What a device in Python makes of an announcement."""
    entry: dict[str, Any] = {
        "terms": of.terms.encode().decode(),
        "announcement": announcement.hex(),
        "now": now,
        "cost": None,
    }
    try:
        found = accept(TwoServerRound, of, announcement)
        cost = of.check(found.offer())
        check_times(found, now)
        _ = found.recipients
    except TacitError:
        return entry
    return entry | {"cost": str(cost), "context": found.context.hex()}


def proven_rounds() -> Iterator[dict[str, Any]]:
    """Rounds with range proofs, under terms with and without them."""
    with_proofs, without = pinned(terms(proofs=1)), pinned(terms())
    proven: dict[str, Any] = {"commitment": bytes(32), "modulus": MODULUS}
    for of in (with_proofs, without):
        yield verdict(of, announced(described(of.terms, **proven).encode()))
        yield verdict(of, announced(described(of.terms).encode()))
    whole = described(with_proofs.terms, **proven).encode()
    yield verdict(with_proofs, announced(whole[:3] + b"\x20" + whole[4:]))
    yield verdict(with_proofs, announced(whole[:-9] + pack_integer(MODULUS - 2)))
    long = terms(proofs=1, answer=replace(terms().answer, levels=1000), noise=Noise(Fraction(2000)))
    yield verdict(pinned(long), announced(described(long, **proven).encode()))


ROWS = ((ONE, 0), (0, ONE), (1, ONE - 1), (20_000, ONE - 20_000), (ONE, 0), (ONE // 2, ONE // 2))
"""Weights of two options in six segments."""


def policy_rounds() -> Iterator[dict[str, Any]]:
    """Rounds where devices choose, and where they get an option, under contextual terms."""
    of, other, sure = (
        pinned(one) for one in (contextual_terms(), terms(), contextual_terms(proofs=1))
    )
    proven: dict[str, Any] = {"commitment": bytes(32), "modulus": MODULUS}
    policy = TablePolicy(ROWS).encode()
    chosen: dict[str, Any] = {"option": BY_POLICY, "policy": policy, "length": 24}
    assigned: dict[str, Any] = {"option": 1, "scale": Fraction(1)}
    for under, changes in (
        (of, chosen),
        (of, chosen | {"scale": Fraction(5, 2)}),
        (of, chosen | {"scale": Fraction(2) - Fraction(1, 10**30)}),
        (of, chosen | {"scale": Fraction(1)}),
        (of, chosen | {"length": 1}),
        (of, chosen | {"length": 23}),
        (of, chosen | {"modulus": 4}),
        (of, assigned),
        (of, assigned | {"scale": Fraction(2)}),
        (of, assigned | {"scale": 1 - Fraction(1, 10**30)}),
        (of, assigned | {"length": 24}),
        (of, assigned | {"option": 2}),
        (other, chosen),
        (of, chosen | proven | {"modulus": MODULUS128}),
        (sure, chosen | proven | {"modulus": MODULUS128}),
        (sure, chosen),
        (sure, assigned | proven),
    ):
        yield verdict(under, announced(described(under.terms, **changes).encode()))
    for wrong in (
        policy[:-4],
        policy + bytes(4),
        policy[:-8],
        policy[:-1] + b"\x01",
        bytes(len(policy)),
        b"\xff" * len(policy),
        b"\x00",
    ):
        spoilt = described(of.terms, **(chosen | {"policy": wrong})).encode()
        yield verdict(of, announced(spoilt))
    large = described(sure.terms, **(chosen | proven | {"modulus": MODULUS128})).encode()
    swapped = large.removesuffix(pack_integer(MODULUS128)) + pack_integer(MODULUS)
    yield verdict(sure, announced(swapped))
    whole = described(of.terms, **chosen).encode()
    at_size = whole.index(policy) - 4
    for size in (0, 1, 47, 49, 1 << 31):
        changed = whole[:at_size] + size.to_bytes(4, "big") + whole[at_size + 4 :]
        yield verdict(of, announced(changed))


def rounds() -> Iterator[dict[str, Any]]:
    of = pinned(terms(aggregation=Aggregation(3)))
    yield verdict(of, announced(described(of.terms, grace=86_400).encode()))
    several = pinned(
        terms(
            answer=Answer("x", ("a", "b"), 3, 5, Fraction(-1), Fraction(2)),
            guarantee=StatedGuarantee(Fraction(1, 3), participations=2),
            noise=Noise(Fraction(40), minimum=Fraction(36)),
        )
    )
    yield verdict(of, announced(described(of.terms).encode()))
    yield verdict(several, announced(described(several.terms).encode()))
    for scale in (Fraction(36), Fraction(36) - Fraction(1, 10**30)):
        yield verdict(several, announced(described(several.terms, scale=scale).encode()))
    yield verdict(of, announced(described(of.terms, scale=Fraction(7, 3)).encode()), START + 99.5)
    closes = described(of.terms).binding.closes
    for changes in (
        {"terms": bytes(32)},
        {"window": 61},
        {"window": 59},
        {"levels": 2},
        {"option": 2},
        {"closes": 4_000_000_000},
        {"closes": 1_790_000_000, "assigned_until": 1_789_999_000},
        {"scale": Fraction(199, 100)},
        {"scale": Fraction(2) - Fraction(1, 10**60)},
        {"scale": None},
        {"length": 2},
        {"modulus": 4},
        {"minimum": 2},
        {"grace": 86_401},
        {"grace": (1 << 32) - 1},
        {"assigned_until": closes - 60},
        {"assigned_until": int(START) - 1},
        {"modulus": 5},
        {"slots": 3, "modulus": 1 << 90},
    ):
        yield verdict(of, announced(described(of.terms, **changes).encode()))
    yield from proven_rounds()
    yield from policy_rounds()
    for other in (HpkeSuite.X25519, HpkeSuite.HYBRID):  # keys of as many bytes as the suite has
        sizes = (other.public_size, other.public_size, other.key_size)
        one, two, three = (bytes([n + 1]) * size for n, size in enumerate(sizes))
        changed = described(of.terms, suite=other, servers=(one, two), collector=three)
        yield verdict(of, announced(changed.encode()))
    whole = described(of.terms).encode()
    for keys in ((KEYS[2], KEYS[3]), (KEYS[0], KEYS[0]), (KEYS[1], KEYS[0]), KEYS[:3]):
        yield verdict(of, announced(whole, *keys))
    for spoilt in (
        whole + b"\x00",
        whole[:-1],
        b"tb" + whole[2:],
        whole[:2] + b"\x01" + whole[3:],
        whole[:3] + b"\x30" + whole[4:],
        whole.replace(b"\x01\x02\x01\x01\x03", b"\x02\x00\x02\x01\x01\x03"),
        whole.replace(b"\x01\x02\x01\x01\x03", b"\x01\x04\x01\x02\x03"),
        whole.replace(b"\x01\x02\x01\x01\x03", b"\x00\x01\x01\x03"),
        whole.replace(b"\x01\x02\x01\x01\x03", b"\x01\x02\x00\x03"),
        whole[:94] + b"\x01" + whole[95:],
        *(whole[:159] + key + whole[191:] for key in WRONG_KEYS),
        whole[:159] + whole[223:255] + whole[191:],
        whole[:127] + whole[191:223] + whole[159:],
        whole[:94],
        b"",
    ):
        yield verdict(of, announced(spoilt))


WRONG_KEYS = [
    number.to_bytes(32, "little")
    for number in (
        0,
        1,
        2**255 - 20,
        2**255 - 19,
        2**255 - 10,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
]


def altered_rounds(seed: int, count: int) -> list[dict[str, Any]]:
    """Descriptions with a byte changed that both servers signed all the same."""
    draw, of = random.Random(seed), pinned(terms(aggregation=Aggregation(3)))
    whole, found = described(of.terms).encode(), []
    for _ in range(count):
        spoilt = bytearray(whole)
        spoilt[draw.choice((*range(4), *range(20, 95), *range(255, len(whole))))] ^= (
            1 << draw.randrange(8)
        )
        found.append(verdict(of, announced(bytes(spoilt))))
    return found


def outcomes() -> dict[str, Any]:
    of = pinned(terms())
    announcement = announced(described(of.terms).encode())
    found = accept(TwoServerRound, of, announcement)
    front, cases = b"ta\x02\x24" + found.identity, []
    for role in (0, 1):
        for said in (1, 2):
            word = bytes((role, said))
            signature = sign(Signed.OUTCOME, found.context + word, KEYS[role])
            cases += [front + word + signature, front + word + signature[:-1] + b"\x00"]
            cases += [front + bytes((1 - role, said)) + signature, front + word]
            cases += [front + bytes((role, 3 - said)) + signature]
            wrong = sign(Signed.ROUND, found.context + word, KEYS[role])
            cases += [front + word + wrong, b"ta\x02\x24" + bytes(16) + word + signature]
        cases += [front + bytes((role, 3)), front + bytes((role, 3, 0)), front + bytes((role, 4))]
    cases += [front + bytes((2, 3)), front + bytes((0, 0)), front, b""]
    return {
        "terms": of.terms.encode().decode(),
        "announcement": announcement.hex(),
        "cases": [_outcome(of, found, message) for message in cases],
    }


def _outcome(of: Pinned, found: TwoServerRound, message: bytes) -> dict[str, Any]:
    try:
        role, said = read_outcome(of, found, message)
    except TacitError:
        return {"message": message.hex(), "said": None}
    return {"message": message.hex(), "said": [role, int(said)]}


# Numbers


def _front(drawn: bytes) -> Source:
    """Always the same bytes."""
    return lambda size: drawn[:size]


def levels() -> Iterator[dict[str, Any]]:
    draw = random.Random(9180)
    for low, high, steps in ((0, 1, 1), (-1, 2, 7), ("-1/3", "22/7", 4), (0, 60, 1000)):
        answer = Answer("", levels=steps, low=Fraction(low), high=Fraction(high))
        for part in ("0", "1", "1/2", "1/3", "999/1000", "1/1000"):
            value = answer.low + (answer.high - answer.low) * Fraction(part)
            for _ in range(3):
                drawn = draw.randbytes(40)
                yield {
                    "range": [str(answer.low), str(answer.high)],
                    "levels": steps,
                    "value": str(value),
                    "draw": drawn.hex(),
                    "level": round_to_level(answer, value, _front(drawn)),
                }
    for number in (0.1, 0.5, 1e-300, 5e-324, 0.999999999999999, 1.0):
        drawn = draw.randbytes(200)
        found = round_to_level(Answer("", levels=3), number, _front(drawn))
        entry = {"range": ["0", "1"], "levels": 3, "value": number, "draw": drawn.hex()}
        yield entry | {"level": found}


SCALES = (Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40), Fraction(10**9, 7))


def draws() -> Iterator[dict[str, Any]]:
    """Exact noise from given words, and how many of them it takes.

    The last words of a few streams begin like the bias of a coin, so that more digits decide.
    """
    for number, parameter in enumerate((*SCALES, *SCALES)):
        kind = ("laplace", "response")[number >= len(SCALES)]
        source_ = random.Random(number)
        words = [source_.getrandbits(64) for _ in range(4000)]
        ties = [Chance(Fraction(1), Fraction(1)), Chance(Fraction(1), 1 / parameter)]
        for place in range(0, len(words), 7):  # a tie with the first or the second bias
            words[place] = ties[place % 2].bounds(64)[0]
        left = iter(words)
        with mock.patch.object(coins, "random_word", lambda left=left: next(left)):
            values = [_drawn(kind, parameter) for _ in range(15)]
        used = len(words) - len(list(left))
        yield {
            "kind": kind,
            "parameter": [str(parameter.numerator), str(parameter.denominator)],
            "words": "".join(f"{word:016x}" for word in words[:used]),
            "values": [str(int(value)) for value in values],
        }


def _drawn(kind: str, parameter: Fraction) -> int:
    if kind == "laplace":
        return draw_laplace(parameter.numerator, parameter.denominator)
    return flip_response(1 / parameter)


def exponentials() -> Iterator[dict[str, Any]]:
    """Bounds on e^-rate."""
    for rate in (Fraction(0), Fraction(1), Fraction(1, 7), Fraction(99, 10), Fraction(300)):
        for bits in (1, 64, 65, 200):
            low, high = coins.exp_bounds(rate, bits)
            top, bottom = rate.as_integer_ratio()
            yield {"rate": [str(top), str(bottom)], "bits": bits, "bounds": [str(low), str(high)]}


def vectors() -> dict[str, Any]:
    """All of them, as plain data."""
    return {
        "terms": [
            *(decided(made.encode().decode()) for made in accepted_terms()),
            *(decided(text) for text in rejected_texts()),
            *(decided(text) for text in rejected_elsewhere()),
            *(decided(text) for text in rejected_contexts()),
        ],
        "successors": list(successors()),
        "rounds": list(rounds()),
        "outcomes": outcomes(),
        "levels": list(levels()),
        "draws": list(draws()),
        "exponentials": list(exponentials()),
        "hpke": RFC_9180,
        "streams": [source(f"report {place}")(600).hex() for place in range(3)],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n", encoding="utf-8")
