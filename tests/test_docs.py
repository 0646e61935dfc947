"""The documentation is current: blocks run, commands exist, generated pages match."""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.tables import each_row

from tacit.algorithms.registry import lookup
from tacit.cli import HOMES, app, built
from tacit.cli.options import given_options
from tacit.simulation.study import HOW

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted(
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    if "_build" not in path.parts
)
QUICK = ("calibrate", "privacy", "returning", "amplify", "algorithms")
COMMANDS: dict[str, Any] = {name: built(name) for name in HOMES}


@dataclass(frozen=True)
class Line:
    """One command of a page, and what the page shows of its output."""

    page: str
    words: tuple[str, ...]
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"[:80]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^\1```$", page.read_text(encoding="utf-8"), re.M | re.S
    )
    return [re.sub(rf"^{indent}", "", text, flags=re.M) for indent, text in found]


def lines(page: Path) -> list[Line]:
    found: list[Line] = []
    for block in blocks(page, "console"):
        for text in block.splitlines():
            if text.startswith("$ "):
                found.append(Line(name(page), tuple(shlex.split(text[2:], comments=True)), ()))
            elif text.strip(" .…") and found:
                last = found.pop()
                found.append(Line(last.page, last.words, (*last.shown, text)))
    return found


def mentions(page: Path) -> list[Line]:
    """Commands in running text and tables, but for those with a blank to fill in."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text))
    complete = re.compile(r"(make|python) \S|tacit \w+ (--[\w-]+ [^\s-]|\w+-fig)")
    whole = (span for span in spans if complete.match(span))
    return [
        Line(name(page), tuple(shlex.split(span)), ())
        for span in whole
        if not re.search(r"…|\b(NAME|COMMAND|SETTING)\b|>", span)
    ]


def tacit_words(line: Line) -> list[str] | None:
    """What follows `tacit`, if that is what the line calls."""
    words = list(line.words)
    if words[:3] == ["python", "-m", "tacit"]:
        return words[3:]
    return words[1:] if Path(words[0]).name == "tacit" else None


PROGRAMS = [page for page in PAGES if blocks(page, "python")]
LINES = [line for page in PAGES for line in lines(page)]
MENTIONED = list(dict.fromkeys(line for page in PAGES for line in mentions(page)))


def run(path: Path, where: Path) -> None:
    """A user's program in its own directory, with the external package importable."""
    paths = [str(ROOT / "tests" / "outside" / "package"), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=where,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.extended
@pytest.mark.parametrize("page", PROGRAMS, ids=name)
def test_the_python_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    if page.stem == "verified":
        pytest.importorskip("Crypto", reason="needs pycryptodome: pip install '.[verified]'")
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    run(program, tmp_path)


@pytest.mark.extended
@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    run(example, tmp_path)


def test_examples_are_short_and_all_are_documented() -> None:
    shown = (ROOT / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) == 6
    for example in EXAMPLES:
        assert f"../../examples/{example.name}" in shown
        assert code_lines(example) <= 10


def code_lines(path: Path) -> int:
    """Lines that are neither blank, nor a comment, nor the docstring."""
    stripped = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in stripped)


@each_row("line", [*LINES, *MENTIONED])
def test_documented_commands_and_options_exist(line: Line) -> None:
    words = tacit_words(line)
    if words is None:
        check_other(line.words, (ROOT / line.page).read_text(encoding="utf-8"))
        return
    if not words or words[0].startswith("-"):
        assert words in (["--help"], ["--version"])
        return
    command, words = found(COMMANDS[words[0]], words)
    options = command.make_context(words[0], words[1:]).params
    if words[0] == "simulate":
        own = {key: options[key] for key in lookup(options["algorithm"]).problem.options()}
        others = {key: v for key, v in options.items() if key not in own and v is not None}
        assert others.keys() <= {*HOW, "algorithm", "replay", "clip", "resample", "out", "as_json"}
        lookup(options["algorithm"]).make_problem(given_options(own))
    if words[0] == "compare":
        for algorithm in options["algorithms"].split(","):
            lookup(algorithm)


