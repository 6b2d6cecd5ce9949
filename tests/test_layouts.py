"""Which file of a folder is what, in the layouts data sets are published in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Row, complaint, parts_by_name
from newcomer.data.dataset import find_layout, read_dataset, role_name
from newcomer.errors import DatasetError

Put = Callable[[str, str | bytes], Path]


def fill(put: Put, *names: str) -> Path:
    """Files whose only triple tells which file it came from."""
    paths = [put(f"set/{name}", f"{name}\tr\tx\n") for name in names]
    return paths[0].parent


def origins(folder: Path) -> dict[str, list[str]]:
    return {role: [row[0] for row in rows] for role, rows in parts_by_name(read_dataset(folder).dataset).items()}


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("train.txt", "aux.txt", "valid.txt", "test.txt"), "plain"),
        (("train.tsv", "auxiliary.tsv", "validation.tsv", "test.tsv"), "plain"),
        (("train", "aux", "dev", "test"), "plain"),
        (("train.txt", "_aux.txt", "dev.txt", "test.txt"), "plain"),
        (("train.txt", "aux_txt", "valid.txt", "test.txt"), "plain"),
        (("training.csv", "aux.txt.bz2", "valid.tab", "test.data"), "plain"),
        (("train.txt", "inference.txt", "inference_validation.txt", "inference_test.txt"), "ilpc"),
    ],
)
def test_files_are_known_by_name(put: Put, names: tuple[str, ...], kind: str) -> None:
    folder = fill(put, *names, "README.md", "train_notes.txt", "entities.txt")
    assert find_layout(folder).kind == kind
    expected = {role: [name] for role, name in zip(("train", "aux", "valid", "test"), names, strict=True)}
    assert origins(folder) == expected | ({"aux": []} if "aux.txt.bz2" in names else {})


def test_only_train_is_needed(put: Put) -> None:
    assert origins(fill(put, "train.txt")) == {"train": ["train.txt"], "aux": [], "valid": [], "test": []}


def test_grail_pairs_a_folder_with_its_inductive_twin(put: Put) -> None:
    for folder in ("v1", "v1_ind"):
        for role in ("train", "valid", "test"):
            put(f"{folder}/{role}.txt", f"{folder} {role}\tr\tx\n")
    path = put("v1/relations.txt", "ignored").parent
    assert read_dataset(path).layout == "grail"
    expected = {
        "train": ["v1 train"],
        "aux": ["v1_ind train"],
        "valid": ["v1 valid", "v1_ind valid"],
        "test": ["v1_ind test"],
    }
    assert origins(path) == expected
    assert origins(path.with_name("v1_ind"))["train"] == ["v1_ind train"]


def test_grail_is_found_from_inside_the_folder(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    put("v1_ind/train.txt", "b\tr\tx\n")
    monkeypatch.chdir(put("v1/train.txt", "a\tr\tx\n").parent)
    loaded = read_dataset(Path())
    assert (loaded.layout, loaded.dataset.name) == ("grail", "v1")


def test_grail_joins_two_valid_files_with_and_without_labels(put: Put) -> None:
    rows: list[Row] = [("a", "r", "x"), ("b", "r", "x", "-1")]
    for folder, row in zip(("v1", "v1_ind"), rows, strict=True):
        put(f"{folder}/train.txt", "t\tr\tx\n")
        path = put(f"{folder}/valid.txt", "\t".join(row) + "\n")
    valid = parts_by_name(read_dataset(path.parent.with_name("v1")).dataset)["valid"]
    assert valid == [("a", "r", "x", "1"), ("b", "r", "x", "0")]


def test_a_folder_without_train_says_what_it_holds(put: Put, tmp_path: Path) -> None:
    assert "no training file" in str(complaint(find_layout, fill(put, "test.txt", "notes.md")))
    assert "among notes.md, test.txt" in str(complaint(find_layout, tmp_path / "set"))
    (tmp_path / "empty").mkdir()
    assert "among nothing" in str(complaint(read_dataset, tmp_path / "empty"))


def test_two_files_for_one_role_are_a_doubt(put: Put) -> None:
    error = complaint(find_layout, fill(put, "train.txt", "train.tsv.gz", "test.txt"))
    assert isinstance(error, DatasetError) and "train.tsv.gz, train.txt" in str(error)


def test_a_folder_named_train_is_no_file(put: Put) -> None:
    assert "no training file" in str(complaint(find_layout, put("set/train/a.txt", "a\tr\tb\n").parent.parent))


@pytest.mark.parametrize(
    ("name", "role"),
    [("train.tsv.gz", "train"), ("train.NT.zst", "train"), ("a.b.txt", "a.b"), ("train.gz", "train"), ("x.md", "x.md")],
)
def test_a_role_is_the_name_without_its_endings(name: str, role: str) -> None:
    assert role_name(Path("folder.txt") / name) == role


@pytest.mark.parametrize("name", ["train_notes.txt", "test.txt"])
def test_a_neighbour_that_only_looks_like_a_twin_makes_no_grail(put: Put, name: str) -> None:
    put(f"v1_ind/{name}", "b\tr\tx\n")
    assert find_layout(put("v1/train.txt", "a\tr\tx\n").parent).kind == "plain"
