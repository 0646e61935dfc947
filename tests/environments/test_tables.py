"""Tables and logs of users: they round-trip or are rejected by line."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import each_row

from tacit.environments import Recorded, Replay, from_frame, read_table
from tacit.environments.tables import ROLES, is_number
from tacit.errors import TacitError

REWARD = st.floats(0, 1)
WORDS = {word for words in ROLES.values() for word in words}
NAME = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1).filter(
    lambda text: text == text.strip() and not is_number(text) and text.lower() not in WORDS
)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, text: str, *, clip: bool = False) -> Recorded:
    world = read_table(write(path, text), clip=clip)
    assert isinstance(world, Recorded)
    return world


def columns_of(world: Recorded) -> list[list[float]]:
    return [column.tolist() for column in world.columns]


@given(st.data())
def test_tables_round_trip(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any rewards, columns of any lengths, with any names or none."""
    lengths = st.lists(REWARD, min_size=1, max_size=6)
    columns = data.draw(st.lists(lengths, min_size=2, max_size=4))
    count, most = len(columns), max(map(len, columns))
    names = data.draw(
        st.none() | st.lists(NAME, min_size=count, max_size=count, unique_by=str.lower)
    )
    rows = [[c[row] if row < len(c) else "" for c in columns] for row in range(most)]
    text = io.StringIO()
    csv.writer(text).writerows(rows if names is None else [names, *rows])
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    world = read_table(path)
    assert isinstance(world, Recorded)
    assert columns_of(world) == columns
    assert world.names == (
        tuple(names) if names else tuple(f"option {i}" for i in range(1, count + 1))
    )
    assert world.rows == sum(map(len, columns))
    assert world.horizon == min(map(len, columns))


def test_a_first_row_of_numbers_is_data(tmp_path: Path) -> None:
    """Found: it was eaten as a header."""
    assert columns_of(read(tmp_path / "x.csv", "0.5,1\n0,1\n")) == [[0.5, 0.0], [1.0, 1.0]]
    assert columns_of(read(tmp_path / "x.csv", "0,1\n")) == [[0.0], [1.0]]


def test_byte_order_marks_blank_lines_and_spaces_are_ignored(tmp_path: Path) -> None:
    world = read(tmp_path / "x.csv", '\ufeff old , "new, bold"\r\n 1, 0.5\r\n,1e-1\r\n,\r\n\r\n')
    assert world.names == ("old", "new, bold")
    assert columns_of(world) == [[1.0], [0.5, 0.1]]
    assert (world.rows, world.horizon) == (3, 1)


