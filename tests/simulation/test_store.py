"""A study on disk: the same results file in any order of cells, and no truncated records."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.errors import TacitError
from tacit.simulation.store import KINDS, LOG, StudyStore, read_directory, read_results, stored

HEAD: dict[str, Any] = {
    "format": 2,
    "name": "some",
    "versions": {"tacit": "1"},
    "study": {"seeds": 4, "configurations": [{"label": "a", "options": {"epsilon": 1.0}}]},
    "command": "",
}
KIND = [
    pytest.param(
        kind,
        marks=pytest.mark.skipif(
            kind == "parquet" and not find_spec("pyarrow"), reason="needs pyarrow"
        ),
    )
    for kind in KINDS
]
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    st.lists(st.integers(0, 9), max_size=2),
    st.dictionaries(st.text("ab", max_size=1), st.integers(0, 3), max_size=2),
)


@st.composite
def divided(draw: st.DrawFn) -> tuple[dict[int, str], list[list[int]]]:
    """Rows of any kind, and cells in any order, by any number of processes."""
    count = draw(st.integers(1, 8))
    columns = draw(st.lists(st.sampled_from("uvwxyz"), unique=True, max_size=4))
    rows = {
        cell: json.dumps({"cell": cell, **{name: draw(values) for name in columns}})
        for cell in range(count)
    }
    order = draw(st.permutations(range(count)))
    cuts = sorted(draw(st.sets(st.integers(1, count), max_size=3)) | {count})
    return rows, [order[a:b] for a, b in zip([0, *cuts], cuts, strict=False) if a < b]


def filled(out: Path, kind: str, rows: dict[int, str], parts: list[list[int]]) -> Path:
    for cells in parts:  # each by a process of its own, as after a kill
        with stored(out, HEAD, len(rows), kind) as store:
            for cell in cells:
                store.add(cell, rows[cell])
    with stored(out, HEAD, len(rows), kind) as store:
        assert store.rows == rows
        store.finish([])
    return store.results


@pytest.mark.parametrize("kind", KIND)
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(example=divided())
def test_the_results_file_is_independent_of_the_order(
    tmp_path: Path, kind: str, example: tuple[dict[int, str], list[list[int]]]
) -> None:
    rows, parts = example
    for name in ("one", "other"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    one = filled(tmp_path / "one", kind, rows, parts)
    other = filled(tmp_path / "other", kind, rows, [sorted(rows)])
    assert one.read_bytes() == other.read_bytes()
    assert len((tmp_path / "one" / LOG).read_bytes().splitlines()) == 1  # the header
    read = list(read_results(one))
    assert [row["cell"] for row in read] == sorted(rows)
    for row in read:
        assert row == json.loads(rows[row["cell"]])


@pytest.mark.parametrize("kind", KIND)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_record_is_run_again(tmp_path: Path, kind: str, part: float) -> None:
    rows = {cell: json.dumps({"cell": cell, "regret": cell / 3}) for cell in range(6)}
    with stored(tmp_path, HEAD, 6, kind) as store:
        for cell in (0, 1, 2):
            store.add(cell, rows[cell])
    log = tmp_path / LOG
    head, first, second, last = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([head, first, second, last[: int(len(last) * part)]]))
    with stored(tmp_path, HEAD, 6, kind) as store:
        assert store.rows == {0: rows[0], 1: rows[1]}
        assert store.unread == (part > 0)
        for cell in (2, 3, 4, 5):
            store.add(cell, rows[cell])
        store.finish([])
    assert [row["regret"] for row in read_results(store.results)] == [c / 3 for c in range(6)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOG, f"results.{kind}"]
    assert read_directory(tmp_path) is not None


def test_the_log_is_kept_while_cells_are_missing_and_failures_are_reported(tmp_path: Path) -> None:
    with stored(tmp_path, HEAD, 4, "jsonl") as store:
        for cell in (0, 2):
            store.add(cell, f'{{"cell": {cell}}}')
        store.finish([{"cell": 1, "error": "x"}, {"cell": 3, "error": "y"}])
    assert [row["cell"] for row in read_results(store.results)] == [0, 2]
    assert [row["cell"] for row in read_results(store.failures)] == [1, 3]
    with stored(tmp_path, HEAD, 4) as store:
        assert set(store.rows) == {0, 2}
        for cell in (1, 3):
            store.add(cell, f'{{"cell": {cell}}}')
        store.finish([])
    assert not store.failures.exists()
    with stored(tmp_path, HEAD, 4) as store:
        assert set(store.rows) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seeds", 5, r"seeds \(there 4, here 5\)"),
        ("configurations", [], r"number of configurations \(there 1, here 0\)"),
        (
            "configurations",
            [{"label": "a", "options": {"epsilon": 2.0}}],
            r"configurations\[1\].options.epsilon \(there 1.0, here 2.0\)",
        ),
    ],
)
def test_another_study_is_rejected_with_the_difference(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    with stored(tmp_path, HEAD, 4, "jsonl") as store:
        store.add(0, '{"cell": 0}')
    before = (tmp_path / LOG).read_bytes()
    changed = HEAD | {"study": HEAD["study"] | {key: value}}
    with (
        pytest.raises(TacitError, match=rf"another study: .*{message}.*Choose another --out"),
        stored(tmp_path, changed, 4),
    ):
        pass
    assert (tmp_path / LOG).read_bytes() == before


def test_other_versions_and_formats_are_rejected(tmp_path: Path) -> None:
    with stored(tmp_path / "a", HEAD, 4, "jsonl") as store:
        store.add(0, '{"cell": 0}')
        store.finish([])
    newer = HEAD | {"versions": {"tacit": "2"}}
    for manifest, kind, message in (
        (newer, "auto", r"tacit \(there '1', here '2'\)"),
        (HEAD, "parquet", "format is 'parquet', but .* has results.jsonl"),
    ):
        with pytest.raises(TacitError, match=message), stored(tmp_path / "a", manifest, 4, kind):
            pass
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "results.jsonl").touch()
    with (
        pytest.raises(TacitError, match=r"has results.jsonl but no log.jsonl"),
        stored(tmp_path / "b", HEAD, 4),
    ):
        pass
    (tmp_path / "a" / LOG).write_text("[]\n")
    with (
        pytest.raises(TacitError, match="is not a log of format 2"),
        stored(tmp_path / "a", HEAD, 4),
    ):
        pass
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "study.json").touch()
    with (
        pytest.raises(TacitError, match=r"has study.json: sweeps of format 1 .*another --out"),
        stored(tmp_path / "old", HEAD, 4),
    ):
        pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(TacitError, match="a file is in the way"),
        stored(tmp_path / "file", HEAD, 4),
    ):
        pass


def test_two_sweeps_do_not_share_a_directory(tmp_path: Path) -> None:
    with (
        stored(tmp_path, HEAD, 4),
        pytest.raises(TacitError, match="another process writes to"),
        stored(tmp_path, HEAD, 4),
    ):
        pass
    with stored(tmp_path, HEAD, 4) as store:
        assert isinstance(store, StudyStore)
