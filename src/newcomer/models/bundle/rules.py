"""The rules of a trained model and the virtual neighbours they infer as tables of numbers, and back.

    rules.parquet        one row a rule, in columns as `newcomer.rules.rule.RuleSet` has them: kind, oriented relations
                         (heads, body1, body2, body3) and entities (head_constants, body_constants) by id, -1 where
                         there is none, and the counts behind its figures, -1 where they are not known
    neighbors.parquet    head, relation, tail, and how many groundings each has; sorted
    groundings.parquet   path: whether the rule is one of paths.parquet or of the model; its row there; up to three
                         premises, head_1, relation_1, tail_1 and so on, -1 where there are fewer
    paths.parquet        rules of symmetric paths: about whom, the premise path premise_1..3 and the conclusion path
                         conclusion_1..3 as oriented relations (-1 where shorter); pairs with both, and with the premise

Half a million rules are read in a moment, and nothing is inferred again. What follows from these tables is not stored:
confidences are those of the rules, by the measure that the settings name.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from newcomer.graph import Ids, Mask, TripleArray
from newcomer.models.bundle.tables import damaged, read_table, write_table
from newcomer.rules.mining.symmetric_paths import PathRules
from newcomer.rules.mining.symmetric_walks import MAX_ARM
from newcomer.rules.rule import COLUMNS, FIGURES, NONE, UNCOUNTED, Kind, RuleSet
from newcomer.rules.virtual_neighbors import LOGIC, PATH, PREMISES, VirtualNeighbors, strength_of

SEEN, NEWCOMERS = "seen", "newcomers"
FILES = ("neighbors.parquet", "groundings.parquet", "paths.parquet")
TRIPLE = ("head", "relation", "tail")
PREMISE_COLUMNS = tuple(f"{name}_{place + 1}" for place in range(PREMISES) for name in TRIPLE)
ARMS = tuple(f"{end}_{step + 1}" for end in ("premise", "conclusion") for step in range(MAX_ARM))
RULE_SCHEMA = pa.schema([(name, pa.int64() if name in FIGURES else pa.int32()) for name in COLUMNS])
NEIGHBOR_SCHEMA = pa.schema([(name, pa.int32()) for name in (*TRIPLE, "groundings")])
GROUNDING_SCHEMA = pa.schema([("path", pa.bool_()), *((name, pa.int32()) for name in ("rule", *PREMISE_COLUMNS))])
PATH_SCHEMA = pa.schema([(name, pa.int32()) for name in ("entity", *ARMS, "common", "pairs")])


def write_rule_numbers(path: Path, rules: RuleSet) -> None:
    """Write the table."""
    write_table(path, {field.name: pa.array(getattr(rules, field.name), type=field.type) for field in RULE_SCHEMA})


def read_rule_numbers(path: Path, num_relations: int, num_entities: int) -> RuleSet:
    """Read it back; a row that makes no rule is refused."""
    table = read_table(path, RULE_SCHEMA)
    rules = RuleSet(num_relations, *(column.to_numpy() for column in table.columns))
    problem = problem_of(rules, num_entities)
    if problem is not None:
        raise damaged(path, problem)
    return rules


def problem_of(rules: RuleSet, num_entities: int) -> str | None:
    """What is wrong with the first rule that is none."""
    for problem, wrong in _problems(rules, num_entities):
        if wrong.any():
            return f"has no rule in row {int(np.argmax(wrong)) + 1:,}: {problem}"
    return None


def _problems(rules: RuleSet, num_entities: int) -> Iterator[tuple[str, Mask]]:
    """What may be wrong, and with which rows."""
    kinds, size = rules.kinds, 2 * rules.num_relations
    yield "its kind is none that is known", ~np.isin(kinds, list(Kind))
    one, two, both, three, constant, exists = (kinds == kind for kind in Kind)
    about = constant | exists
    inverse_head = rules.heads >= rules.num_relations
    yield "its head is no relation", (rules.heads < 0) | (rules.heads >= size) | (inverse_head & ~about)
    wanted = {"body1": ~np.zeros_like(one), "body2": two | both | three, "body3": three}
    for name, needed in wanted.items():
        ids = getattr(rules, name)
        yield f"its {name} is no relation", np.where(needed, (ids < 0) | (ids >= size), ids != NONE)
    yield "its body has the same atom twice", both & (rules.body1 >= rules.body2)
    for name, needed in {"head_constants": about, "body_constants": constant}.items():
        ids = getattr(rules, name)
        yield f"its {name} is no entity", np.where(needed, (ids < 0) | (ids >= num_entities), ids != NONE)
    for name in FIGURES:
        yield f"its {name} is no count", getattr(rules, name) < UNCOUNTED


def write_virtual(folder: Path, found: VirtualNeighbors) -> None:
    """Write the three tables into a folder."""
    folder.mkdir()
    triples, paths = found.triples, found.path_rules
    premises = found.premises.reshape(-1, PREMISES * len(TRIPLE))
    arms = np.concatenate([paths.types[paths.premises], paths.types[paths.conclusions]], axis=1)
    tables = (
        [triples.heads, triples.relations, triples.tails, found.grounding_counts],
        [found.grounding_source == PATH, found.grounding_rule, *premises.T],
        [paths.entities, *arms.T, paths.common, paths.pairs],
    )
    for name, columns, schema in zip(FILES, tables, (NEIGHBOR_SCHEMA, GROUNDING_SCHEMA, PATH_SCHEMA), strict=True):
        arrays = [pa.array(column, type=kind.type) for column, kind in zip(columns, schema, strict=True)]
        write_table(folder / name, dict(zip(schema.names, arrays, strict=True)))


def read_virtual(folder: Path, rules: RuleSet, measure: str, num_entities: int) -> VirtualNeighbors:
    """Read them back; ids that nothing has are refused."""
    heads, relations, tails, counts = _columns(folder / FILES[0], NEIGHBOR_SCHEMA)
    triples = (heads, 0, num_entities), (relations, 0, rules.num_relations), (tails, 0, num_entities)
    _check(folder / FILES[0], triples)
    paths = _read_paths(folder / FILES[2], rules.num_relations, num_entities)
    path, rule, *premises = _columns(folder / FILES[1], GROUNDING_SCHEMA)
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    if (counts < 1).any() or offsets[-1] != len(rule):
        raise damaged(folder / FILES[0], f"counts {offsets[-1]:,} groundings where there are {len(rule):,}")
    of_path = path.astype(bool)
    bounds = [(rule[of_path], 0, len(paths)), (rule[~of_path], 0, len(rules))]
    ranges = (num_entities, rules.num_relations, num_entities) * PREMISES
    _check(folder / FILES[1], [*bounds, *((ids, NONE, below) for ids, below in zip(premises, ranges, strict=True))])
    strength = np.empty(len(rule))
    strength[of_path] = paths.confidence[rule[of_path]]
    strength[~of_path] = strength_of(rules, measure)[rule[~of_path]]
    source = np.where(of_path, PATH, LOGIC).astype(np.int32)
    return VirtualNeighbors(
        rules,
        paths,
        TripleArray(heads, relations, tails),
        offsets,
        source,
        rule,
        strength,
        np.stack(premises, axis=1).reshape(-1, PREMISES, len(TRIPLE)),
    )


def _read_paths(path: Path, num_relations: int, num_entities: int) -> PathRules:
    entity, *arms, common, pairs = _columns(path, PATH_SCHEMA)
    _check(path, [(entity, 0, num_entities), *((arm, NONE, 2 * num_relations) for arm in arms)])
    _check(path, [(pairs, 1, np.iinfo(np.int32).max), (common, 0, np.iinfo(np.int32).max)])
    steps = np.stack(arms, axis=1).reshape(-1, MAX_ARM)  # premise and conclusion in turn
    types, places = np.unique(steps, axis=0, return_inverse=True)
    ends = places.reshape(-1, 2).astype(np.int32)
    return PathRules(num_relations, types, entity, ends[:, 0].copy(), ends[:, 1].copy(), common, pairs)


def _columns(path: Path, schema: pa.Schema) -> list[Ids]:
    table = read_table(path, schema)
    return [np.ascontiguousarray(column.to_numpy(), dtype=np.int32) for column in table.columns]


def _check(path: Path, bounds: Iterable[tuple[Ids, int, int]]) -> None:
    """Whether all ids lie within their bounds."""
    for ids, least, below in bounds:
        if len(ids) and not least <= int(ids.min()) <= int(ids.max()) < below:
            wrong = int(ids.min()) if int(ids.min()) < least else int(ids.max())
            raise damaged(path, f"holds the number {wrong}, which is not from {least} to {below - 1}")
