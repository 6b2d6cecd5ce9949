"""``newcomer mine``, ``newcomer enrich`` and ``newcomer rules show | top | convert | evaluate``."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli.common import (
    DataArgument,
    ForceOption,
    JsonOption,
    console,
    load,
    print_json,
    table,
    takes_read_options,
    working,
)

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.graph import Graph, Ids, InductiveDataset
    from newcomer.rules.neighbors import VirtualNeighbors
    from newcomer.rules.rule import RuleSet

app = typer.Typer(help="Rule files: look at, convert, measure.", no_args_is_help=True, rich_markup_mode=None)

RulesArgument = Annotated[Path, typer.Argument(metavar="RULES", help="A rule file that `newcomer mine` wrote.")]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", help="A rule file [default: mine the observed graph now].")
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads [default: all cores]; the result is the same.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything drawn.")]
NAMES_OF_KINDS = {"one": 1, "two": 2, "both": 3, "three": 4, "constant": 5, "exists": 6}
LOGIC_KINDS = "one,two,both"


@takes_read_options
def mine(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", help="The rule file to write (.tsv, also .gz or .zst).")],
    kinds: Annotated[
        str, typer.Option("--kinds", help="Of one, two, both, three, constant, exists; or `all`.")
    ] = LOGIC_KINDS,
    min_support: Annotated[int, typer.Option("--min-support", help="Facts a rule must explain.")] = 2,
    min_head_coverage: Annotated[
        float, typer.Option("--min-head-coverage", help="Share of its relation's facts a rule must explain.")
    ] = 0.01,
    min_confidence: Annotated[float, typer.Option("--min-confidence", help="Smallest standard confidence.")] = 0.0,
    min_pca: Annotated[float, typer.Option("--min-pca", help="Smallest PCA confidence.")] = 0.0,
    min_head_size: Annotated[int, typer.Option("--min-head-size", help="Facts the head's relation must have.")] = 1,
    max_rules: Annotated[int | None, typer.Option("--max-rules", help="Keep the best so many.")] = None,
    memory_limit: Annotated[
        float | None, typer.Option("--memory-limit", help="MiB for counts; more slices, never a failure.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds; head relations not finished by then are left out.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples for bodies of three atoms.")] = 20_000_000,
    with_auxiliary: Annotated[
        bool, typer.Option("--with-auxiliary", help="Mine the auxiliary facts too (the `refreshed` protocol).")
    ] = False,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    top: Annotated[int, typer.Option("--top", min=0, help="How many of the best rules to print.")] = 10,
    *,
    reading: "ReadOptions",
) -> None:
    """Find the rules of a graph, with exact figures."""
    from newcomer.rules.mining import MiningPlan, mine_rules
    from newcomer.rules.rulefiles import write_rules

    plan = MiningPlan(
        kinds=_kinds(kinds),
        min_support=min_support,
        min_head_coverage=min_head_coverage,
        min_confidence=min_confidence,
        min_pca=min_pca,
        min_head_size=min_head_size,
        max_rules=max_rules,
        memory_limit=None if memory_limit is None else int(memory_limit * 2**20),
        time_limit=time_limit,
        samples=samples,
    )
    _refuse_existing(out, force)
    dataset = load(data, reading).dataset
    graph = dataset.known_facts() if with_auxiliary else dataset.observed
    with progress("mining") as advance:
        result = mine_rules(graph, plan, seed, threads, advance)
    write_rules(result.rules, out, graph.relations, graph.entities)
    _print_best(result.rules, graph, top, "pca")
    typer.echo(f"{len(result.rules):,} rules from {len(graph):,} facts in {result.seconds:.1f} s, written to {out}")
    if not result.complete:
        unfinished = graph.num_relations - len(result.complete_relations)
        typer.echo(f"time was up: {unfinished:,} of {graph.num_relations:,} head relations are left out", err=True)


def _kinds(text: str) -> tuple[Any, ...]:
    from newcomer.errors import unknown_name
    from newcomer.rules.rule import Kind

    names = list(NAMES_OF_KINDS) if text.strip() == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in NAMES_OF_KINDS:
            raise unknown_name("kind of rule", name, [*NAMES_OF_KINDS, "all"])
    return tuple(Kind(NAMES_OF_KINDS[name]) for name in dict.fromkeys(names))


def _refuse_existing(out: Path, force: bool) -> None:
    from newcomer.errors import OutputError

    if out.exists() and not force:
        raise OutputError(f"{out}: exists already; choose another place or pass --force to replace it")


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error; silent where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _print_best(rules: "RuleSet", graph: "Graph", top: int, measure: str, title: str = "Best rules") -> None:
    import numpy as np

    from newcomer.rules.neighbors import strength_of

    if top == 0 or len(rules) == 0:
        return
    # Smoothed confidence decides, so that rules with many facts behind them come first.
    order = np.lexsort((np.arange(len(rules)), -rules.support, -np.nan_to_num(rules.smoothed_confidence)))[:top]
    best = rules.where(order)
    strength = strength_of(best, measure)
    rows = [
        (text, float(confidence), int(support))
        for text, confidence, support in zip(
            best.texts(graph.relations, graph.entities), strength, best.support, strict=True
        )
    ]
    console().print(table(title, ("rule", f"{measure} confidence", "support"), rows))


@takes_read_options
def enrich(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    rules: RulesOption = None,
    who: Annotated[
        str, typer.Option("--who", help="Whom to enrich: test (newcomers of test), newcomers, seen or all.")
    ] = "newcomers",
    entities: Annotated[
        Path | None, typer.Option("--entities", help="A file with one entity's name a line, instead of --who.")
    ] = None,
    measure: Annotated[str, typer.Option("--measure", help="Confidence that counts: pca, standard, smoothed.")] = "pca",
    min_confidence: Annotated[float, typer.Option("--min-confidence", help="Smallest confidence of a rule.")] = 0.8,
    min_support: Annotated[int, typer.Option("--min-support", help="Facts a rule must explain.")] = 10,
    min_head_size: Annotated[int, typer.Option("--min-head-size", help="Facts the head's relation must have.")] = 1,
    paths: Annotated[bool, typer.Option("--paths/--no-paths", help="Use symmetric-path rules too.")] = True,
    walks: Annotated[
        int, typer.Option("--walks", help="Random walks an entity: more find more, and less true.")
    ] = 1000,
    max_per_entity: Annotated[
        int | None, typer.Option("--max-per-entity", help="Keep the best so many virtual triples an entity.")
    ] = None,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    as_json: JsonOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Infer virtual neighbours, with confidence and reasons, and write them."""
    from newcomer.files import fresh_folder
    from newcomer.rules.neighborfiles import write_neighbors
    from newcomer.rules.neighbors import NeighborLimits, virtual_neighbors
    from newcomer.rules.paths import PathLimits

    limits = NeighborLimits(min_confidence, measure, min_support, min_head_size, max_per_entity)
    path_limits = PathLimits(walks=walks) if paths else None
    loaded = load(data, reading)
    dataset = loaded.dataset
    asked = _asked(dataset, who, entities)
    with fresh_folder(out, force) as staging:
        known = _rules_for(dataset, rules, threads, seed)
        with working("grounding"):
            found = virtual_neighbors(known, dataset.own_facts, asked, limits, path_limits, seed, _cores(threads))
            write_neighbors(staging, found, dataset.entities, dataset.relations)
        summary = _summary(dataset, found, asked, who if entities is None else entities.name)
        text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
        (staging / "enrichment.json").write_text(text, encoding="utf-8")
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary, out)