def found(command: Any, words: list[str]) -> tuple[Any, list[str]]:
    """The command of a group, and its words."""
    inner = words[1:2] and words[1] in getattr(command, "commands", {})
    alone = getattr(command, "invoke_without_command", False) and not inner
    if hasattr(command, "commands") and words[1:2] != ["--help"] and not alone:
        return found(command.commands[words[1]], words[1:])
    return command, words


def check_other(words: tuple[str, ...], page: str) -> None:
    """A make target, a module that can be run, an installation, a copy, a script of ours or one the
    page shows.
    """
    if words[0] == "make":
        targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        assert words[1] in targets
    elif words[:2] == ("python", "-m"):
        places = [root / Path(*words[2].split(".")) for root in (ROOT / "src", ROOT)]
        assert any(
            place.with_suffix(".py").exists() or (place / "__main__.py").exists()
            for place in places
        )
    elif words[0] == "python":
        shown = (f":caption: {words[1]}\n", f"Save this as `{words[1]}`")
        assert (ROOT / words[1]).exists() or any(said in page for said in shown)
    elif words[0] != "cp" and words[:2] != ("pip", "install"):
        assert (ROOT / words[0]).exists()


@pytest.mark.parametrize(
    "line", [line for line in LINES if (tacit_words(line) or [""])[0] in QUICK], ids=str
)
def test_documented_outputs_of_quick_commands_are_current(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    printed = io.StringIO()
    with redirect_stdout(printed):
        app(tacit_words(line), standalone_mode=False)
    said_so = {" ".join(text.split()) for text in printed.getvalue().splitlines()}
    assert {" ".join(text.split()) for text in line.shown} <= said_so


@pytest.mark.extended
@pytest.mark.parametrize(
    "script",
    [
        "docs/explanation/walks.py",
        "docs/reference/commands.py",
        "docs/reference/configuration.py",
        "docs/reference/http_api.py",
    ],
)
def test_generated_pages_are_current(script: str) -> None:
    path = ROOT / script
    printed = runpy.run_path(str(path))["page"]()
    assert path.with_suffix(".md").read_text(encoding="utf-8") == printed


CLAIMS = runpy.run_path(str(ROOT / "docs" / "claims.py"))


@pytest.mark.parametrize("claim", [one for one in CLAIMS["number_claims"]() if one.quick][:3])
def test_documented_numbers_match_their_commands(claim: Any) -> None:
    assert claim.check() == ""


def test_recomputed_numbers_are_on_their_pages() -> None:
    with (ROOT / "docs" / "claims.toml").open("rb") as file:
        entries = tomllib.load(file)["claim"]
    for entry in entries:
        page = " ".join((ROOT / entry["page"]).read_text(encoding="utf-8").split())
        assert entry["says"] in page, entry


WORDS = runpy.run_path(str(ROOT / "docs" / "words.py"))


def test_no_page_is_too_long() -> None:
    found = WORDS["counted"]()
    assert max(found.values()) <= WORDS["MOST_OF_A_PAGE"], found


@pytest.mark.extended
def test_the_documentation_is_not_too_long() -> None:
    assert sum(WORDS["counted"]().values()) <= WORDS["MOST"], "see: python docs/words.py"


def test_the_readme_is_short_and_begins_with_a_picture_and_a_result() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(text) <= 120
    fold = "\n".join(text[:15])
    (picture,) = re.findall(r"^!\[.+\]\((.+)\)$", fold, re.M)
    assert (ROOT / picture).exists()
    assert re.search(r"^\$ make demo\nwhich is best: .+\nhow sure: ", fold, re.M)


GALLERY = (
    "Regret by trust model",
    "A live winner",
    "An audit catches halved noise",
    "ε against sample size",
    "An ad test at 2%",
    "Dose finding over hospitals",
    "Antenna tilt",
    "Poisoning with and without proofs",
)


def test_the_gallery_has_its_eight_pictures() -> None:
    programs = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))
    titles = [one.read_text(encoding="utf-8").splitlines()[1] for one in programs]
    assert tuple(titles) == GALLERY


