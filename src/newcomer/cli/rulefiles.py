"""``newcomer rules show | top | convert | evaluate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.commands import CommandGroup
from newcomer.cli.common import load, print_json, print_table, progress
from newcomer.cli.options import at_least, takes_cut, takes_read_options
from newcomer.cli.reports import MEASURES, cells_of, print_cut_note
from newcomer.cli.rules import check_rule_file, facts_for, print_best, rules_for
from newcomer.errors import OptionError, check_name, shown

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.cut import FactsCut
    from newcomer.graph import Vocabulary
    from newcomer.rules.rule import RuleSet

app = CommandGroup("Rule files: look at, convert, measure.")

RulesArgument = Annotated[
    Path, Argument(metavar="RULES", help="A rule file that `newcomer mine` wrote, or a trained model.")
]


@app.command()
def show(rules: RulesArgument, as_json: options.Json = False) -> None:
    """Count the rules of a file or a model by kind and confidence."""
    import numpy as np

    from newcomer.rules.rule import Kind

    found = _rules_of(rules)[0]
    named = np.concatenate([found.heads, *(body[body >= 0] for body in (found.body1, found.body2, found.body3))])
    relations = np.unique(named % max(found.num_relations, 1))
    kinds = {kind.name.lower(): int((found.kinds == kind).sum()) for kind in Kind if (found.kinds == kind).any()}
    confident = {f"{share:g}": int((np.nan_to_num(found.pca_confidence) >= share).sum()) for share in (0.5, 0.8, 0.95)}
    if as_json:
        print_json({"rules": len(found), "relations": len(relations), "kinds": kinds, "pca_at_least": confident})
        return
    rows = {"rules": len(found), "relations named": len(relations), **{f"  kind {k}": n for k, n in kinds.items()}}
    rows |= {f"  PCA confidence >= {share}": count for share, count in confident.items()}
    print_table(str(rules), ("", "count"), list(rows.items()))


@app.command()
def top(
    rules: RulesArgument,
    relation: Annotated[str | None, Option(help="Only rules that conclude this relation.")] = None,
    count: Annotated[int, Option("--top", callback=at_least(1), help="How many rules.")] = 20,
    measure: Annotated[str, Option(help="Confidence to print: pca, standard, smoothed.")] = "pca",
) -> None:
    """Print the best rules in words."""
    from newcomer.graph import Graph, TripleArray
    from newcomer.rules.virtual_neighbors import MEASURES

    check_name("measure", measure, MEASURES)
    found, relations, entities = _rules_of(rules)
    if relation is not None:
        found = _concluding(found, relation, relations, rules)
    if len(found) == 0:
        typer.echo(f"{rules} holds no rules")
    title = "Best rules" if relation is None else f"Best of {len(found):,} rules for {relation}"
    print_best(found, Graph.build(entities, relations, TripleArray.empty()), count, measure, title)


def _rules_of(path: Path) -> "tuple[RuleSet, Vocabulary, Vocabulary]":
    """The rules of a file or of a model's folder, with relations and entities."""
    from newcomer.files import is_folder
    from newcomer.models.bundle import read_bundle
    from newcomer.rules.files.rule_table import read_rule_table

    if not is_folder(path):
        return read_rule_table(path)
    bundle = read_bundle(path)
    return bundle.rules, bundle.observed.relations, bundle.observed.entities


def _concluding(found: "RuleSet", relation: str, relations: "Vocabulary", source: Path) -> "RuleSet":
    """The rules that conclude a relation. A graph may have thousands of relations: a wrong name gets the nearest."""
    from difflib import get_close_matches

    import numpy as np

    plain = found.heads % max(len(relations), 1)
    chosen = found.where(plain == relations.id(relation))
    if len(chosen) == 0:
        show_some = f"newcomer rules top {source}"
        near = get_close_matches(relation, relations.names_of(np.unique(plain)), n=1, cutoff=0.6)
        hint = f"did you mean {shown(near[0])}?" if near else f"see some that are concluded with: {show_some}"
        raise OptionError(f"{source}: no rule concludes the relation {shown(relation)}; {hint}")
    return chosen


