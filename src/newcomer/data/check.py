"""Is a data set what it says it is, and what is in it that a reader of its figures should know?

A finding is a *problem* (counts or hashes that contradict the catalogue or the manifest, a leak between files) or a
*note* (true of many published sets, but worth knowing: newcomers without neighbours, relations that mirror others).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from newcomer.data.catalogue import Entry, entries
from newcomer.data.dataset import LoadedDataset, parts_of, read_manifest, sha256_of
from newcomer.data.describe import linked_pairs
from newcomer.data.split import entities_of
from newcomer.files import open_bytes
from newcomer.graph import Graph, InductiveDataset, Mask, TripleArray

MIRROR_SHARE = 0.8  # of both relations' pairs, from which one is called a duplicate or an inverse of the other
MIRROR_MIN_PAIRS = 5


@dataclass(frozen=True)
class Finding:
    """One thing found, with the figure behind it."""

    level: str  # "problem", "note" or "fine"
    topic: str
    text: str
    figure: float = 0


@dataclass(frozen=True)
class Mirror:
    """Two relations that say nearly the same of nearly the same pairs, as they are or turned round."""

    first: str
    second: str
    inverse: bool
    shared_pairs: int
    share_of_first: float
    share_of_second: float


@dataclass(frozen=True)
class CheckResult:
    """All findings and the mirrored relations behind them."""

    findings: tuple[Finding, ...]
    mirrors: tuple[Mirror, ...]

    @property
    def sound(self) -> bool:
        return all(finding.level != "problem" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"sound": self.sound, **asdict(self)}


def entry_of(loaded: LoadedDataset, folder: Path) -> Entry | None:
    """The catalogue's entry for a folder of its name; one with a manifest is the user's, whatever it is called."""
    if loaded.layout == "newcomer" or not folder.is_dir():
        return None
    return next((entry for entry in entries() if entry.name == folder.resolve().name), None)


def check_dataset(loaded: LoadedDataset, folder: Path, entry: Entry | None) -> CheckResult:
    """Look at a data set from every side; ``entry`` is the catalogue's word on it, where it has one."""
    mirrors = mirrored_relations(loaded.dataset.observed)
    findings = [
        *(_catalogue_findings(loaded, entry) if entry is not None else ()),
        *(_manifest_findings(folder) if loaded.layout == "newcomer" else ()),
        *_file_findings(loaded),
        *_overlap_findings(loaded.dataset),
        *_newcomer_findings(loaded.dataset),
        *_relation_findings(loaded.dataset),
        *_mirror_findings(loaded.dataset, mirrors),
    ]
    return CheckResult(tuple(findings), tuple(mirrors))


def _catalogue_findings(loaded: LoadedDataset, entry: Entry) -> Iterator[Finding]:
    for role, expected in entry.counts.items():
        rows = loaded.parts[role].rows if role in loaded.parts else 0
        yield _checked("counts", rows == expected, f"{role}: {rows:,} rows, the catalogue says {expected:,}", rows)
    for role in sorted(loaded.parts.keys() - entry.counts.keys()):
        rows = loaded.parts[role].rows
        yield Finding("problem", "counts", f"{role}: {rows:,} rows, the catalogue knows no such file")
    for source in entry.files:
        for path in loaded.parts[source.role].files if source.role in loaded.parts else ():
            with open_bytes(path) as stream:
                same = source.is_content(bytes(stream.read()))
            verdict = "holds what was published" if same else "is not the published file"
            yield _checked("hashes", same, f"{source.role}: {path.name} {verdict}")


def _manifest_findings(folder: Path) -> Iterator[Finding]:
    for role, stated in read_manifest(folder)["files"].items():
        same = sha256_of(folder / stated["file"]) == stated.get("sha256")
        verdict = "as its manifest says" if same else "not the file its manifest describes"
        yield _checked("hashes", same, f"{role}: {stated['file']} is {verdict}")


def _checked(topic: str, is_right: bool, text: str, figure: float = 0) -> Finding:
    return Finding("fine" if is_right else "problem", topic, text, figure)


def _file_findings(loaded: LoadedDataset) -> Iterator[Finding]:
    for role, part in loaded.parts.items():
        for topic, count, words in (
            ("duplicates", part.duplicates, "rows that stand in it already"),
            ("self loops", part.self_loops, "rows that tie an entity to itself"),
            ("literals", part.literals, "statements about literals, left out"),
            ("skipped", part.skipped, "lines that could not be read, left out"),
        ):
            if count:
                yield Finding("problem" if topic == "skipped" else "note", topic, f"{role}: {count:,} {words}", count)