SECTIONS = {
    "tutorials": "live silos figure contextual",
    "how-to": "ab-test two-organisations choose-epsilon add-noise audit participations replay plan"
    " sweep learner",
    "explanation": "threat-model epsilon bandits corrections comparison limits",
    "reference": "api modules commands configuration http_api errors glossary"
    " wire-formats/messages",
}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_page_is_listed_once_in_its_section(section: str) -> None:
    folder = ROOT / "docs" / section
    index = (folder / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```$", index, re.M | re.S)
    listed = [line for tree in trees for line in tree.split("\n") if line and line[0] != ":"]
    pages = (page.relative_to(folder).with_suffix("") for page in folder.rglob("*.md"))
    assert sorted(listed) == sorted({page.as_posix() for page in pages} - {"index"})
    assert set(SECTIONS[section].split()) <= set(listed)
    table = index.split("```{toctree}")[0]
    assert [page for page in listed if f"({page}.md)" not in table] == []


def test_every_public_name_is_in_the_api_reference() -> None:
    import tacit

    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    missing = [each for each in tacit.__all__ if not re.search(rf":: tacit\S*\.{each}\n", page)]
    assert missing == ["__version__"]


def tidied(body: str) -> str:
    """The body of a page as the site shows it."""
    context = {"body": body}
    runpy.run_path(str(ROOT / "docs" / "conf.py"))["tidy"](None, "", "", context, None)
    return context["body"]


def test_the_site_breaks_names_after_punctuation_and_options_nowhere() -> None:
    option, long = "--false-positive-rate", "test_a_name_of_a_test_in_a_footnote"
    spans = [f'<span class="pre">{word}</span>' for word in ("sdp-ae", option, long, "a&lt;b")]
    code = f'<code class="docutils literal">{"".join(spans)}</code>'
    shown = tidied(code)
    assert shown.startswith(code.partition(spans[2])[0])
    assert '<span class="pre long">test_<wbr>a_<wbr>name_' in shown
    assert re.sub("<wbr>| long", "", shown) == code
    command = '<pre><span></span>$ tacit audit --noise-factor <span class="m">2</span>\n</pre>'
    console = f'<div class="highlight-console notranslate"><div class="highlight">{command}</div>'
    shown = tidied(console)
    assert '<span class="whole">--noise-factor</span> ' in shown
    assert re.sub('<span class="whole">(.*?)</span>', r"\1", shown) == console
    python = console.replace("console", "python")
    assert tidied(python) == python


def test_the_site_leaves_out_empty_heads_of_tables_only() -> None:
    row = '<th class="head"></th>' * 2
    empty = f'<thead>\n<tr class="row-odd">{row}\n</tr>\n</thead>'
    half = empty.replace("</th>", "<p>rule</p></th>", 1)
    body = "\n<tbody></tbody>"
    assert tidied(empty + body) == body
    assert tidied(half + body) == half + body


def width(picture: Path) -> int:
    """Pixels of a PNG's row, from its header."""
    return int.from_bytes(picture.read_bytes()[16:20], "big")


def test_wide_pictures_of_the_site_scroll_on_a_phone() -> None:
    shown = r"(?:^```\{(?:image|figure)\} |!\[.*?\]\()(\S+?\.png)\)?\n((?:^:.*\n)*)"
    narrow = [
        f"{name(page)}: {picture}"
        for page in PAGES
        if "docs" in page.parts
        for picture, options in re.findall(shown, page.read_text(encoding="utf-8"), re.M)
        if width(page.parent / picture) > 1100 and ":figclass: wide\n" not in options
    ]
    assert narrow == []


def test_no_page_of_the_gallery_loads_scripts_from_elsewhere() -> None:
    gallery = runpy.run_path(str(ROOT / "docs" / "conf.py"))["sphinx_gallery_conf"]
    assert gallery["write_computation_times"] is False  # their tables come from another host
