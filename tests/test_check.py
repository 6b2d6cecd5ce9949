"""Every finding, provoked once by a data set made for it."""

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import DATA, make_dataset, named_graph, needs_data
from newcomer.data import check
from newcomer.data.catalogue import Entry, SourceFile, entries
from newcomer.data.check import CheckResult, Finding, check_dataset, entry_of, mirrored_relations
from newcomer.data.dataset import read_dataset, write_dataset
from newcomer.data.options import ReadOptions

Put = Callable[[str, str | bytes], Path]
Triples = Iterable[tuple[str, str, str]]
PAIRS = [(f"x{i}", f"y{i}") for i in range(10)]


def files(put: Put, **parts: str) -> Path:
    paths = [put(f"set/{role}.txt", text.replace(" ", "\t")) for role, text in parts.items()]
    return paths[0].parent


def checked(folder: Path, entry: Entry | None = None, skip: bool = False) -> CheckResult:
    options = ReadOptions(on_bad_line="skip" if skip else "error")
    return check_dataset(read_dataset(folder, options), folder, entry)


def findings(result: CheckResult, topic: str) -> list[Finding]:
    return [finding for finding in result.findings if finding.topic == topic]


def made(tmp_path: Path, **parts: Triples) -> CheckResult:
    write_dataset(make_dataset(**parts), tmp_path / "set", force=True)
    return checked(tmp_path / "set")


def test_a_sound_set_is_sound_and_json(put: Put) -> None:
    result = checked(files(put, train="a r b\n", aux="n r a\n", test="n r b\n"))
    assert result.sound and {finding.level for finding in result.findings} == {"fine", "note"}
    assert findings(result, "overlap") == [Finding("fine", "overlap", "no triple stands in two files")]
    assert json.loads(json.dumps(result.to_json()))["sound"] is True


