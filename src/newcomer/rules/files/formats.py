"""The text forms of rules by the names that a user gives: how each is read, and how it is written."""

from collections.abc import Callable
from pathlib import Path

from newcomer.graph import Graph, Vocabulary
from newcomer.rules.files.amie import read_amie, write_amie
from newcomer.rules.files.anyburl import read_anyburl, write_anyburl
from newcomer.rules.files.rule_table import read_rules, write_rules
from newcomer.rules.mining.index import tail_side
from newcomer.rules.rule import RuleSet

READERS: dict[str, Callable[[Path, Vocabulary, Vocabulary | None], RuleSet]] = {
    "tsv": read_rules,
    "amie": read_amie,
    "anyburl": read_anyburl,
}

# The graph names what the rules are about; AMIE's form also states which side of a relation is functional.
WRITERS: dict[str, Callable[[RuleSet, Path, Graph], None]] = {
    "tsv": lambda rules, path, graph: write_rules(rules, path, graph.relations, graph.entities),
    "amie": lambda rules, path, graph: write_amie(rules, path, graph.relations, graph.entities, tail_side(graph)),
    "anyburl": lambda rules, path, graph: write_anyburl(rules, path, graph.relations, graph.entities),
}