def _asked(dataset: "InductiveDataset", who: str, entities: Path | None) -> "Ids":
    import numpy as np

    from newcomer.data.newcomers import read_names
    from newcomer.errors import DatasetError, unknown_name

    if entities is not None:
        return read_names(entities, dataset.entities)
    choices = {
        "test": dataset.test_newcomers,
        "newcomers": dataset.newcomers,
        "seen": np.flatnonzero(dataset.is_seen).astype(np.int32),
        "all": np.arange(len(dataset.entities), dtype=np.int32),
    }
    if who not in choices:
        raise unknown_name("group of entities", who, choices)
    if len(choices[who]) == 0:
        raise DatasetError(f"{dataset.name} has no entities of the group {who!r}; choose another with --who")
    return choices[who]


def _rules_for(dataset: "InductiveDataset", path: Path | None, threads: int | None, seed: int) -> "RuleSet":
    """Rules from a file, or mined from the observed graph."""
    from newcomer.rules.mining import MiningPlan, mine_rules
    from newcomer.rules.rulefiles import read_rules

    if path is not None:
        return read_rules(path, dataset.relations, dataset.entities)
    with progress("mining") as advance:
        return mine_rules(dataset.observed, MiningPlan(), seed, threads, advance).rules


def _cores(threads: int | None) -> int:
    import os

    return threads or len(os.sched_getaffinity(0))


