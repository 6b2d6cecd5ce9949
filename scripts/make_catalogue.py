"""Write src/newcomer/data/catalogue.toml from the real files, and refuse if they are not what is expected.

    python scripts/make_catalogue.py DATA [--check]

DATA is a folder with one folder a data set (``ROLE.txt.gz``: head, relation, tail and, in labelled files, 1 or -1) and
a ``SOURCES.tsv`` (set, file, repository, commit, path, git_blob_sha1) that says where each file was published. It
defaults to the environment variable NEWCOMER_DATA. Rows and newcomers must equal the tables below, and each file must
have the Git blob id of its source, with or without a last newline; everything else is counted here. ``--check``
writes nothing and fails when the catalogue in the package differs from what would be written.
"""

import argparse
import csv
import gzip
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

ROLES = ("train", "aux", "valid", "test")
TARGET = Path(__file__).parents[1] / "src" / "newcomer" / "data" / "catalogue.toml"
HEADER = """\
# The data sets known by name. Written by scripts/make_catalogue.py; change that, not this.
# counts: rows of the published files, repeated rows included. entities, relations: distinct names in all files.
# newcomers: entities that aux names and train does not; how many of them test asks about, how many there are.
"""
LINKS, LABELS = "link prediction", "triple classification"
WORDNET = "WordNet licence"
FREEBASE = "CC BY 2.5"
YAGO = "CC BY 3.0"

# Rows a role: train, aux, valid, test (0: the set has no such file).
ROWS = {
    "fb15k": (483_142, 0, 50_000, 59_071),
    "fb15k-subject-5": (188_238, 235_746, 19_454, 1_834),
    "fb15k-subject-10": (108_854, 249_798, 11_339, 2_811),
    "fb15k-object-5": (170_672, 254_454, 17_712, 1_896),
    "fb15k-object-10": (99_783, 261_341, 10_190, 2_987),
    "wn11-subject-1000": (108_197, 4_352, 4_613, 994),
    "wn11-subject-3000": (99_963, 12_376, 4_184, 2_969),
    "wn11-subject-5000": (92_309, 19_625, 3_845, 4_919),
    "wn11-object-1000": (96_968, 15_277, 3_999, 986),
    "wn11-object-3000": (78_763, 31_770, 3_122, 2_880),
    "wn11-object-5000": (67_774, 40_584, 2_601, 4_603),
    "wn11-both-1000": (93_364, 18_638, 3_799, 960),
    "wn11-both-3000": (71_097, 38_285, 2_759, 2_708),
    "wn11-both-5000": (57_601, 48_425, 2_166, 4_196),
    "wn18rr": (86_835, 0, 3_034, 3_134),
    "yago37": (989_132, 0, 50_000, 50_000),
    "yago37-partial": (203_438, 0, 10_000, 50_000),
}
# Newcomers in test and in aux, as published with the splits; the other sets' are counted here.
NEWCOMERS = {
    "fb15k-subject-5": (1_465, 2_295),
    "fb15k-subject-10": (2_102, 3_959),
    "fb15k-object-5": (1_344, 2_111),
    "fb15k-object-10": (1_947, 3_619),
}
YAGO37_ENTITIES, YAGO37_RELATIONS = 123_189, 37
PLACE_IT = "put its files into a folder of that name inside a folder that NEWCOMER_DATA names"
OTHERWISE = {
    "fb15k-subject-5": f"it cannot be downloaded: {PLACE_IT}, or make a split like it: newcomer data get fb15k, then "
    "newcomer split fb15k OUT --newcomers FILE",
    "fb15k-object-5": f"it cannot be downloaded: {PLACE_IT}, or make a split like it: newcomer data get fb15k, then "
    "newcomer split fb15k OUT --newcomers FILE",
    "wn18rr": f"it cannot be downloaded: {PLACE_IT}",
    "yago37-partial": f"it cannot be downloaded: {PLACE_IT}, or take the whole: newcomer data get yago37",
    "sample": "it ships with the package and needs no download",
}
ENDS = {"subject": "the heads", "object": "the tails", "both": "both ends"}

Triple = tuple[str, ...]


