"""Malicious servers and clients of secure aggregation: rejected requests, and the one attack that
is not prevented.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from tests.aggregation.rings import ring_session

from tacit.aggregation import (
    MaskingPlan,
    MaskingSession,
    Neighbourhood,
    Rejected,
    masks,
    shamir,
)
from tacit.aggregation.agreement import new_key, public_bytes
from tacit.aggregation.masking import (
    INBOX_ENTRY,
    PAIRS_HEAD,
    REQUEST_HEAD,
    SETUP_ENTRY,
    SETUP_HEAD,
    mask_seed,
    pack_listed,
)
from tacit.aggregation.masking_messages import inboxes
from tacit.aggregation.share_commitments import SHARE_ENTRY
from tacit.aggregation.wire import Kind

N, K, T = 8, 7, 5
LOW_ORDER = bytes(32)


def session_until(stage: str) -> MaskingSession:
    session = MaskingSession(list(range(N)), MaskingPlan(6, 1000, Neighbourhood(K, T)))
    for name in ("join", "share", "check", "mask"):
        getattr(session, name)()
        if name == stage:
            return session
    raise AssertionError(stage)


def forge(session: MaskingSession, place: int, kind: Kind, content: bytes) -> bytes:
    """A message that a malicious server could send: encrypted on its channel, any content."""
    server, client = session.server, session.server._clients[place]
    return server._encrypt(client, kind, content)


def inbox_entries(session: MaskingSession, place: int) -> list[tuple[Any, ...]]:
    """The content of a client's inbox from an honest server."""
    _, contents = inboxes(session.server._registry)
    return list(INBOX_ENTRY.iter_unpack(contents[place]))


def request(
    session: MaskingSession,
    place: int,
    stayed: Iterable[int],
    left: Iterable[int],
    survivors: int = N,
) -> bytes:
    stayed, left = list(stayed), list(left)
    numbers = b"".join(number.to_bytes(4, "big") for number in [*stayed, *left])
    return forge(
        session, place, Kind.REQUEST, REQUEST_HEAD.pack(survivors, len(stayed), len(left)) + numbers
    )


def test_a_neighbour_listed_as_survivor_and_dropout_is_rejected() -> None:
    session = session_until("mask")
    with pytest.raises(Rejected, match="neighbour 3 is listed both"):
        session.clients[0].reveal(request(session, 0, range(1, N), [3]))


@pytest.mark.parametrize(
    ("stayed", "left", "survivors", "reason"),
    [
        ([1, 2, 3, 4, 5, 6, 99], [], N, "client 99 is not a neighbour"),
        ([0, 1, 2, 3, 4, 5, 6], [7], N, "among its own neighbours"),
        ([1, 2, 3, 4, 5, 6, 7], [0], N, "among its own neighbours"),
        ([1, 2, 3, 4], [5, 6, 7], N, "neighbours is 4: must be at least the threshold"),
        ([1, 2, 3, 4, 5, 6], [], N, "other neighbours than the remaining"),
        ([1, 2, 3, 4, 5, 6, 7], [], 5, "must be at least 6, the minimum batch size"),
        ([2, 1, 3, 4, 5, 6, 7], [], N, "ascending"),
        ([1, 1, 2, 3, 4, 5, 6, 7], [], N, "ascending"),
    ],
)
def test_inconsistent_unmasking_requests_reveal_nothing(
    stayed: list[int], left: list[int], survivors: int, reason: str
) -> None:
    session = session_until("mask")
    client = session.clients[0]
    with pytest.raises(Rejected, match=reason):
        client.reveal(request(session, 0, stayed, left, survivors))
    # A rejection is no answer: the honest request still gets one.
    assert client.reveal(session.outgoing[client.address])


def test_a_second_request_with_other_survivors_is_rejected() -> None:
    session = session_until("mask")
    client = session.clients[0]
    honest = session.outgoing[client.address]
    answer = client.reveal(honest)
    assert client.reveal(honest) == answer
    with pytest.raises(Rejected, match="already sent in answer to another message"):
        client.reveal(request(session, 0, [1, 2, 3, 4, 5, 6], [7]))


def test_a_client_reveals_exactly_one_kind_of_share_for_each_neighbour() -> None:
    session = session_until("mask")
    owners = session.clients
    held = dict(owners[0]._held)
    channel = session.server._clients[0].channel
    answer = owners[0].reveal(request(session, 0, [1, 2, 3, 4, 5, 6], [7]))
    content = channel.decrypt(answer[:52], answer[52:])
    told = dict(SHARE_ENTRY.iter_unpack(content))
    assert told == {number: pair[number == 7] for number, pair in held.items()}