def test_counts_are_held_against_the_catalogue(put: Put) -> None:
    folder = files(put, train="a r b\na r b\n", aux="n r a\n", test="n r b\n")
    entry = Entry("set", "a set", "free", "ranking", {"train": 2, "test": 7, "valid": 1})
    result = checked(folder, entry)
    assert not result.sound
    assert [(f.level, f.text) for f in findings(result, "counts")] == [
        ("fine", "train: 2 rows, the catalogue says 2"),
        ("problem", "test: 1 rows, the catalogue says 7"),
        ("problem", "valid: 0 rows, the catalogue says 1"),
        ("problem", "aux: 1 rows, the catalogue knows no such file"),
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_content_is_held_against_the_catalogue(put: Put, packed: bool) -> None:
    published = {"train": b"a\tr\tb\n", "test": b"a\tr\tc"}
    blobs = {role: hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest() for role, text in published.items()}
    files = tuple(SourceFile(role, "some/where", "c" * 40, f"{role}.txt", blob, 1) for role, blob in blobs.items())
    entry = Entry("set", "a set", "free", "ranking", {"train": 1, "test": 1}, files=files)

    def verdicts(**parts: bytes) -> list[tuple[str, str]]:
        for role, text in parts.items():
            path = put(f"set/{role}.txt.gz", gzip.compress(text)) if packed else put(f"set/{role}.txt", text)
        result = checked(path.parent, entry)
        assert result.sound is all(f.level == "fine" for f in findings(result, "hashes"))
        return [(f.level, f.text) for f in findings(result, "hashes")]

    name = "train.txt.gz" if packed else "train.txt"
    fine = [("fine", f"{role}: {name.replace('train', role)} holds what was published") for role in published]
    assert verdicts(**published) == fine == verdicts(train=b"a\tr\tb", test=b"a\tr\tc\n")
    assert verdicts(train=b"a\tr\tz\n")[0] == ("problem", f"train: {name} is not the published file")


def test_the_catalogue_judges_no_data_set_of_the_users_own(tmp_path: Path, put: Put) -> None:
    write_dataset(make_dataset(train=[("a", "r", "b")]), tmp_path / "fb15k")
    own, plain = tmp_path / "fb15k", put("other/wn18rr/train.txt", "a\tr\tb\n").parent
    assert entry_of(read_dataset(own), own) is None
    found = entry_of(read_dataset(plain), plain)
    assert found is not None and found.name == "wn18rr"
    file = put("fb15k.tsv", "a\tr\tb\n").rename(tmp_path / "yago37")
    assert entry_of(read_dataset(file), file) is None


def test_hashes_are_held_against_the_manifest(tmp_path: Path) -> None:
    assert [f.level for f in findings(made(tmp_path, train=[("a", "r", "b")], test=[("a", "r", "a")]), "hashes")] == [
        "fine",
        "fine",
    ]
    (tmp_path / "set" / "test.tsv").write_text("a\tr\tchanged\n")
    result = checked(tmp_path / "set")
    assert not result.sound
    assert [f.text for f in findings(result, "hashes") if f.level == "problem"] == [
        "test: test.tsv is not the file its manifest describes"
    ]


def test_what_the_files_held_is_told(put: Put) -> None:
    result = checked(files(put, train="a r b\na r b\na r a\nbad\n", test="a r c\n"), skip=True)
    told = {f.topic: (f.level, f.figure) for f in result.findings}
    assert told["duplicates"] == ("note", 1) and told["self loops"] == ("note", 1)
    assert told["skipped"] == ("problem", 1) and not result.sound


def test_literals_are_told(put: Put) -> None:
    path = put("f.nt", '<http://a> <http://r> <http://b> .\n<http://a> <http://r> "1" .\n')
    assert [f.figure for f in findings(checked(path), "literals")] == [1]


def test_a_triple_in_two_files_is_a_problem_where_test_is_one_of_them(put: Put) -> None:
    train = "a r b\nb r c\n"
    noted = checked(files(put, train=train, valid="a r b\n", test="a r c\n"))
    assert [(f.level, f.text) for f in findings(noted, "overlap")] == [
        ("note", "1 triples stand in both train and valid")
    ]
    leaking = checked(files(put, train=train, valid="a s b\n", test="a r b\nb r c\n"))
    assert [(f.level, f.text) for f in findings(leaking, "overlap")] == [
        ("problem", "2 triples stand in both train and test")
    ]
    assert noted.sound and not leaking.sound


def test_a_false_triple_is_no_overlap(put: Put) -> None:
    result = checked(files(put, train="a r b\n", test="a r b -1\na s b 1\n"))
    assert [f.level for f in findings(result, "overlap")] == ["fine"]


def test_lonely_newcomers_and_islands_are_told(put: Put) -> None:
    folder = files(
        put,
        train="a r b\n",
        aux="n r a\nm r o\no r p\n",
        valid="v r a\n",
        test="n r b\nm r b\nlonely r a\n",
    )
    result = checked(folder)
    assert [(f.text, f.figure) for f in findings(result, "newcomers")] == [
        ("1 entities of test have no known fact at all", 1),
        ("3 newcomers have only newcomers as neighbours, 1 of them asked about in test", 1),
    ]
    assert [f.text for f in findings(result, "valid")] == ["1 entities of valid are not in train"]
    assert result.sound


def test_relations_that_train_lacks_are_told_by_part(put: Put) -> None:
    result = checked(files(put, train="a r b\n", aux="n s a\nn s b\n", test="n s c\nn q c\n"))
    assert [f.text for f in findings(result, "relations")] == [
        "aux: 2 triples with 1 relations that never occur in train",
        "test: 2 triples with 2 relations that never occur in train",
    ]


def leaks(result: CheckResult) -> list[str]:
    return [finding.text for finding in findings(result, "leaks")]


def test_duplicate_inverse_and_symmetric_relations_are_told(tmp_path: Path) -> None:
    train = [triple for h, t in PAIRS for triple in ((h, "r", t), (h, "same", t), (t, "back", h))]
    train += [(f"z{i}", "married", f"z{i ^ 1}") for i in range(6)]
    aux = [("n", "back", "x0"), ("n", "other", "x1")]
    test = [("x0", "r", "n"), ("x1", "r", "n"), ("x2", "r", "n"), ("z0", "married", "y1")]
    result = made(tmp_path, train=train, aux=aux, test=test)
    assert leaks(result) == [
        "1 pairs of relations are duplicates of each other in train",
        "2 pairs of relations are inverses of each other in train",
        "1 relations are symmetric in train",
        "test: 2 of 4 pairs are already linked by a known fact",
        "test: 1 of 4 are told by a duplicate or inverse relation",
    ]
    mirrors = {(m.first, m.second, m.inverse): m.shared_pairs for m in result.mirrors}
    assert mirrors == {
        ("back", "r", True): 10,
        ("back", "same", True): 10,
        ("r", "same", False): 10,
        ("married", "married", True): 6,
    }


@pytest.mark.parametrize(("shared", "extra", "found"), [(8, 2, True), (7, 2, False), (4, 0, False), (5, 0, True)])
def test_relations_mirror_each_other_from_five_pairs_and_four_fifths_on(shared: int, extra: int, found: bool) -> None:
    triples = [(h, r, t) for h, t in PAIRS[:shared] for r in ("r", "s")]
    triples += [(f"only {i}", "s", "y0") for i in range(extra)]
    assert bool(mirrored_relations(named_graph(triples))) is found


ENTITY = st.sampled_from("abcd")
GRAPHS = st.lists(st.tuples(ENTITY, st.sampled_from("rst"), ENTITY), min_size=1, max_size=40)


@given(GRAPHS)
@settings(max_examples=300)
def test_mirrors_are_those_found_by_comparing_all_pairs(triples: list[tuple[str, str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "MIRROR_MIN_PAIRS", 2)
        patch.setattr(check, "MIRROR_SHARE", 0.5)
        found = {(m.first, m.second, m.inverse): m for m in mirrored_relations(named_graph(triples))}
    pairs = {name: {(h, t) for h, r, t in triples if r == name} for name in "rst"}
    expected = {}
    for first in "rst":
        for second in "rst":
            for inverse in (False, True):
                other = {(t, h) for h, t in pairs[second]} if inverse else pairs[second]
                shared = len(pairs[first] & other)
                if first > second or (first == second and not inverse) or shared < 2:
                    continue
                shares = shared / len(pairs[first]), shared / len(pairs[second])
                if min(shares) >= 0.5:
                    expected[first, second, inverse] = (shared, *shares)
    assert {k: (m.shared_pairs, m.share_of_first, m.share_of_second) for k, m in found.items()} == expected


@needs_data
@pytest.mark.parametrize(
    "folder", sorted(Path(DATA).glob("*/")) if DATA else ["none"], ids=lambda path: Path(path).name
)
def test_every_published_set_at_hand_is_sound(folder: Path) -> None:
    known = {entry.name: entry for entry in entries()}
    entry = entry_of(read_dataset(folder), folder)
    assert entry is known.get(folder.name)
    result = checked(folder, entry)
    assert [finding.text for finding in result.findings if finding.level == "problem"] == []
    assert entry is None or findings(result, "counts")
    assert entry is None or len(findings(result, "hashes")) == len(entry.files)
