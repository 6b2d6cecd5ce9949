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

from newcomer.data.catalogue import Entry, entries
from newcomer.data.dataset import LoadedDataset, parts_of, read_manifest, sha256_of
from newcomer.data.describe import linked_pairs
from newcomer.files import open_bytes
from newcomer.graph import Graph, InductiveDataset, Mask, TripleArray

MIRROR_SHARE = 0.8  # of both relations' pairs, from which one is called a duplicate or an inverse of the other
MIRROR_MIN_PAIRS = 5
JOINED_AT_ONCE = 1 << 22


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
        *(_content_findings(loaded, entry) if entry is not None else ()),
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
        level = "fine" if rows == expected else "problem"
        yield Finding(level, "counts", f"{role}: {rows:,} rows, the catalogue says {expected:,}", rows)
    for role in sorted(loaded.parts.keys() - entry.counts.keys()):
        yield Finding(
            "problem", "counts", f"{role}: {loaded.parts[role].rows:,} rows, the catalogue knows no such file"
        )


def _content_findings(loaded: LoadedDataset, entry: Entry) -> Iterator[Finding]:
    for source in entry.files:
        for path in loaded.parts[source.role].files if source.role in loaded.parts else ():
            with open_bytes(path) as stream:
                same = source.is_content(bytes(stream.read()))
            verdict = "holds what was published" if same else "is not the published file"
            yield Finding("fine" if same else "problem", "hashes", f"{source.role}: {path.name} {verdict}")


def _manifest_findings(folder: Path) -> Iterator[Finding]:
    for role, stated in read_manifest(folder)["files"].items():
        same = sha256_of(folder / stated["file"]) == stated.get("sha256")
        verdict = "as its manifest says" if same else "not the file its manifest describes"
        yield Finding("fine" if same else "problem", "hashes", f"{role}: {stated['file']} is {verdict}")


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


def _overlap_findings(dataset: InductiveDataset) -> Iterator[Finding]:
    parts = {role: triples for role, triples in parts_of(dataset).items() if len(triples)}
    shared_anywhere = False
    for (name_a, a), (name_b, b) in combinations(parts.items(), 2):
        graph = Graph.build(dataset.entities, dataset.relations, a.positives)
        positive = b.positives
        shared = int(graph.contains(positive.heads, positive.relations, positive.tails).sum())
        if shared:
            shared_anywhere = True
            level = "problem" if "test" in (name_a, name_b) else "note"
            yield Finding(level, "overlap", f"{shared:,} triples stand in both {name_a} and {name_b}", shared)
    if not shared_anywhere:
        yield Finding("fine", "overlap", "no triple stands in two files")


def _newcomer_findings(dataset: InductiveDataset) -> Iterator[Finding]:
    test = dataset.test.positives
    asked = np.zeros(len(dataset.entities), dtype=bool)
    asked[test.heads] = asked[test.tails] = True
    lonely = asked & ~dataset.is_seen & ~dataset.is_newcomer
    if lonely.any():
        count = int(lonely.sum())
        yield Finding("note", "newcomers", f"{count:,} entities of test have no known fact at all", count)
    tied = _tied_to_seen(dataset)
    islands = dataset.is_newcomer & ~tied
    if islands.any():
        count, asked_too = int(islands.sum()), int(islands[dataset.test_newcomers].sum())
        text = f"{count:,} newcomers have only newcomers as neighbours, {asked_too:,} of them asked about in test"
        yield Finding("note", "newcomers", text, asked_too)
    odd = np.zeros(len(dataset.entities), dtype=bool)
    odd[dataset.valid.heads] = odd[dataset.valid.tails] = True
    odd &= ~dataset.is_seen
    if odd.any():
        count = int(odd.sum())
        yield Finding("note", "valid", f"{count:,} entities of valid are not in train", count)


def _tied_to_seen(dataset: InductiveDataset) -> Mask:
    auxiliary = dataset.auxiliary.triples
    tied = np.zeros(len(dataset.entities), dtype=bool)
    tied[auxiliary.heads[dataset.is_seen[auxiliary.tails]]] = True
    tied[auxiliary.tails[dataset.is_seen[auxiliary.heads]]] = True
    return tied


def _relation_findings(dataset: InductiveDataset) -> Iterator[Finding]:
    unobserved = dataset.observed.relation_counts == 0
    for role, triples in parts_of(dataset).items():
        count = int(unobserved[triples.relations].sum())
        if count:
            kinds = len(np.unique(triples.relations[unobserved[triples.relations]]))
            text = f"{role}: {count:,} triples with {kinds:,} relations that never occur in train"
            yield Finding("note", "relations", text, count)


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
        linked = int(linked_pairs(dataset, test).sum())
        told = int(_answered_by_mirror(dataset, test, mirrors).sum())
        yield Finding(
            "note", "leaks", f"test: {linked:,} of {len(test):,} pairs are already linked by a known fact", linked
        )
        yield Finding(
            "note", "leaks", f"test: {told:,} of {len(test):,} are told by a duplicate or inverse relation", told
        )


def mirrored_relations(graph: Graph) -> list[Mirror]:
    """Pairs of relations that share at least 80 % of both their entity pairs, as they are or turned round."""
    size = 2 * graph.num_relations
    if len(graph) == 0:
        return []
    counts: dict[int, int] = {}
    for keys, amounts in _co_occurrences(graph):
        for key, amount in zip(keys.tolist(), amounts.tolist(), strict=True):
            counts[key] = counts.get(key, 0) + amount
    mirrors = []
    for key in sorted(counts):
        first, oriented = divmod(key, size)
        second, inverse = oriented % graph.num_relations, oriented >= graph.num_relations
        shared = counts[key]
        if first > second or (first == second and not inverse) or shared < MIRROR_MIN_PAIRS:
            continue
        shares = shared / graph.relation_counts[first], shared / graph.relation_counts[second]
        if min(shares) >= MIRROR_SHARE:
            names = graph.relations[first], graph.relations[second]
            mirrors.append(Mirror(*names, bool(inverse), shared, float(shares[0]), float(shares[1])))
    return mirrors


def _co_occurrences(graph: Graph) -> Iterator[tuple[Any, Any]]:
    """How often relation a and oriented relation b hold of the same pair, as keys ``a * 2R + b``, in slices."""
    triples, n, r = graph.triples, graph.num_entities, graph.num_relations
    pairs = np.concatenate(
        [triples.heads.astype(np.int64) * n + triples.tails, triples.tails.astype(np.int64) * n + triples.heads]
    )
    oriented = np.concatenate([triples.relations, triples.relations + r])
    order = np.argsort(pairs, kind="stable")
    pairs, oriented = pairs[order], oriented[order]
    start = np.searchsorted(pairs, pairs, side="left")
    length = np.searchsorted(pairs, pairs, side="right") - start
    forward = np.flatnonzero(oriented < r)
    ends = np.cumsum(length[forward])
    at = 0
    while at < len(forward):
        done = int(ends[at - 1]) if at else 0
        upto = max(int(np.searchsorted(ends, done + JOINED_AT_ONCE)), at + 1)
        rows = forward[at:upto]
        lengths = length[rows]
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        partner = np.repeat(start[rows], lengths) + offsets
        yield np.unique(
            np.repeat(oriented[rows], lengths).astype(np.int64) * 2 * r + oriented[partner], return_counts=True
        )
        at = upto


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