def test_conflicting_survivor_lists_never_reveal_both_secrets_of_a_client() -> None:
    # The threshold is more than half of the neighbours, so two disjoint groups cannot both reach
    # it.
    for degree in range(1, 66):
        for threshold in range(1, degree + 1):
            try:
                Neighbourhood(degree, threshold)
            except ValueError:
                assert 2 * threshold <= degree
            else:
                assert 2 * threshold > degree


def setup(
    session: MaskingSession,
    place: int,
    number: int,
    joined: int,
    entries: list[tuple[int, bytes, bytes, bytes]],
) -> bytes:
    content = SETUP_HEAD.pack(number, joined, len(entries)) + b"".join(
        SETUP_ENTRY.pack(*entry) for entry in entries
    )
    return forge(session, place, Kind.SETUP, content)


def test_invalid_setups_are_rejected() -> None:
    session = session_until("join")
    client = session.clients[0]
    good = [
        (number, known.address, known.masking, known.signing)
        for number, known in enumerate(session.server._clients)
    ][1:]
    own = (0, client.address, client._masking_public, client._signing_public)
    cases = [
        (0, N, good[:-1], "neighbours"),  # too few
        (0, 5, good[:4], "number of clients is"),  # below the minimum
        (0, N + 1, good, "number of clients is"),
        (9, N, good, "number of this client"),  # a number that nobody can have
        (0, N, [own, *good[1:]], "ascending"),
        (0, N, [*good[1:], good[0]], "ascending"),
        (0, N, [*good[:-1], (99, *good[-1][1:])], "ascending"),
        (0, N, [*good[:-1], good[-2]], "same number or key"),
        (0, N, [*good[:-1], (7, *good[-2][1:])], "same number or key"),
        (0, N, [*good[:-1], (7, client.address, *good[-1][2:])], "same number or key"),
        (0, N, [*good[:-1], (7, LOW_ORDER, *good[-1][2:])], "small order"),
    ]
    for number, joined, entries, reason in cases:
        with pytest.raises(Rejected, match=reason):
            client.share(setup(session, 0, number, joined, entries))
    first = client.share(session.outgoing[client.address])
    with pytest.raises(Rejected, match="already sent"):
        client.share(
            setup(
                session,
                0,
                0,
                N,
                [*good[:-1], (7, public_bytes(new_key()), public_bytes(new_key()), bytes(32))],
            )
        )
    assert client.share(session.outgoing[client.address]) == first


def test_invalid_inboxes_are_rejected_before_numbers_are_sent() -> None:
    session = session_until("share")
    client = session.clients[0]
    ciphertexts = inbox_entries(session, 0)
    cases = [
        (ciphertexts[:4], "shared their secrets is 4"),
        ([*ciphertexts[:-1], (99, *ciphertexts[-1][1:])], "not a neighbour"),
        ([(0, *ciphertexts[0][1:]), *ciphertexts[1:]], "own neighbours"),
        ([*ciphertexts[:-1], ciphertexts[-2]], "ascending"),
    ]
    for entries, reason in cases:
        with pytest.raises(Rejected, match=reason):
            client.check(
                forge(
                    session, 0, Kind.INBOX, b"".join(INBOX_ENTRY.pack(*entry) for entry in entries)
                )
            )
    with pytest.raises(Rejected, match="INBOX is"):
        client.check(forge(session, 0, Kind.INBOX, bytes(10)))


def test_invalid_pairs_are_rejected_before_numbers_are_sent() -> None:
    session = session_until("check")
    client = session.clients[0]
    for listed, evidence, reason in (
        ([1, 2, 3, 4], b"", "neighbours to mask with is 4"),
        ([1, 2, 3, 4, 99], b"", "not a neighbour"),
        ([0, 1, 2, 3, 4], b"", "own neighbours"),
        ([2, 1, 3, 4, 5], b"", "ascending"),
        ([1, 2, 3, 4, 5], bytes(9), "evidence is"),
    ):
        numbers = b"".join(number.to_bytes(4, "big") for number in listed)
        content = PAIRS_HEAD.pack(len(listed), 0) + numbers + evidence
        with pytest.raises(Rejected, match=reason):
            client.mask(forge(session, 0, Kind.PAIRS, content), [1])
    shown = session.server._clients[1].evidence().encode()
    numbers = b"".join(number.to_bytes(4, "big") for number in range(1, 8))
    content = PAIRS_HEAD.pack(7, 1) + numbers + shown
    with pytest.raises(Rejected, match="did not complain about"):
        client.mask(forge(session, 0, Kind.PAIRS, content), [1])
    assert client.mask(session.outgoing[client.address], [1])