def _summary(dataset: "InductiveDataset", found: "VirtualNeighbors", asked: "Ids", who: str) -> dict[str, Any]:
    from newcomer.data.describe import neighbours_per_predicted_fact

    virtual = found.degrees(len(dataset.entities))
    degrees = dataset.auxiliary.degrees
    triples = found.triples
    inside = {
        part: int(_graph_of(dataset, part).contains(triples.heads, triples.relations, triples.tails).sum())
        for part in ("valid", "test")
    }
    return {
        "dataset": dataset.name,
        "entities": who,
        "asked": len(asked),
        "helped": int((virtual[asked] > 0).sum()),
        "virtual_triples": len(found),
        "by_kind": {"logic": int((found.kinds == 0).sum()), "path": int((found.kinds == 1).sum())},
        "groundings": len(found.grounding_rule),
        "neighbours_per_predicted_fact": {
            "before": neighbours_per_predicted_fact(dataset, degrees),
            "after": neighbours_per_predicted_fact(dataset, degrees + virtual),
        },
        "virtual_triples_in": inside,
    }


def _graph_of(dataset: "InductiveDataset", part: str) -> "Graph":
    from newcomer.graph import Graph

    triples = {"valid": dataset.valid, "test": dataset.test}[part].positives
    return Graph.build(dataset.entities, dataset.relations, triples)


def _print_summary(summary: dict[str, Any], out: Path) -> None:
    ratio = summary["neighbours_per_predicted_fact"]
    rows = [
        ("entities asked about", f"{summary['asked']:,} ({summary['entities']})"),
        (
            "helped by a virtual neighbour",
            f"{summary['helped']:,} ({100 * summary['helped'] / summary['asked']:.1f} %)",
        ),
        ("virtual triples", f"{summary['virtual_triples']:,}"),
        ("  by logic rules, by symmetric paths alone", "{logic:,}, {path:,}".format(**summary["by_kind"])),
        ("groundings (reasons)", f"{summary['groundings']:,}"),
        ("of the virtual triples, in valid", f"{summary['virtual_triples_in']['valid']:,}"),
        ("of the virtual triples, in test", f"{summary['virtual_triples_in']['test']:,}"),
    ]
    if ratio["before"] is not None:
        rows.append(("neighbours per predicted fact", f"{ratio['before']:.2f} -> {ratio['after']:.2f}"))
    console().print(table(f"written to {out}", ("", ""), rows))


@app.command()
def show(rules: RulesArgument, as_json: JsonOption = False) -> None:
    """Say what a rule file holds."""
    import numpy as np

    from newcomer.rules.rule import Kind
    from newcomer.rules.rulefiles import read_rule_table

    found, relations, _ = read_rule_table(rules)
    kinds = {kind.name.lower(): int((found.kinds == kind).sum()) for kind in Kind if (found.kinds == kind).any()}
    confident = {f"{share:g}": int((np.nan_to_num(found.pca_confidence) >= share).sum()) for share in (0.5, 0.8, 0.95)}
    if as_json:
        print_json({"rules": len(found), "relations": len(relations), "kinds": kinds, "pca_at_least": confident})
        return
    rows = [("rules", len(found)), ("relations named", len(relations))]
    rows += [(f"  kind {name}", count) for name, count in kinds.items()]
    rows += [(f"  PCA confidence >= {share}", count) for share, count in confident.items()]
    console().print(table(str(rules), ("", "count"), rows))


@app.command()
def top(
    rules: RulesArgument,
    relation: Annotated[str | None, typer.Option("--relation", help="Only rules that conclude this relation.")] = None,
    count: Annotated[int, typer.Option("--top", min=1, help="How many rules.")] = 20,
    measure: Annotated[str, typer.Option("--measure", help="Confidence to print: pca, standard, smoothed.")] = "pca",
) -> None:
    """Print the best rules in words."""
    from newcomer.errors import unknown_name
    from newcomer.graph import Graph, TripleArray
    from newcomer.rules.neighbors import MEASURES
    from newcomer.rules.rulefiles import read_rule_table

    if measure not in MEASURES:
        raise unknown_name("measure", measure, MEASURES)
    found, relations, entities = read_rule_table(rules)
    if relation is not None:
        if relation not in relations:
            raise unknown_name("relation", relation, relations)
        found = found.where(found.heads % len(relations) == relations.id(relation))
    title = "Best rules" if relation is None else f"Best of {len(found):,} rules for {relation}"
    _print_best(found, Graph.build(entities, relations, TripleArray.empty()), count, measure, title)