@dataclass(frozen=True)
class Files:
    """The rows of one data set, by role."""

    rows: dict[str, list[Triple]]

    def entities(self, role: str) -> set[str]:
        """The names at either end of a role's rows."""
        return {name for row in self.rows.get(role, []) for name in (row[0], row[2])}

    def relations(self, role: str) -> set[str]:
        """The relations of a role's rows."""
        return {row[1] for row in self.rows.get(role, [])}

    def repeated(self, role: str) -> int:
        """How many rows of a role state a triple again."""
        return len(self.rows[role]) - len({row[:3] for row in self.rows[role]})

    @cached_property
    def seen(self) -> set[str]:
        """The entities of train."""
        return self.entities("train")

    @cached_property
    def newcomers(self) -> set[str]:
        """The entities of aux that train lacks."""
        return self.entities("aux") - self.seen

    @cached_property
    def asked(self) -> set[str]:
        """The newcomers of test."""
        return self.entities("test") & self.newcomers

    def both_new(self, role: str) -> int:
        """How many rows of a role have a newcomer at both ends."""
        return sum(row[0] in self.newcomers and row[2] in self.newcomers for row in self.rows[role])

    @property
    def asked_without_seen_neighbour(self) -> int:
        """How many newcomers of test have only newcomers as neighbours in aux."""
        ends = [(row[0], row[2]) for row in self.rows["aux"]]
        tied = {a for a, b in ends if b in self.seen} | {b for a, b in ends if a in self.seen}
        return len(self.asked - tied)


def fail(sentence: str) -> NoReturn:
    """Stop with one sentence."""
    sys.exit(f"make_catalogue: {sentence}")


def content(data: Path, name: str, role: str) -> bytes:
    """The unpacked bytes of one file."""
    path = data / name / f"{role}.txt.gz"
    if not path.is_file():
        fail(f"{path} is missing; give the folder that holds all data sets")
    return gzip.decompress(path.read_bytes())


def blob_id(text: bytes) -> str:
    """The id Git gives to this content."""
    return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()


def read_files(data: Path, name: str) -> Files:
    """All rows of a set; its counts must be the expected ones."""
    expected = {role: rows for role, rows in zip(ROLES, ROWS[name], strict=True) if rows}
    texts = {role: content(data, name, role).decode().split("\n") for role in expected}
    read = Files({role: [tuple(line.split("\t")) for line in text if line] for role, text in texts.items()})
    found = {role: len(rows) for role, rows in read.rows.items()}
    if found != expected:
        fail(f"{name} has the rows {found}, expected {expected}")
    newcomers = len(read.asked), len(read.newcomers)
    if NEWCOMERS.get(name, newcomers) != newcomers:
        fail(f"{name} has {newcomers} newcomers in test and aux, expected {NEWCOMERS[name]}")
    return read


