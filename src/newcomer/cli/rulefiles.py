"""``newcomer rules show | top | convert | evaluate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli.common import load, print_json, print_table, progress
from newcomer.cli.evaluate import facts_cut
from newcomer.cli.options import (
    DataArgument,
    ForceOption,
    JsonOption,
    KnownFactsOption,
    KnownFactsSeedOption,
    RulesOption,
    SeedOption,
    ThreadsOption,
    WalkedFactsOption,
    at_least,
    takes_read_options,
)
from newcomer.cli.reports import print_cut_note
from newcomer.cli.rules import check_rule_file, facts_for, print_best, rules_for

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.graph import Vocabulary
    from newcomer.rules.rule import RuleSet

app = typer.Typer(help="Rule files: look at, convert, measure.", no_args_is_help=True, rich_markup_mode=None)

RulesArgument = Annotated[
    Path, typer.Argument(metavar="RULES", help="A rule file that `newcomer mine` wrote, or a trained model.")
]


@app.command()
def show(rules: RulesArgument, as_json: JsonOption = False) -> None:
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
    rows = [("rules", len(found)), ("relations named", len(relations))]
    rows += [(f"  kind {name}", count) for name, count in kinds.items()]
    rows += [(f"  PCA confidence >= {share}", count) for share, count in confident.items()]
    print_table(str(rules), ("", "count"), rows)


@app.command()
def top(
    rules: RulesArgument,
    relation: Annotated[str | None, typer.Option("--relation", help="Only rules that conclude this relation.")] = None,
    count: Annotated[int, typer.Option("--top", callback=at_least(1), help="How many rules.")] = 20,
    measure: Annotated[str, typer.Option("--measure", help="Confidence to print: pca, standard, smoothed.")] = "pca",
) -> None:
    """Print the best rules in words."""
    from newcomer.errors import unknown_name
    from newcomer.graph import Graph, TripleArray
    from newcomer.rules.virtual_neighbors import MEASURES

    if measure not in MEASURES:
        raise unknown_name("measure", measure, MEASURES)
    found, relations, entities = _rules_of(rules)
    if relation is not None:
        found = _concluding(found, relation, relations, rules)
    if len(found) == 0:
        typer.echo(f"{rules} holds no rules")
    title = "Best rules" if relation is None else f"Best of {len(found):,} rules for {relation}"
    print_best(found, Graph.build(entities, relations, TripleArray.empty()), count, measure, title)


def _rules_of(path: Path) -> "tuple[RuleSet, Vocabulary, Vocabulary]":
    """The rules of a file or of a model's folder, with relations and entities."""
    from newcomer.models.bundle import read_bundle
    from newcomer.rules.files.rule_table import read_rule_table

    if not path.is_dir():
        return read_rule_table(path)
    bundle = read_bundle(path)
    return bundle.rules, bundle.observed.relations, bundle.observed.entities


def _concluding(found: "RuleSet", relation: str, relations: "Vocabulary", source: Path) -> "RuleSet":
    """The rules that conclude a relation. A graph may have thousands of relations: a wrong name gets the nearest."""
    from difflib import get_close_matches

    import numpy as np

    from newcomer.errors import OptionError, shown

    plain = found.heads % max(len(relations), 1)
    chosen = found.where(plain == relations.id(relation))
    if len(chosen) == 0:
        near = get_close_matches(relation, relations.names_of(np.unique(plain)), n=1, cutoff=0.6)
        hint = (
            f"did you mean {shown(near[0])}?"
            if near
            else f"see some that are concluded with: newcomer rules top {source}"
        )
        raise OptionError(f"{source}: no rule concludes the relation {shown(relation)}; {hint}")
    return chosen


@app.command()
@takes_read_options
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A rule file, or a trained model.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The rule file to write.")],
    data: Annotated[
        str | None,
        typer.Option("--data", help="The graph whose relations and entities the rules name; a model has its own."),
    ] = None,
    read_as: Annotated[str, typer.Option("--from", help="Format of IN: tsv (ours), amie or anyburl.")] = "tsv",
    write_as: Annotated[str, typer.Option("--to", help="Format of OUT: tsv (ours), amie or anyburl.")] = "tsv",
    force: ForceOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Turn our rule files, or a model's rules, into AMIE's or AnyBURL's, and back."""
    from newcomer.errors import OptionError
    from newcomer.models.bundle import read_bundle
    from newcomer.rules.files.formats import READERS, WRITERS

    for form in (read_as, write_as):
        if form not in READERS:
            from newcomer.errors import unknown_name

            raise unknown_name("rule format", form, READERS)
    check_rule_file(out, force)
    if source.is_dir():
        bundle = read_bundle(source)
        if data is not None or read_as != "tsv":
            raise OptionError(f"{source} is a model, which has names of its own; leave out --data and --from")
        rules, graph = bundle.rules, bundle.observed
    elif data is None:
        raise OptionError("--data is missing; name the graph whose relations and entities the rules name")
    else:
        graph = load(data, reading).dataset.observed
        rules = READERS[read_as](source, graph.relations, graph.entities)
    WRITERS[write_as](rules, out, graph)
    typer.echo(f"written {len(rules):,} rules to {out}")


@app.command()
@takes_read_options
def evaluate(
    data: DataArgument,
    rules: RulesOption = None,
    full: Annotated[
        str | None, typer.Option("--full", help="The original graph with all true facts, for a second filter.")
    ] = None,
    aggregation: Annotated[str, typer.Option("--aggregation", help="maximum (lexicographic) or noisy-or.")] = "maximum",
    by_frequency: Annotated[
        bool, typer.Option("--frequency/--no-frequency", help="Order ties by how often (relation, tail) occurs.")
    ] = True,
    facts: WalkedFactsOption = "own",
    candidates: Annotated[str, typer.Option("--candidates", help="all or seen entities.")] = "all",
    protocol: Annotated[
        str, typer.Option("--protocol", help="inductive, or refreshed where the rules were mined with auxiliary facts.")
    ] = "inductive",
    known_facts: KnownFactsOption = None,
    known_facts_seed: KnownFactsSeedOption = None,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Rank the answers of test by rules alone: the baseline of every learned model."""
    from newcomer.data import load_dataset
    from newcomer.data.cut import CutDataset
    from newcomer.errors import unknown_name
    from newcomer.evaluation.ranking import RankingProtocol, align, evaluate_under
    from newcomer.rules.limits import thread_count
    from newcomer.rules.ranking import AGGREGATIONS, RuleRanker, RuleScorer

    if protocol not in ("inductive", "refreshed"):
        raise unknown_name("protocol", protocol, ("inductive", "refreshed"))
    if aggregation not in AGGREGATIONS:
        raise unknown_name("aggregation", aggregation, AGGREGATIONS)
    filters = ("known",) if full is None else ("known", "full")
    protocols = [RankingProtocol(filter=name, candidates=candidates) for name in filters]
    cut = facts_cut(known_facts, known_facts_seed)
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

    names = ("mrr", "hits@1", "hits@3", "hits@10")
    cells = [
        (row["filter"], row["metrics"]["mr"], *(f"{100 * row['metrics'][name]:.1f}" for name in names)) for row in rows
    ]
    first = rows[0]
    title = f"{first['dataset']}: {first['rules']:,} rules, {first['queries']:,} queries, {first['protocol']} protocol"
    title += cut_in_words(first["known_facts"])
    print_table(title, ("filter", "mean rank", "MRR", "Hits@1", "Hits@3", "Hits@10"), cells)
    print_cut_note(first["known_facts"])
    typer.echo(f"MRR and Hits in percent; candidates: {first['candidates']}; ties at the mean rank")
