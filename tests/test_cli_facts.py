"""Facts of newcomers from several files, facts that are known already, and what is said of those left out."""

from pathlib import Path

import pytest

from command_line import call
from newcomer.models.bundle import write_bundle
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
FACTS = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03"), ("yan", "knows", "zoe"), ("yan", "lives_in", "city2")]


def write(path: Path, facts: list[tuple[str, ...]]) -> Path:
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and the facts of two newcomers in one file and in two."""
    folder = tmp_path_factory.mktemp("facts")
    dataset = world()
    write_bundle(folder / "model", fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))
    write(folder / "new.tsv", FACTS)
    write(folder / "first.tsv", FACTS[::2])
    write(folder / "second.tsv", FACTS[1::2])
    write(folder / "asked.tsv", [("zoe", "citizen_of", "land1"), ("yan", "knows", "zoe")])
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "model", "--relation", "citizen_of", "--relation", "knows", "--json"),
        ("suggest", "model", "--entity", "zoe", "--entity", "yan", "--json"),
        ("explain", "model", "--relation", "citizen_of", "--json"),
        ("classify", "model", "asked.tsv", "--json"),
        ("confidence", "model", "--json"),
        ("similar", "model", "zoe"),
        ("embed", "model", "--out", "v.tsv", "--force"),
        ("draw", "model", "zoe", "--out", "v.png", "--force"),
    ],
    ids=lambda words: words[0],
)
def test_two_files_of_facts_count_as_one_that_holds_both(made, words):
    def answer(*files: str) -> tuple[str, list[bytes]]:
        done = call(*words, *(word for file in files for word in ("--facts", file)), cwd=made)
        assert done.returncode == 0, done.stderr
        written = [path.read_bytes() for path in sorted(made.glob("v.*"))]
        return done.stdout, written

    assert answer("first.tsv", "second.tsv") == answer("new.tsv")