def read_sources(data: Path) -> dict[str, list[dict[str, str]]]:
    """The published files of each set, in the order of the roles."""
    with (data / "SOURCES.tsv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    rows.sort(key=lambda row: ROLES.index(row["file"]))
    return {name: [row for row in rows if row["set"] == name] for name in {row["set"] for row in rows}}


def check_sources(data: Path, name: str, sources: list[dict[str, str]]) -> None:
    """The files at hand are the published ones, up to the last newline."""
    for source in sources:
        text = content(data, name, source["file"])
        if source["git_blob_sha1"] not in (blob_id(text), blob_id(text.removesuffix(b"\n"))):
            fail(f"{name}/{source['file']} is not the file that SOURCES.tsv names")


def title(name: str) -> str:
    """What the set is, in one line."""
    family, _, split = name.partition("-")
    kind, _, size = split.partition("-")
    if family == "fb15k" and split:
        return f"FB15K whose newcomers are {ENDS[kind]} of {size} % of the test triples"
    if family == "wn11":
        return f"WordNet11 whose newcomers are {ENDS[kind]} of {int(size):,} test triples"
    return {
        "fb15k": "FB15K: a part of Freebase (films, people, places, awards)",
        "wn18rr": "WN18RR: WordNet synsets with readable names, without inverse relations",
        "yago37": "YAGO37: core facts of YAGO 3 about people, clubs and places",
        "yago37-partial": "a quarter of YAGO37, for trying things on a second kind of graph",
    }[name]


def notes(name: str, read: Files) -> Iterator[str]:
    """What one should know before using the set."""
    if name.startswith("wn11"):
        yield from _wordnet11_notes(name, read)
    elif "aux" in read.rows:
        new = read.relations("aux") - read.relations("train")
        asked = sum(row[1] in new for row in read.rows["test"])
        yield f"{len(new):,} relations of aux never occur in train; {asked:,} test rows ask for such a relation"
        yield "other copies of this split number their entities anew and, in Object splits, store tail, relation, head"
    elif name.startswith("yago37-"):
        yield "not for comparing with published figures: the training file holds a part of the facts only"
    for role in ("valid", "test") if "aux" not in read.rows else ():
        if strangers := read.entities(role) - read.seen:
            yield f"{role} names {len(strangers):,} entities that train does not"


def _wordnet11_notes(name: str, read: Files) -> Iterator[str]:
    yield "valid and test rows have a fourth column: 1 (true) or -1 (false)"
    yield f"aux also ties newcomers to newcomers: {read.both_new('aux'):,} of its rows"
    alone = read.asked_without_seen_neighbour
    yield f"{alone:,} of the {len(read.asked):,} newcomers in test have only newcomers as neighbours in aux"
    repeated = ", ".join(f"{role} {read.repeated(role):,}" for role in ("train", "aux", "valid"))
    yield f"rows that state a triple again: {repeated}"
    yield f"valid names {len(read.entities('valid') - read.seen):,} entities that train does not"
    yield f"both ends are new in {read.both_new('test'):,} of the {len(read.rows['test']):,} test rows"
    yield "the published files end without a newline"


def toml(value: object) -> str:
    """A string, a number, or a list of them as TOML."""
    return json.dumps(value, ensure_ascii=False)


def inline(table: dict[str, int]) -> str:
    """A small table on one line."""
    return "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }"


def head(name: str, about: str, licence: str, task: str) -> Iterator[str]:
    """The first lines of an entry."""
    yield from ("", "[[dataset]]", f"name = {toml(name)}", f"title = {toml(about)}")
    yield from (f"licence = {toml(licence)}", f"task = {toml(task)}")
    if name in OTHERWISE:
        yield f"otherwise = {toml(OTHERWISE[name])}"


def listed(key: str, lines: list[str]) -> Iterator[str]:
    """An array of strings, one to a line."""
    if lines:
        yield from (f"{key} = [", *(f"  {toml(line)}," for line in lines), "]")


def source_lines(name: str, sources: list[dict[str, str]]) -> Iterator[str]:
    """The tables of the published files."""
    for source in sources:
        yield from ("", "[[dataset.file]]", f"role = {toml(source['file'])}")
        yield from (f"{key} = {toml(source[key])}" for key in ("repository", "commit", "path"))
        yield f"git_blob = {toml(source['git_blob_sha1'])}"
        yield f"rows = {ROWS[name][ROLES.index(source['file'])]}"


def counted(name: str, read: Files, sources: list[dict[str, str]]) -> Iterator[str]:
    """The entry of a set whose files are at hand."""
    licence = FREEBASE if name.startswith("fb15k") else YAGO if name.startswith("yago37") else WORDNET
    yield from head(name, title(name), licence, LABELS if name.startswith("wn11") else LINKS)
    yield f"counts = {inline({role: len(rows) for role, rows in read.rows.items()})}"
    yield f"entities = {len(set().union(*map(read.entities, ROLES)))}"
    yield f"relations = {len(set().union(*map(read.relations, ROLES)))}"
    if read.newcomers:
        yield f"newcomers = {inline({'test': len(read.asked), 'aux': len(read.newcomers)})}"
    yield from listed("notes", list(notes(name, read)))
    yield from source_lines(name, sources)


def yago37(sources: list[dict[str, str]]) -> Iterator[str]:
    """The one set whose training file is not needed here: its counts are those its publishers state."""
    yield from head("yago37", title("yago37"), YAGO, LINKS)
    yield f"counts = {inline({role: rows for role, rows in zip(ROLES, ROWS['yago37'], strict=True) if rows})}"
    yield from (f"entities = {YAGO37_ENTITIES}", f"relations = {YAGO37_RELATIONS}")
    yield from listed(
        "notes", ["counts are those its publishers state", "no newcomers yet: make them with newcomer split"]
    )
    yield from source_lines("yago37", sources)


def sample() -> Iterator[str]:
    """The set that ships with the package; its files are counted when the catalogue is read."""
    about = "a small real graph of countries, cities, languages and currencies; ships with the package"
    yield from head("sample", about, "see NOTICE.md in its folder", LINKS)


def catalogue(data: Path) -> str:
    """The whole file."""
    sources = read_sources(data)
    lines = list(sample())
    for name in ROWS:
        if name == "yago37":
            lines += yago37(sources[name])
            continue
        check_sources(data, name, sources.get(name, []))
        lines += counted(name, read_files(data, name), sources.get(name, []))
    return HEADER + "\n".join(lines) + "\n"


def main() -> None:
    """Write or check the catalogue."""
    parser = argparse.ArgumentParser(description="Write the catalogue of data sets from the real files.")
    parser.add_argument("data", nargs="?", default=os.environ.get("NEWCOMER_DATA"), help="folder with all data sets")
    parser.add_argument("--check", action="store_true", help="compare with the package's catalogue, write nothing")
    options = parser.parse_args()
    if not options.data or not (Path(options.data) / "SOURCES.tsv").is_file():
        fail(f"{options.data!r} holds no SOURCES.tsv; give the folder that does, or set NEWCOMER_DATA to it")
    text = catalogue(Path(options.data))
    if options.check:
        if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
            fail("catalogue.toml differs from the data; run this without --check")
        return
    part = TARGET.with_suffix(".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(TARGET)


if __name__ == "__main__":
    main()