@app.command()
@takes_read_options
def convert(
    source: Annotated[Path, Argument(metavar="IN", help="A rule file, or a trained model.")],
    out: Annotated[Path, Argument(metavar="OUT", help="The rule file to write.")],
    data: Annotated[
        str | None, Option(help="The graph whose relations and entities the rules name; a model has its own.")
    ] = None,
    read_as: Annotated[str, Option("--from", help="Format of IN: tsv (ours), amie or anyburl.")] = "tsv",
    write_as: Annotated[str, Option("--to", help="Format of OUT: tsv (ours), amie or anyburl.")] = "tsv",
    force: options.Force = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Turn our rule files, or a model's rules, into AMIE's or AnyBURL's, and back."""
    from newcomer.files import is_folder
    from newcomer.models.bundle import read_bundle
    from newcomer.rules.files.listings import READERS, WRITERS

    for form in (read_as, write_as):
        check_name("rule format", form, READERS)
    check_rule_file(out, force)
    if is_folder(source):
        bundle = read_bundle(source)
        if data is not None or read_as != "tsv":
            raise OptionError(f"{source} is a model, which has names of its own; leave out --data and --from")
        rules, graph = bundle.rules, bundle.observed
    elif data is None:
        raise OptionError("--data is missing; name the graph whose relations and entities the rules name")
    else:
        graph = load(data, reading).dataset.observed
        rules = READERS[read_as](source, graph)
    WRITERS[write_as](rules, out, graph)
    typer.echo(f"written {len(rules):,} rules to {out}")


Full = Annotated[str | None, Option("--full", help="The original graph with all true facts, for a second filter.")]


@app.command()
@takes_read_options
@takes_cut
def evaluate(
    data: options.DataArgument,
    rules: options.Rules = None,
    full: Full = None,
    aggregation: Annotated[str, Option(help="maximum (lexicographic) or noisy-or.")] = "maximum",
    by_frequency: Annotated[
        bool, Option("--frequency/--no-frequency", help="Order ties by how often (relation, tail) occurs.")
    ] = True,
    facts: options.WalkedFacts = "own",
    candidates: Annotated[str, Option(help="all or seen entities.")] = "all",
    protocol: Annotated[
        str, Option(help="inductive, or refreshed where the rules were mined with auxiliary facts.")
    ] = "inductive",
    threads: options.Threads = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    *,
    cut: "FactsCut | None",
    reading: "ReadOptions",
) -> None:
    """Rank the answers of test by rules alone: the baseline of every learned model."""
    from newcomer.data import load_dataset
    from newcomer.data.cut import CutDataset
    from newcomer.evaluation.ranking import RankingProtocol, align, evaluate_under
    from newcomer.rules.limits import thread_count
    from newcomer.rules.ranking import AGGREGATIONS, RuleRanker, RuleScorer

    check_name("protocol", protocol, ("inductive", "refreshed"))
    check_name("aggregation", aggregation, AGGREGATIONS)
    filters = ("known",) if full is None else ("known", "full")
    protocols = [RankingProtocol(filter=name, candidates=candidates) for name in filters]
    dataset = load(data, reading).dataset
    dataset = dataset if cut is None else cut.of(dataset)
    everything = None if full is None else align(load_dataset(full).known(), dataset)
    walked = facts_for(dataset, facts)
    known = rules_for(dataset, rules, threads, seed, refreshed=protocol == "refreshed")
    ranker = RuleScorer(RuleRanker.of(known, aggregation, by_frequency), walked, thread_count(threads))
    with progress("ranking") as advance:
        results = evaluate_under(dataset, ranker, protocols, full=everything, progress=advance)
    rows = [
        {
            "task": "link prediction",
            "dataset": dataset.name,
            "model": "rules",
            "protocol": protocol,
            "filter": result.protocol.filter,
            "candidates": candidates,
            "facts": facts,
            "seed": seed,
            "rules": len(known),
            "queries": len(result.ranks),
            "known_facts": dataset.summary() if isinstance(dataset, CutDataset) else None,
            "metrics": result.metrics(),
        }
        for result in results
    ]
    if as_json:
        print_json(rows)
        return
    _print_ranking(rows)


def _print_ranking(rows: list[dict[str, Any]]) -> None:
    from newcomer.data.cut import cut_in_words

    first, (rank, *names) = rows[0], MEASURES
    cells = [(row["filter"], row["metrics"][rank], *cells_of(row["metrics"], names)) for row in rows]
    title = f"{first['dataset']}: {first['rules']:,} rules, {first['queries']:,} queries, {first['protocol']} protocol"
    title += cut_in_words(first["known_facts"])
    print_table(title, ("filter", *MEASURES.values()), cells)
    print_cut_note(first["known_facts"])
    typer.echo(f"MRR and Hits in percent; candidates: {first['candidates']}; ties at the mean rank")