BAD_TABLES = {
    "": r"x.csv is empty\. Give a CSV file with one column of rewards per option",
    "\n \n": "x.csv is empty",
    "A,B\n": r"x.csv has names but no rewards\. Add a line for every",
    "A\n1\n": r"x.csv line 1 has 1 column: .* two or more options, separated by commas",
    "A;B\n0,5;1\n": r"x.csv \(separated by semicolons\) line 2: 'A' is '0,5': .* with a point",
    "Tag;Wer\n2026-01-01;1\n": r"'Tag' is '2026-01-01': .* A log's columns are participant",
    '"A;B"\n1\n': r"x.csv \(separated by semicolons\) line 1 has 1 column",
    "A,A\n1,0\n": r"x.csv column 2 has the name 'A' of another one\. Give it a name of its own",
    ",A,B\n0,1,0\n": r"x.csv column 1 has no name\. Give it a name of its own, or delete it",
    "A,B\n1,0\n1,0,1\n": "x.csv line 3: it has 3 cells, line 1 has 2. Give every line as many",
    "A,B\n1\n1,0\n": "x.csv line 2: it has 1 cells, line 1 has 2",
    "A,B\n1,0\n\n1,0\n": "x.csv line 3: it has 0 cells, line 1 has 2",
    "A,B\n1,0\n,1\n1,0\n": "x.csv line 3: 'A' is empty: must be a number. Correct it, or",
    "A,B\n1,\n1,\n": "x.csv column 'B' is empty: must have a number. Delete",
    "A,B\n1,0\n1,high\n": "x.csv line 3: 'B' is 'high': must be a number",
    "A,B\n1,nan\n": "x.csv line 2: 'B' is 'nan': must be a number",
    "NaN,0.5\n1,1\n": "x.csv line 1: 'option 1' is 'NaN': must",
    "A,B\n1,-inf\n": "x.csv line 2: 'B' is '-inf'",
    f"A,B\n1,{'x' * 99}\n": r"'B' is 'x{36}\.\.\.:",
    "A,B\n1,0\n1,3\n2,-1\n": "x.csv line 4: 'A' is 2, and 1 of 3 are outside .0, 1.. Rescale",
    "A,0.5\n1,0\n": r"x.csv line 1 mixes names and numbers \('A, 0.5'\). Begin every name with",
    "0,1,2\n1,0,1\n": "x.csv line 1 numbers the columns .* must be names or rewards",
    "1,2\n1,0\n": "x.csv line 1 numbers the columns",
    "2023,2024\n0,1\n1,0\n": "x.csv line 1 numbers the columns",
    "nr,group,bought\n1,a,0\n2,b,1\n": r"participant \(.*reward \(outcome, response\)",
    'A,B\n1,"0\n': r"x.csv line \d is not CSV \(unexpected end of data\)\. Check its quotation",
    "A,B\n1,0\n1,\0\n": "x.csv line 3 has the byte 0x00, which is not UTF-8 text. Save the data as",
    "arm,reward\na,1\n": r"has 'arm', 'reward': a log must also have participant \(pa",
    "user,A,B\n1,0,1\n": r"has 'user': a log must .* option \(arm, action, variant\); reward \(out",
    "user,optoin,reward\n1,a,1\n": r"also have option \(.*\). For 'optoin' did you mean option\?$",
    "user,id,arm\n1,0,1\n": "two columns for the participant, 'user' and 'id'. Rename one of them",
    "user,arm,reward\n1,a,1\n2,a,1\n": "x.csv has only the option 'a': must have two",
    "user,arm,reward\n1,a,1\n,b,1\n": "x.csv line 3: 'user' is empty. Fill it in",
    "user,arm,reward\n1,a,1\n2,,1\n": "x.csv line 3: 'arm' is empty. Fill it in",
    "user,arm,reward\n1,a,1\n2,b,\n": "x.csv line 3: 'reward' is empty: must be a number",
    "user,arm,reward\n1,a,1\n2,b,7\n": "x.csv line 3: 'reward' is 7, and 1 of 2 are outside",
    "user,arm,reward,pscore\n1,a,1,0\n": "only the option 'a'",
    "user,arm,reward,pscore\n1,a,1,1\n2,b,1,0\n": "line 3: 'pscore' is 0: must be in .0, 1.",
}


@each_row("text", BAD_TABLES)
def test_ambiguous_tables_are_rejected_with_the_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(TacitError, match=BAD_TABLES[text]) as rejection:
        read_table(write(tmp_path / "x.csv", text))
    assert len(str(rejection.value)) < 280


def test_files_that_are_no_tables_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TacitError, match=r"none.csv cannot be read \(No such file.*Give a CSV"):
        read_table(str(tmp_path / "none.csv"))
    with pytest.raises(TacitError, match=r"cannot be read \(Is a directory\)"):
        read_table(tmp_path)
    (tmp_path / "latin.csv").write_bytes("A,B\n1,0\né,1\n".encode("latin-1"))
    with pytest.raises(TacitError, match=r"latin.csv line 3 has the byte 0xe9, which is not UTF-8"):
        read_table(tmp_path / "latin.csv")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    with pytest.raises(TacitError, match=r"picture.png line 1 has the byte 0x89"):
        read_table(tmp_path / "picture.png")

    def denied(_: Path) -> bytes:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "read_bytes", denied)  # root may read everything
    with pytest.raises(TacitError, match=r"x.csv cannot be read \(Permission denied\)"):
        read_table(tmp_path / "x.csv")


