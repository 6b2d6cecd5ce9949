"""The rules of a trained model as a table of numbers, and back: half a million are read in a moment.

rules.parquet   one row a rule, in columns as `newcomer.rules.rule.RuleSet` has them: kind, oriented relations
                (heads, body1, body2, body3) and entities (head_constants, body_constants) by id, -1 where there is
                none, and the counts behind its figures, -1 where they are not known
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from newcomer.graph import Mask
from newcomer.models.bundle.tables import damaged, read_table, write_table
from newcomer.rules.rule import COLUMNS, FIGURES, NONE, UNCOUNTED, Kind, RuleSet

SCHEMA = pa.schema([(name, pa.int64() if name in FIGURES else pa.int32()) for name in COLUMNS])


def write_rule_numbers(path: Path, rules: RuleSet) -> None:
    """Write the table."""
    write_table(path, {field.name: pa.array(getattr(rules, field.name), type=field.type) for field in SCHEMA})


def read_rule_numbers(path: Path, num_relations: int, num_entities: int) -> RuleSet:
    """Read it back; a row that makes no rule is refused."""
    table = read_table(path, SCHEMA)
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