def _overlap_findings(dataset: InductiveDataset) -> list[Finding]:
    parts, found = {role: part.positives for role, part in parts_of(dataset).items() if len(part)}, []
    for (name_a, a), (name_b, b) in combinations(parts.items(), 2):
        graph = Graph.build(dataset.entities, dataset.relations, a)
        shared = int(graph.contains(b.heads, b.relations, b.tails).sum())
        if shared:
            level = "problem" if "test" in (name_a, name_b) else "note"
            text = f"{shared:,} triples stand in both {name_a} and {name_b}"
            found.append(Finding(level, "overlap", text, shared))
    return found or [Finding("fine", "overlap", "no triple stands in two files")]


def _newcomer_findings(dataset: InductiveDataset) -> Iterator[Finding]:
    size, auxiliary = len(dataset.entities), dataset.auxiliary.triples
    lonely = int((entities_of(dataset.test.positives, size) & ~dataset.is_seen & ~dataset.is_newcomer).sum())
    if lonely:
        yield Finding("note", "newcomers", f"{lonely:,} entities of test have no known fact at all", lonely)
    tied = np.zeros(size, dtype=bool)
    tied[auxiliary.heads[dataset.is_seen[auxiliary.tails]]] = True
    tied[auxiliary.tails[dataset.is_seen[auxiliary.heads]]] = True
    islands = dataset.is_newcomer & ~tied
    if islands.any():
        count, asked_too = int(islands.sum()), int(islands[dataset.test_newcomers].sum())
        text = f"{count:,} newcomers have only newcomers as neighbours, {asked_too:,} of them asked about in test"
        yield Finding("note", "newcomers", text, asked_too)
    odd = int((entities_of(dataset.valid, size) & ~dataset.is_seen).sum())
    if odd:
        yield Finding("note", "valid", f"{odd:,} entities of valid are not in train", odd)


def _relation_findings(dataset: InductiveDataset) -> Iterator[Finding]:
    unobserved = dataset.observed.relation_counts == 0
    for role, triples in parts_of(dataset).items():
        strange = triples.relations[unobserved[triples.relations]]
        if len(strange):
            kinds = len(np.unique(strange))
            text = f"{role}: {len(strange):,} triples with {kinds:,} relations that never occur in train"
            yield Finding("note", "relations", text, len(strange))


def _mirror_findings(dataset: InductiveDataset, mirrors: list[Mirror]) -> Iterator[Finding]:
    for inverse, word in ((False, "duplicates"), (True, "inverses")):
        count = sum(m.inverse is inverse and m.first != m.second for m in mirrors)
        if count:
            yield Finding("note", "leaks", f"{count:,} pairs of relations are {word} of each other in train", count)
    symmetric = sum(m.first == m.second for m in mirrors)
    if symmetric:
        yield Finding("note", "leaks", f"{symmetric:,} relations are symmetric in train", symmetric)
    test = dataset.test.positives
    if len(test):
        for count, words in (
            (int(linked_pairs(dataset, test).sum()), "pairs are already linked by a known fact"),
            (int(_answered_by_mirror(dataset, test, mirrors).sum()), "are told by a duplicate or inverse relation"),
        ):
            yield Finding("note", "leaks", f"test: {count:,} of {len(test):,} {words}", count)


def mirrored_relations(graph: Graph) -> list[Mirror]:
    """Pairs of relations that share at least 80 % of both their entity pairs, as they are or turned round."""
    triples, n, count = graph.triples, graph.num_entities, graph.num_relations
    if len(graph) == 0:
        return []
    heads, tails = triples.heads.astype(np.int64), triples.tails.astype(np.int64)
    _, pair = np.unique(np.concatenate([heads * n + tails, tails * n + heads]), return_inverse=True)
    oriented = np.concatenate([triples.relations, triples.relations + count])
    # Which oriented relation holds of which pair: the product counts the pairs that two of them share.
    holds = csr_array((np.ones(len(pair), dtype=np.int64), (oriented, pair)), shape=(2 * count, int(pair.max()) + 1))
    shared = (holds[:count] @ holds.T).tocoo()
    mirrors = []
    for first, other, pairs in sorted(zip(shared.row.tolist(), shared.col.tolist(), shared.data.tolist(), strict=True)):
        second, inverse = other % count, other >= count
        if first > second or (first == second and not inverse) or pairs < MIRROR_MIN_PAIRS:
            continue
        shares = [float(pairs / graph.relation_counts[one]) for one in (first, second)]
        if min(shares) >= MIRROR_SHARE:
            mirrors.append(Mirror(graph.relations[first], graph.relations[second], inverse, pairs, *shares))
    return mirrors


def _answered_by_mirror(dataset: InductiveDataset, test: TripleArray, mirrors: list[Mirror]) -> Mask:
    known = dataset.known_facts()
    answered = np.zeros(len(test), dtype=bool)
    for mirror in mirrors:
        first, second = dataset.relations.id(mirror.first), dataset.relations.id(mirror.second)
        for asked, told in ((first, second), (second, first)):
            rows = np.flatnonzero(test.relations == asked)
            relation = told + len(dataset.relations) if mirror.inverse else told
            answered[rows] |= known.contains(test.heads[rows], relation, test.tails[rows])
    return answered
