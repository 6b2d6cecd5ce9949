"""Virtual neighbours written to files: the tables say what the objects hold, whatever the names are."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import named_graph
from newcomer.errors import OutputError
from newcomer.graph import Graph, InductiveDataset, Overlay
from newcomer.rules.files.neighbor_table import grounding_table, neighbor_table, write_neighbors
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.rule import Kind, Rule, RuleSet, quoted
from newcomer.rules.virtual_neighbors import (
    LOGIC,
    SOURCES,
    Grounder,
    NeighborLimits,
    VirtualNeighbors,
    virtual_neighbors,
)
from rule_oracle import graph_of, random_rows, random_rules

ANY = NeighborLimits(min_confidence=0.0, min_support=1)
NEIGHBOR_COLUMNS = ["head", "relation", "tail", "confidence", "kind", "groundings"]
GROUNDING_COLUMNS = [
    "head", "relation", "tail", "confidence", "kind", "rule", "premise_1", "premise_2", "premise_3",
]  # fmt: skip


def fact_text(fact: tuple[int, int, int], graph: Graph) -> str:
    head, relation, tail = fact
    names = graph.entities[head], graph.relations[relation], graph.entities[tail]
    return "{1}({0},{2})".format(*map(quoted, names))


def expected_groundings(found: VirtualNeighbors, graph: Graph) -> list[dict[str, object]]:
    rows = []
    for place, (head, relation, tail) in enumerate(found.triples.rows.tolist()):
        for source, rule, premises in found.reasons(place):
            logic = source == LOGIC
            facts = [fact_text(fact, graph) for fact in premises] + [None] * (3 - len(premises))
            rows.append({
                "head": graph.entities[head],
                "relation": graph.relations[relation],
                "tail": graph.entities[tail],
                "confidence": None,
                "kind": SOURCES[source],
                "rule": found.rules[rule].text(graph.relations, graph.entities)
                if logic
                else found.path_rules.text(rule, graph.relations),
                **{f"premise_{i + 1}": fact for i, fact in enumerate(facts)},
            })  # fmt: skip
    for row, strength in zip(rows, found.grounding_strength.tolist(), strict=True):
        row["confidence"] = strength
    return rows


def inferred(seed: int) -> tuple[VirtualNeighbors, Graph]:
    rng = np.random.default_rng(seed)
    graph = graph_of(random_rows(rng, 12, 3, 60), 12, 3)
    paths = PathLimits(walks=3000, min_pairs=3, min_confidence=0.5)
    rules = random_rules(rng, 12, 3, 20)
    return virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), np.arange(12, dtype=np.int32), paths), graph


@pytest.mark.parametrize("seed", range(8))
def test_tables_say_what_the_objects_hold(seed):
    found, graph = inferred(seed)
    assert set(found.grounding_source.tolist()) == {0, 1}, "both sources should be there"
    table = neighbor_table(found, graph.entities, graph.relations)
    assert table.column_names == NEIGHBOR_COLUMNS
    assert table.to_pylist() == [
        {
            "head": graph.entities[h],
            "relation": graph.relations[r],
            "tail": graph.entities[t],
            "confidence": confidence,
            "kind": SOURCES[kind],
            "groundings": count,
        }
        for (h, r, t), confidence, kind, count in zip(
            found.triples.rows.tolist(),
            found.confidence.tolist(),
            found.kinds.tolist(),
            found.grounding_counts.tolist(),
            strict=True,
        )
    ]
    groundings = grounding_table(found, graph.entities, graph.relations)
    assert groundings.column_names == GROUNDING_COLUMNS
    assert groundings.to_pylist() == expected_groundings(found, graph)


def named_world(names: list[str], relations: list[str]) -> tuple[VirtualNeighbors, Graph]:
    """Three entities and the conclusion third(a,c) from first(a,b) and second(b,c)."""
    a, b, c = names
    first, second, third = relations
    graph = named_graph([(a, first, b), (b, second, c), (c, third, a)])
    ids = graph.relations
    rule = Rule(Kind.TWO, ids.id(third), ids.id(first), ids.id(second), support=9, body_size=10, pca_body_size=10,
                head_size=20)  # fmt: skip
    rules = RuleSet.of([rule], 3)
    return virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), np.array([graph.entities.id(a)])), graph


def test_premises_in_words():
    found, graph = named_world(["Atlantis", "Bonn (city)", "Europe"], ["borders", "lies in", "in_region"])
    [row] = grounding_table(found, graph.entities, graph.relations).to_pylist()
    assert row == {
        "head": "Atlantis",
        "relation": "in_region",
        "tail": "Europe",
        "confidence": 0.9,
        "kind": "logic",
        "rule": 'borders(x,z), "lies in"(z,y) => in_region(x,y)',
        "premise_1": 'borders(Atlantis,"Bonn (city)")',
        "premise_2": '"lies in"("Bonn (city)",Europe)',
        "premise_3": None,
    }


ODD_NAMES = [
    ["tab\there", 'a "quoted" one', "two\nlines"],
    ["carriage\rreturn", '"', "back\\slash"],
    ["x", "y", "z"],
    ["", " ", "=> , ("],
    ["\u2028", "naïve", "日本"],
]


@pytest.mark.parametrize("names", ODD_NAMES)
@pytest.mark.parametrize("relations", [["r1", "r2", "r3"], ["a\tb", 'c"d', "e\nf"]])
def test_odd_names_come_back_from_both_formats(names, relations, tmp_path):
    found, graph = named_world(names, relations)
    assert len(found) == 1
    write_neighbors(tmp_path, found, graph.entities, graph.relations)
    for name, build in (("neighbors", neighbor_table), ("groundings", grounding_table)):
        table = build(found, graph.entities, graph.relations)
        assert pq.read_table(tmp_path / f"{name}.parquet").equals(table)
        assert tsv_rows(tmp_path / f"{name}.tsv") == [table.column_names, *as_cells(table)]


def tsv_rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", strict=True))


def as_cells(table: pa.Table) -> list[list[str]]:
    def cell(value: object) -> str:
        return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

    return [[cell(value) for value in row.values()] for row in table.to_pylist()]


@pytest.mark.parametrize("seed", range(3))
def test_parquet_and_tsv_agree(seed, tmp_path):
    found, graph = inferred(seed)
    write_neighbors(tmp_path, found, graph.entities, graph.relations)
    assert {p.name for p in tmp_path.iterdir()} == {
        "neighbors.parquet", "neighbors.tsv", "groundings.parquet", "groundings.tsv",
    }  # fmt: skip
    for name in ("neighbors", "groundings"):
        table = pq.read_table(tmp_path / f"{name}.parquet")
        assert tsv_rows(tmp_path / f"{name}.tsv") == [table.column_names, *as_cells(table)]
    assert len(pq.read_table(tmp_path / "groundings.parquet")) == len(found.grounding_rule)


def test_nothing_inferred_is_two_headers(tmp_path):
    graph = graph_of([(0, 0, 1)], 2, 1)
    found = virtual_neighbors(Grounder(RuleSet.empty(1), ANY), Overlay.of(graph), np.array([0]))
    write_neighbors(tmp_path, found, graph.entities, graph.relations)
    assert (tmp_path / "neighbors.tsv").read_text() == "\t".join(NEIGHBOR_COLUMNS) + "\n"
    assert (tmp_path / "groundings.tsv").read_text() == "\t".join(GROUNDING_COLUMNS) + "\n"
    empty, full = (pq.read_schema(tmp_path / f"{name}.parquet") for name in ("neighbors", "groundings"))
    found, graph = named_world(["a", "b", "c"], ["r", "s", "t"])
    assert empty.equals(neighbor_table(found, graph.entities, graph.relations).schema)
    assert full.equals(grounding_table(found, graph.entities, graph.relations).schema)


def test_the_same_neighbours_give_the_same_bytes(tmp_path):
    for name in ("first", "second"):
        found, graph = inferred(1)
        write_neighbors(tmp_path / name, found, graph.entities, graph.relations)
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_a_folder_that_cannot_be_is_said_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    found, graph = named_world(["a", "b", "c"], ["r", "s", "t"])
    with pytest.raises(OutputError, match="cannot be written"):
        write_neighbors(tmp_path / "file", found, graph.entities, graph.relations)


def test_a_newcomers_reasons_rest_on_its_own_facts():
    names = named_graph([("a", "r", "b"), ("b", "s", "c"), ("n", "r", "b")])
    observed = Graph.build(
        names.entities, names.relations, names.triples.take(names.triples.heads != names.entities.id("n"))
    )
    arrived = Graph.build(
        names.entities, names.relations, names.triples.take(names.triples.heads == names.entities.id("n"))
    )
    nothing = names.triples.take(np.zeros(len(names), dtype=bool))
    dataset = InductiveDataset("made", observed, arrived, nothing, nothing)
    rule = Rule(Kind.TWO, 1, 0, 1, support=9, body_size=10, pca_body_size=10, head_size=20)
    found = virtual_neighbors(Grounder(RuleSet.of([rule], 2), ANY), Overlay.of_dataset(dataset), dataset.newcomers)
    [row] = grounding_table(found, names.entities, names.relations).to_pylist()
    assert (row["head"], row["relation"], row["tail"]) == ("n", "s", "c")
    assert (row["premise_1"], row["premise_2"]) == ("r(n,b)", "s(b,c)")