def test_rewards_out_of_range_are_clipped_and_counted_on_request(tmp_path: Path) -> None:
    world = read(tmp_path / "x.csv", "A,B\n-1,0.5\n3,1.5\n", clip=True)
    assert columns_of(world) == [[0.0, 1.0], [0.5, 1.0]]
    assert world.clipped == 3
    resampled = world.resampled()
    assert (resampled.clipped, resampled.rows, resampled.names) == (3, 4, ("A", "B"))


class Frame:
    """What pandas and polars frames have in common."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        self.columns, self._table = list(table), table

    def __getitem__(self, key: Any) -> Any:
        return self._table[key]


class NAType:
    """As pandas' missing value: neither a number nor comparable."""

    def __repr__(self) -> str:
        return "<NA>"

    def __bool__(self) -> bool:
        raise TypeError


def test_data_frames_and_mappings_are_read_alike() -> None:
    table = {"A": np.array([0.0, 1.0, np.nan]), 2: [True, np.float32(0.5), 1], "C": [1, None, None]}
    for source in (table, Frame(table), Frame({**table, "C": [1, NAType(), float("nan")]})):
        world = from_frame(source)
        assert isinstance(world, Recorded)
        assert world.names == ("A", "2", "C")
        assert columns_of(world) == [[0.0, 1.0], [1.0, 0.5, 1.0], [1.0]]
    assert isinstance(from_frame(table, resample=True), Replay)


BAD_FRAMES: list[tuple[Any, str]] = [
    ([[1, 0]], "frame is a list: must be a pandas or polars frame"),
    ({"A": [1, None, 1], "B": [1, 1, 1]}, "the frame row 2: 'A' is empty: must be a number"),
    ({"A": [1, 1j], "B": [1, 1]}, "the frame row 2: 'A' is 1j: must be a number"),
    ({"A": [1, 10**400], "B": [1, 1]}, "the frame row 2: 'A' is 10"),
    ({"A": [1]}, r"the frame has 1 column: must have two or more"),
    ({}, "the frame has names but no rewards"),
    ({1: [1], "1": [1]}, "the frame column 2 has the name '1' of another one"),
]


@each_row(("frame", "message"), BAD_FRAMES)
def test_invalid_frames_are_rejected_with_the_row(frame: Any, message: str) -> None:
    with pytest.raises(TacitError, match=message):
        from_frame(frame)


def test_semicolons_and_tabs_separate_columns_where_no_comma_does(tmp_path: Path) -> None:
    world = read(tmp_path / "x.csv", 'old;"new; bold"\n1;0.5\n;1\n')
    assert (world.names, columns_of(world)) == (("old", "new; bold"), [[1.0], [0.5, 1.0]])
    assert read(tmp_path / "x.csv", "a;b,c\n1,0\n").names == ("a;b", "c")
    assert read(tmp_path / "x.csv", "old\tnew\n1\t0\n").names == ("old", "new")


def test_a_log_is_recognised_by_its_column_names(tmp_path: Path) -> None:
    world = read(
        tmp_path / "log.csv",
        "time,User ID,ACTION,Outcome,propensity\n"
        "9:00,ann,new,1,0.5\n9:01,bob,old,0,0.25\n9:02,ann,new,0,0.25\n",
    )
    assert (world.names, world.log, world.participations) == (("new", "old"), True, 2)
    assert columns_of(world) == [[1.0, 0.0], [0.0]]
    assert world.means.tolist() == pytest.approx([1 / 3, 0.0])
    assert world.resampled().means.tolist() == pytest.approx([1 / 3, 0.0])
    assert world.remark.occurrences == 2


def test_options_named_like_log_columns_stay_a_table(tmp_path: Path) -> None:
    assert read(tmp_path / "x.csv", "control,variant\n1,0\n").names == ("control", "variant")