def test_complaints_by_clients_that_are_no_neighbours_are_rejected() -> None:
    session = ring_session([0] * 16, 14, 100, Neighbourhood(4, 3))
    session.join()
    session.share()
    client = session.clients[0]
    member, checked = (
        session.server._by_address[client.address],
        client.check(session.outgoing[client.address]),
    )
    near, own = member.neighbours, member.number
    far = next(number for number in range(16) if number not in (*near, own))
    for named in ([far], [own], [99], near[:1] * 2, [near[1], near[0]]):
        spoilt = client._channel.encrypt(checked[:52], pack_listed(named))
        with pytest.raises(Rejected, match="names clients whose encrypted shares"):
            session.server.take(spoilt)
    session.server.take(checked)


def test_reveals_that_do_not_match_the_request_are_rejected() -> None:
    session = session_until("mask")
    client = session.clients[0]
    message = client.reveal(session.outgoing[client.address])
    channel = session.server._clients[0].channel
    content = channel.decrypt(message[:52], message[52:])
    size = SHARE_ENTRY.size
    swapped = content[size : 2 * size] + content[:size] + content[2 * size :]
    for spoilt in (swapped, content[:-size], content + content[:size], content[:-1], b""):
        with pytest.raises(Rejected):
            session.server.take(client._channel.encrypt(message[:52], spoilt))
    session.server.take(message)


def test_a_client_with_a_key_of_small_order_cannot_join() -> None:
    session = MaskingSession([0] * 3, MaskingPlan(3, 100))
    server, join = session.server, session.clients[0].join()
    with pytest.raises(Rejected, match="small order"):
        server.take(join[:20] + LOW_ORDER + join[52:])


def test_duplicate_or_invalid_keys_cannot_join() -> None:
    session = MaskingSession([0], MaskingPlan(3, 100, participants=4))
    server, (first,) = session.server, session.clients
    server.take(first.join())
    for masking, reason in (
        (first._masking_public, "every key"),
        (LOW_ORDER, "small order"),
    ):
        client = session.client()
        client._masking_public = masking
        with pytest.raises(Rejected, match=reason):
            server.take(client.join())


def test_a_server_with_conflicting_lists_can_isolate_one_client() -> None:
    """Not prevented, as docs/explanation/trust/secure-aggregation.md says: the server must be
    trusted to ask everyone about the same survivors.

    It tells enough neighbours of each of the victim's neighbours that those left, and the victim's
    neighbours that the victim stayed. Every request passes every check, nobody is asked for both
    shares of anyone, the number comes out.
    """
    secret, modulus, n, k, t = 123, 1000, 30, 8, 5
    session = ring_session([secret, *range(1, n)], n, modulus, Neighbourhood(k, t))
    server = session.server
    session.join()
    session.share()
    session.mask()
    neighbours = [client.neighbours for client in server._clients]
    lies = _lies(neighbours, neighbours[0], t, k - t)
    revealed: dict[int, dict[int, bytes]] = {}
    for place, gone in lies.items():
        stayed = [number for number in neighbours[place] if number not in gone]
        answer = session.clients[place].reveal(request(session, place, stayed, gone, n))
        content = server._clients[place].channel.decrypt(answer[:52], answer[52:])
        revealed[place] = dict(SHARE_ENTRY.iter_unpack(content))

    def released(owner: int, left: bool) -> bytes:
        known = {other: at for at, other in enumerate(neighbours[owner], start=1)}
        shares = {
            known[place]: revealed[place][owner]
            for place in known
            if (owner in lies[place]) == left
        }
        positions = tuple(sorted(shares)[:t])
        return shamir.combine(positions, [shares[position] for position in positions])

    seeds = [released(0, left=False)]
    added: list[bytes] = []
    for other in neighbours[0]:
        key = X25519PrivateKey.from_private_bytes(released(other, left=True))
        me, victim = (other, server._clients[other].masking), (0, server._clients[0].masking)
        (seeds if other > 0 else added).append(mask_seed(key, me, victim, server.round.context))
    (mask,) = masks.total(seeds, added, modulus, 1)
    assert (server._clients[0].masked[0] - mask) % modulus == secret


def _lies(
    neighbours: list[list[int]], targets: list[int], needed: int, each: int
) -> dict[int, list[int]]:
    """Who is declared dropped to whom: every target `needed` times, to nobody more than `each`."""
    n = len(neighbours)
    source, sink = 2 * n, 2 * n + 1
    capacity = np.zeros((2 * n + 2, 2 * n + 2), dtype=np.int32)
    for target in targets:
        capacity[source, target] = needed
        for place in neighbours[target]:
            capacity[target, n + place] = 1
    capacity[n : 2 * n, sink] = each
    flow = maximum_flow(csr_array(capacity), source, sink)
    assert flow.flow_value == needed * len(targets)
    told = flow.flow.toarray()
    return {
        place: [target for target in sorted(targets) if told[target, n + place] == 1]
        for place in range(n)
    }
