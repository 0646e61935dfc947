"""An adversary with backups of the masking server, shuffler or analyzer, and records of finished
rounds.
"""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
from tests.aggregation.shuffler_channels import keys_of

from tacit.aggregation import (
    Analyzer,
    MaskingPlan,
    MaskingServer,
    MaskingSession,
    Neighbourhood,
    Rejected,
    Shuffler,
    ShufflerSession,
)
from tacit.errors import TacitError
from tacit.records import MemoryRecords

STAGES = ("join", "share", "mask", "reveal")


def backups_of(session: MaskingSession) -> list[bytes]:
    saved = [session.server.save()]
    for stage in STAGES:
        getattr(session, stage)()
        saved.append(session.server.save())
    return saved


def test_backups_of_a_masking_server_contain_no_usable_key_after_the_round() -> None:
    session = MaskingSession([5, 6, 7, 8], MaskingPlan(4, 100, Neighbourhood(3, 2)))
    key = session.server._key.private_bytes_raw()
    saved = backups_of(session)
    held = b"".join(session.store._records.values())
    for part in (*saved, held):
        assert key not in part
    for backup in saved:
        restored = MaskingServer.restore(backup, session.store)
        assert restored.view() == session.server.view()
        assert "_key" not in restored.__dict__
        with pytest.raises(Rejected, match=r"over \(released\)"):
            restored.take(session.clients[0].join())
        with pytest.raises(Rejected, match="is unknown"):
            MaskingServer.restore(backup, MemoryRecords())


def test_an_aborted_round_is_aborted_in_every_backup_and_its_key_deleted() -> None:
    session = MaskingSession([5, 6, 7, 8], MaskingPlan(4, 100))
    key, before = session.server._key.private_bytes_raw(), session.server.save()
    session.join()
    session.server.abort()
    assert key not in b"".join(session.store._records.values())
    for backup in (before, session.server.save()):
        restored = MaskingServer.restore(backup, session.store)
        with pytest.raises(Rejected, match=r"over \(aborted\)"):
            restored.close()


def test_a_backup_of_a_shuffler_hides_contents_and_order() -> None:
    session = ShufflerSession(4, 3)
    reports = [session.wrap([message]) for message in (b"a", b"b", b"c")]
    seen = set()
    for order in itertools.permutations(reports):
        shuffler = Shuffler(session.round, session.store)
        for report in order:
            shuffler.take(report)
        seen.add(shuffler.save())
    (backup,) = seen
    for encrypted in shuffler._taken.values():
        assert encrypted[0][:32] not in backup
        assert encrypted[0][-32:] not in backup
    shuffler.close()
    restored = Shuffler.restore(backup, session.store)
    assert not restored._taken
    with pytest.raises(Rejected):
        Shuffler.restore(backup, MemoryRecords())


def test_no_decryption_key_is_left_after_a_shuffled_round() -> None:
    session = ShufflerSession(4, 3)
    keys = keys_of(session)
    for message in (b"a", b"b", b"c"):
        session.shuffler.take(session.wrap([message]))
    (batch,) = session.shuffler.close().values()
    session.analyzer.take(batch)
    session.analyzer.close()
    session.shuffler.forget()
    held = b"".join(session.store._records.values())
    assert batch not in held
    for party in keys:
        assert party.line.private_bytes_raw() not in held
        assert party.encryption.classical.private_bytes_raw() not in held
    secrets = [record for record in session.store._records.values() if record[0] == 0]
    assert not secrets, "no record of an open round is left"
    for kind in (Shuffler, Analyzer):
        fresh = kind(session.round, session.store)
        assert fresh._keys is None


def test_masking_state_cannot_be_copied_or_pickled() -> None:
    session, mixing = MaskingSession([1, 2, 3], MaskingPlan(3, 100)), ShufflerSession(4, 3)
    things: list[object] = [
        session.clients[0],
        session.server,
        mixing.shuffler,
        mixing.analyzer,
    ]
    for thing in things:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TacitError, match="cannot be pickled or copied"):
                copied(thing)
