"""The made-up graph: as many facts as asked for, the same ones for a seed, and something to learn in them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "make_synthetic.py"
FACTS = 30_000


def make(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "a.tsv"
    done = make("--facts", str(FACTS), "--out", path)
    assert done.returncode == 0 and done.stdout == f"written {FACTS:,} facts to {path}\n", done.stderr
    return path


@pytest.fixture(scope="module")
def facts(made: Path) -> set[tuple[str, str, str]]:
    return {tuple(line.split("\t")) for line in made.read_text().splitlines()}  # type: ignore[misc]


def test_each_fact_is_there_once(facts):
    assert len(facts) == FACTS and len({relation for _, relation, _ in facts}) == 10


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(made, tmp_path):
    for seed, same in ((0, True), (1, False)):
        path = tmp_path / f"{seed}.tsv"
        assert make("--facts", str(FACTS), "--seed", str(seed), "--out", path).returncode == 0
        assert (path.read_bytes() == made.read_bytes()) is same


def test_homes_tell_countries_for_most(facts):
    of = {name: {h: t for h, r, t in facts if r == name} for name in ("lives_in", "lies_in", "citizen_of", "speaks")}
    told = [of["lies_in"][home] == of["citizen_of"][person] for person, home in of["lives_in"].items()]
    assert 0.7 < sum(told) / len(told) < 1
    assert len(set(of["speaks"].values())) > 10


def test_some_are_hubs(facts):
    degrees: dict[str, int] = {}
    for head, _, tail in facts:
        for end in (head, tail):
            degrees[end] = degrees.get(end, 0) + 1
    assert max(degrees.values()) > 20 * sum(degrees.values()) / len(degrees)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--facts", "10", "--out", "b.tsv"), "make_synthetic: --facts 10: is less than 20000"),
        (("--out", "b.xls"), "unknown format to write 'xls'"),
    ],
)
def test_a_mistake_is_one_sentence(words, problem, tmp_path):
    done = make(*words[:-1], tmp_path / words[-1])
    assert done.returncode == 2 and problem in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_kept(made, tmp_path):
    path = tmp_path / "c.tsv"
    path.write_text("mine\n")
    done = make("--facts", str(FACTS), "--out", path)
    assert done.returncode == 2 and str(path) in done.stderr and path.read_text() == "mine\n"
