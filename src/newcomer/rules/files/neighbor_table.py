"""Virtual neighbours in files: one table of triples, one of the reasons for them, each as Parquet and readable TSV.

    neighbors    head, relation, tail, confidence, kind (logic or path), groundings
    groundings   head, relation, tail, confidence, kind, rule, premise_1, premise_2, premise_3

A premise is written as ``relation(head,tail)``, quoted as in rule files.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from newcomer.files import create_bytes, fresh_file
from newcomer.graph import Ids, Vocabulary
from newcomer.rules.files.rule_table import quoted_names
from newcomer.rules.rule import NONE
from newcomer.rules.virtual_neighbors import LOGIC, PREMISES, SOURCES, VirtualNeighbors


def neighbor_table(found: VirtualNeighbors, entities: Vocabulary, relations: Vocabulary) -> pa.Table:
    """One row a virtual triple."""
    return pa.table(
        {
            **_triple_columns(found, np.arange(len(found)), entities, relations),
            "confidence": pa.array(found.confidence),
            "kind": _named(found.kinds, pa.array(SOURCES)),
            "groundings": pa.array(found.grounding_counts),
        }
    )


def grounding_table(found: VirtualNeighbors, entities: Vocabulary, relations: Vocabulary) -> pa.Table:
    """One row a grounding: its rule and its premises as text."""
    triple = np.repeat(np.arange(len(found)), found.grounding_counts)
    columns = {
        **_triple_columns(found, triple, entities, relations),
        "confidence": pa.array(found.grounding_strength),
        "kind": _named(found.grounding_source, pa.array(SOURCES)),
        "rule": _rule_texts(found, entities, relations),
    }
    for place in range(PREMISES):
        columns[f"premise_{place + 1}"] = _fact_texts(found.premises[:, place], entities, relations)
    return pa.table(columns)


def _triple_columns(
    found: VirtualNeighbors, rows: npt.NDArray[np.integer], entities: Vocabulary, relations: Vocabulary
) -> dict[str, pa.Array]:
    triples = found.triples
    return {
        "head": _named(triples.heads[rows], entities.names),
        "relation": _named(triples.relations[rows], relations.names),
        "tail": _named(triples.tails[rows], entities.names),
    }


def _named(ids: npt.NDArray[np.integer], names: pa.Array) -> pa.Array:
    return names.take(pa.array(ids))


def _rule_texts(found: VirtualNeighbors, entities: Vocabulary, relations: Vocabulary) -> pa.Array:
    """The text of each grounding's rule; each distinct one is written once."""
    logic = found.grounding_source == LOGIC
    used_logic, logic_rows = np.unique(found.grounding_rule[logic], return_inverse=True)
    used_paths, path_rows = np.unique(found.grounding_rule[~logic], return_inverse=True)
    texts = found.rules.where(used_logic).texts(relations, entities)
    texts += [found.path_rules.text(row, relations) for row in used_paths.tolist()]
    rows = np.empty(len(logic), dtype=np.int32)
    rows[logic], rows[~logic] = logic_rows, path_rows + len(used_logic)
    return _named(rows, pa.array(texts, type=pa.string()))


def _fact_texts(facts: Ids, entities: Vocabulary, relations: Vocabulary) -> pa.Array:
    """``relation(head,tail)`` for rows of (head, relation, tail); null where there is no fact."""
    there = facts[:, 1] != NONE
    used = facts[there]
    heads, tails = quoted_names(entities, used[:, 0]), quoted_names(entities, used[:, 2])
    text = pc.binary_join_element_wise(quoted_names(relations, used[:, 1]), "(", heads, ",", tails, ")", "")
    places = np.where(there, np.cumsum(there) - 1, 0)
    return text.take(pa.array(places, mask=~there)) if len(text) else pa.nulls(len(facts), pa.string())


def write_neighbors(folder: Path, found: VirtualNeighbors, entities: Vocabulary, relations: Vocabulary) -> None:
    """Write both tables in both formats into a folder."""
    tables = {
        "neighbors": neighbor_table(found, entities, relations),
        "groundings": grounding_table(found, entities, relations),
    }
    for name, table in tables.items():
        with fresh_file(folder / f"{name}.parquet") as partial, partial.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
        _write_tsv(folder / f"{name}.tsv", table)


def _write_tsv(path: Path, table: pa.Table) -> None:
    with create_bytes(path) as stream:
        stream.write(("\t".join(table.column_names) + "\n").encode())
        for batch in table.to_batches(max_chunksize=1 << 16):
            columns = [_cells(batch.column(i)) for i in range(batch.num_columns)]
            stream.write("".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)).encode())


def _cells(column: pa.Array) -> Sequence[str]:
    values = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [f"{value:.6g}" for value in values]
    return list(map(str, values)) if pa.types.is_integer(column.type) else [_cell(value or "") for value in values]


def _cell(text: str) -> str:
    special = any(sign in text for sign in '\t\n\r"')
    return '"' + text.replace('"', '""') + '"' if special else text