@app.command()
@takes_read_options
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A rule file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The rule file to write.")],
    data: Annotated[str, typer.Option("--data", help="The graph whose relations and entities the rules name.")],
    read_as: Annotated[str, typer.Option("--from", help="Format of IN: tsv (ours), amie or anyburl.")] = "tsv",
    write_as: Annotated[str, typer.Option("--to", help="Format of OUT: tsv (ours), amie or anyburl.")] = "tsv",
    force: ForceOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Turn our rule files into AMIE's or AnyBURL's, and back."""
    from newcomer.rules.horn import tail_side
    from newcomer.rules.rulefiles import READERS, write_amie, write_anyburl, write_rules

    for form in (read_as, write_as):
        if form not in READERS:
            from newcomer.errors import unknown_name

            raise unknown_name("rule format", form, READERS)
    _refuse_existing(out, force)
    dataset = load(data, reading).dataset
    names = dataset.relations, dataset.entities
    rules = READERS[read_as](source, *names)
    if write_as == "amie":
        write_amie(rules, out, *names, tail_side(dataset.observed))
    elif write_as == "anyburl":
        write_anyburl(rules, out, *names)
    else:
        write_rules(rules, out, *names)
    typer.echo(f"written {len(rules):,} rules to {out}")


@app.command()
@takes_read_options
def evaluate(
    data: DataArgument,
    rules: RulesOption = None,
    full: Annotated[
        str | None, typer.Option("--full", help="The original graph: also filter by all of its facts.")
    ] = None,
    aggregation: Annotated[str, typer.Option("--aggregation", help="maximum (lexicographic) or noisy-or.")] = "maximum",
    by_frequency: Annotated[
        bool, typer.Option("--frequency/--no-frequency", help="Order ties by how often (relation, tail) occurs.")
    ] = True,
    candidates: Annotated[str, typer.Option("--candidates", help="all or seen entities.")] = "all",
    protocol: Annotated[
        str, typer.Option("--protocol", help="inductive, or refreshed where the rules were mined with auxiliary facts.")
    ] = "inductive",
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Rank the answers of test by rules alone: the baseline of every learned model."""
    from newcomer.data import load_dataset
    from newcomer.errors import unknown_name
    from newcomer.rules.ranking import RuleRanker
    from newcomer.tasks.link_prediction import RankingProtocol, align, evaluate_under

    if protocol not in ("inductive", "refreshed"):
        raise unknown_name("protocol", protocol, ("inductive", "refreshed"))
    filters = ("known",) if full is None else ("known", "full")
    protocols = [RankingProtocol(filter=name, candidates=candidates) for name in filters]
    loaded = load(data, reading)
    dataset = loaded.dataset
    everything = None if full is None else align(load_dataset(full).known(), dataset)
    known = _rules_for(dataset, rules, threads, seed)
    ranker = RuleRanker.build(known, dataset.own_facts, dataset.observed, aggregation, by_frequency, _cores(threads))
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
            "seed": seed,
            "rules": len(known),
            "queries": len(result.ranks),
            "metrics": result.metrics(),
        }
        for result in results
    ]
    if as_json:
        print_json(rows)
        return
    _print_ranking(rows)


def _print_ranking(rows: list[dict[str, Any]]) -> None:
    names = ("mrr", "hits@1", "hits@3", "hits@10")
    cells = [
        (row["filter"], row["metrics"]["mr"], *(f"{100 * row['metrics'][name]:.1f}" for name in names)) for row in rows
    ]
    first = rows[0]
    title = f"{first['dataset']}: {first['rules']:,} rules, {first['queries']:,} queries, {first['protocol']} protocol"
    console().print(table(title, ("filter", "mean rank", "MRR", "Hits@1", "Hits@3", "Hits@10"), cells))
    typer.echo(f"MRR and Hits in percent; candidates: {first['candidates']}; ties at the mean rank")
