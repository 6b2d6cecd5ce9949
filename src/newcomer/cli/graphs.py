"""``newcomer describe`` and ``newcomer split``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.common import check_folder_of, load, print_json, print_table, refuse_input, working
from newcomer.cli.options import takes_read_options
from newcomer.errors import OptionError

if TYPE_CHECKING:
    from newcomer.data import ReadOptions, SplitRule
    from newcomer.data.describe import Description
    from newcomer.graph import Ids, InductiveDataset


@takes_read_options
def describe(
    data: options.DataArgument,
    as_json: options.Json = False,
    top: Annotated[int, Option(min=0, help="How many relations to list.")] = 15,
    plot: Annotated[Path | None, Option(help="Draw degrees and relation frequencies (PNG).")] = None,
    *,
    reading: "ReadOptions",
) -> None:
    """Describe a graph or data set: sizes, degrees, relations, newcomers."""
    from newcomer.data.describe import describe as describe_dataset

    if plot is not None:
        check_folder_of(plot)
    loaded = load(data, reading)
    description = describe_dataset(loaded)
    if plot is not None:
        from newcomer.data.plots import plot_description

        plot_description(loaded.dataset, plot)
    if as_json:
        print_json(description.to_json())
    else:
        _print_description(description, top)


def _print_description(d: "Description", top: int) -> None:
    roles = [role for role, count in d.triples.items() if count]
    met = {"repeated rows": d.duplicates, "self loops": d.self_loops}
    if any(d.literals.values()):
        met["literals left out"] = d.literals
    rows = [(role, d.triples[role], *(counts.get(role, 0) for counts in met.values())) for role in roles]
    print_table(d.name, ("part", "triples", *met), rows)
    counts = [
        ("entities", d.entities),
        ("  seen (in train)", d.seen),
        ("  newcomers (not in train, with known facts)", d.newcomers),
        ("    asked about in test", d.test_newcomers),
        ("  without any known fact", d.without_facts),
        ("relations", d.relations),
        ("  never in train", d.relations_never_observed),
    ]
    print_table("Entities and relations", ("", "count"), [row for row in counts if row[1] or row[0][0] != " "])
    groups = [("seen", d.seen_degrees), ("newcomers", d.newcomer_degrees)]
    degrees = [(n, g.entities, g.mean, g.median, g.largest, *g.bands.values()) for n, g in groups if g.entities]
    bands = tuple(d.seen_degrees.bands)
    print_table("Facts per entity", ("", "entities", "mean", "median", "largest", *bands), degrees)
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in d.relation_kinds.items() if count and kind != "-")
    shown = d.relation_table[:top]
    listed = [(r.name, r.triples, r.tails_per_head, r.heads_per_tail, r.kind) for r in shown]
    if listed:
        titles = ("relation", "triples", "tails a head", "heads a tail", "class")
        print_table(f"Most frequent relations of train ({kinds})", titles, listed)
    _print_test(d)


def _print_test(d: "Description") -> None:
    if not d.test_triples_asked:
        return
    share = 100 * d.test_pairs_linked / d.test_triples_asked
    linked = f"{d.test_pairs_linked:,} of {d.test_triples_asked:,} ({share:.1f} %)"
    typer.echo(f"test pairs already linked by a known fact: {linked}")
    if d.test_triples_with_such_relations:
        typer.echo(f"test triples whose relation never occurs in train: {d.test_triples_with_such_relations:,}")
    if d.neighbours_per_predicted_fact is not None:
        typer.echo(f"known facts of a newcomer for each fact asked of it: {d.neighbours_per_predicted_fact:.2f}")


@takes_read_options
def split(
    graph: Annotated[str, Argument(metavar="GRAPH", help="A graph: a folder with train and test, a file, or a name.")],
    out: Annotated[Path, Argument(metavar="OUT", help="The folder to write.")],
    unseen: Annotated[
        str, Option(help="Which ends of the drawn triples become newcomers: subject, object or both.")
    ] = "subject",
    rate: Annotated[float | None, Option(help="Percent of the test triples to draw [default: 10].")] = None,
    triples: Annotated[int | None, Option(help="Number of test triples to draw.")] = None,
    newcomers: Annotated[
        Path | None, Option(help="A file with one newcomer's name a line, instead of drawing.")
    ] = None,
    keep_test: Annotated[
        bool,
        Option(
            "--keep-test", help="Train on test triples that are not drawn; else they are lost, as in published sets."
        ),
    ] = False,
    seed: Annotated[int, Option(min=0, help="Seed of the drawing.")] = 0,
    file_format: Annotated[str, Option("--format", help="tsv, tsv.gz, tsv.zst, parquet, nt or nt.gz.")] = "tsv",
    force: options.Force = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Cut an honest "new entities arrive" data set out of a graph."""
    from newcomer.data import SplitRule, locate, split_graph, write_dataset
    from newcomer.data.split import read_names

    if newcomers is not None and (rate is not None or triples is not None):
        raise OptionError("--newcomers names them itself; leave out --rate and --triples")
    rule = SplitRule(unseen, rate, triples, seed, keep_test)
    refuse_input(out, locate(graph))
    loaded = load(graph, reading)
    chosen = None if newcomers is None else read_names(newcomers, loaded.dataset.entities)
    with working("splitting"):
        result = split_graph(loaded.dataset, rule, chosen)
        made_by = {"verb": "split", "graph": loaded.dataset.name, **_how(rule, chosen), "seed": seed}
        write_dataset(result, out, file_format, made_by, force)
    _print_split(result, out, loaded.dataset)


def _how(rule: "SplitRule", chosen: "Ids | None") -> dict[str, object]:
    kept = {"keep_test": True} if rule.keep_test else {}
    if chosen is not None:
        return {"newcomers_given": len(chosen), **kept}
    drawn = {"triples": rule.triples} if rule.triples is not None else {"rate": rule.rate or 10}
    return {"unseen": rule.unseen, **drawn, **kept}


def _print_split(dataset: "InductiveDataset", folder: Path, source: "InductiveDataset") -> None:
    from newcomer.data.dataset import parts_of

    rows = [(role, len(triples)) for role, triples in parts_of(dataset).items()]
    print_table(f"written to {folder}", ("part", "triples"), rows)
    seen, arrived, asked = int(dataset.is_seen.sum()), len(dataset.newcomers), len(dataset.test_newcomers)
    typer.echo(f"{seen:,} seen entities, {arrived:,} newcomers, {asked:,} of them asked about in test")
    false = sum(len(part) - len(part.positives) for part in (source.valid, source.test))
    if false:
        typer.echo(f"{false:,} triples labelled false in valid and test were left out: a split asks for true ones only")
    if len(source.test.positives) == 0:
        typer.echo("the graph has no test file: 10 % of its triples were held out as test and 5 % as valid, by seed")
