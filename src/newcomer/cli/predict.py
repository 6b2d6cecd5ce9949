"""``newcomer predict``, ``suggest``, ``explain``, ``embed`` and ``similar``: a trained model asked about newcomers."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli.common import ForceOption, console, table, takes_read_options, working

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.predictor import Answer, Because, Predictor, Suggestion

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")]
FactsOption = Annotated[
    str | None,
    typer.Option("--facts", help="A file of newcomers' facts in any format we read, or `-`: TSV from a pipe."),
]
EntityOption = Annotated[
    list[str] | None,
    typer.Option("--entity", help="Whom to ask about; may be repeated [default: all newcomers of --facts]."),
]
RelationOption = Annotated[str, typer.Option("--relation", help="The relation to complete.")]
HeadsOption = Annotated[bool, typer.Option("--heads", help="Ask for heads, (?, relation, entity), instead of tails.")]
TopOption = Annotated[int, typer.Option("--top", help="How many of the best to give.")]
UnknownOption = Annotated[
    str, typer.Option("--on-unknown-relation", help="A fact whose relation the model lacks: `error` or `skip`.")
]
LinesOption = Annotated[bool, typer.Option("--json", help="Print a line of JSON an answer.")]

REASONS = 5  # groundings that are told of an answer


@takes_read_options
def predict(
    run: RunArgument,
    relation: RelationOption,
    facts: FactsOption = None,
    entity: EntityOption = None,
    heads: HeadsOption = False,
    top: TopOption = 10,
    on_unknown_relation: UnknownOption = "error",
    as_json: LinesOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """The likely answers to (entity, relation, ?), each with its best reason."""
    model, asked = _ready(run, facts, entity, on_unknown_relation, reading)
    for name in asked:
        answers = _answers(model, name, relation, heads, top)
        question = f"{relation}(?, {name})" if heads else f"{relation}({name}, ?)"
        if as_json:
            for rank, answer in enumerate(answers, start=1):
                _line(
                    {"entity": name, "relation": relation, "asked": "head" if heads else "tail", "rank": rank}, answer
                )
        else:
            rows = [(a.entity, f"{a.truth:.2f}", str(a.because)) for a in answers]
            console().print(table(question, ("answer", "truth", "reason"), rows))


@takes_read_options
def suggest(
    run: RunArgument,
    facts: FactsOption = None,
    entity: EntityOption = None,
    top: TopOption = 20,
    on_unknown_relation: UnknownOption = "error",
    as_json: LinesOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """The facts that are most likely missing, over all relations, each with its best reason."""
    model, asked = _ready(run, facts, entity, on_unknown_relation, reading)
    for name in asked:
        found = model.suggest(name, top)
        if as_json:
            for rank, one in enumerate(found, start=1):
                _line({"entity": name, "rank": rank}, one)
        else:
            rows = [(_written(one.fact), f"{one.truth:.2f}", str(one.because)) for one in found]
            console().print(table(f"likely missing of {name}", ("fact", "truth", "reason"), rows))


@takes_read_options
def explain(
    run: RunArgument,
    relation: RelationOption,
    facts: FactsOption = None,
    entity: EntityOption = None,
    heads: HeadsOption = False,
    top: TopOption = 3,
    on_unknown_relation: UnknownOption = "error",
    *,
    reading: "ReadOptions",
) -> None:
    """The best answers in words: rules with their premises, the facts that weighed most, and the one that decides."""
    model, asked = _ready(run, facts, entity, on_unknown_relation, reading)
    for name in asked:
        answers = _answers(model, name, relation, heads, top)
        for answer in answers:
            ends = (answer.entity, name) if heads else (name, answer.entity)
            typer.echo(f"{relation}({ends[0]}, {ends[1]}), truth {answer.truth:.2f}")
            for sentence in _sentences(answer.because, top):
                typer.echo(f"  {sentence}")


def _answers(model: "Predictor", entity: str, relation: str, heads: bool, top: int) -> "list[Answer]":
    return model.heads(relation, entity, top) if heads else model.tails(entity, relation, top)


def _sentences(because: "Because", top: int) -> Iterator[str]:
    for grounding in because.groundings[:REASONS]:
        yield f"because {grounding}"
    if len(because) > REASONS:
        yield f"and by {len(because) - REASONS:,} weaker groundings"
    if not because.groundings:
        yield "no rule infers it"
    weighed = [f"{_written(one.fact)} ({one.share:.0%})" for one in because.weighed[:3]]
    if weighed:
        yield f"the network looked most at {', '.join(weighed)}"
    if because.without is not None:
        yield f"without {_written(because.without)} it would not be among the first {top}"


@takes_read_options
def embed(
    run: RunArgument,
    out: Annotated[Path, typer.Option("--out", help="The file to write: .parquet, .tsv or .npy (names beside it).")],
    facts: FactsOption = None,
    entity: EntityOption = None,
    relation: Annotated[str | None, typer.Option("--relation", help="As a question about this relation asks.")] = None,
    on_unknown_relation: UnknownOption = "error",
    force: ForceOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Write the vectors of newcomers (or of any entities named)."""
    import numpy as np

    from newcomer.errors import OptionError
    from newcomer.files import exists_already

    if out.suffix.lower() not in (".parquet", ".tsv", ".npy"):
        raise OptionError(f"{out} ends in {out.suffix!r}; vectors are written as .parquet, .tsv or .npy")
    if out.exists() and not force:
        raise exists_already(out)
    model, asked = _ready(run, facts, entity, on_unknown_relation, reading)
    vectors = np.stack([model.embed(name, relation) for name in asked])
    _write_vectors(out, asked, vectors)
    typer.echo(f"written {len(asked):,} vectors of {vectors.shape[1]} numbers to {out}")


def _write_vectors(out: Path, names: list[str], vectors: Any) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from newcomer.files import fresh_file

    ending = out.suffix.lower()
    with fresh_file(out) as partial, partial.open("wb") as file:
        if ending == ".npy":
            np.save(file, vectors)
        elif ending == ".parquet":
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
            pq.write_table(pa.table({"entity": pa.array(names), "vector": column}), file)
        else:
            rows = ("\t".join([name, *(f"{x:.9g}" for x in row)]) for name, row in zip(names, vectors, strict=True))
            file.write(("\n".join(rows) + "\n").encode())
    if ending == ".npy":
        with fresh_file(out.with_suffix(".names.txt")) as partial:
            partial.write_text("\n".join(names) + "\n", encoding="utf-8")


@takes_read_options
def similar(
    run: RunArgument,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts.")],
    facts: FactsOption = None,
    top: TopOption = 10,
    on_unknown_relation: UnknownOption = "error",
    *,
    reading: "ReadOptions",
) -> None:
    """The entities whose vectors point most nearly the same way."""
    model, _ = _ready(run, facts, [entity], on_unknown_relation, reading)
    console().print(table(f"most like {entity}", ("entity", "cosine"), model.similar(entity, top)))


def _ready(
    run: Path, facts: str | None, entities: list[str] | None, on_unknown: str, reading: "ReadOptions"
) -> tuple["Predictor", list[str]]:
    """The model with the newcomers of the file, and whom to ask about."""
    from newcomer.errors import OptionError
    from newcomer.predictor import load

    with working("loading the model"):
        model = load(run)
    arrived: list[str] = []
    if facts is not None:
        before = set(model.newcomers)
        rows = _facts(facts, reading)
        added = model.add(rows, on_unknown_relation=on_unknown)
        mentioned = {name for head, _, tail in rows for name in (head, tail)}
        arrived = [
            name for name in model.newcomers if name in mentioned and (name in added.newcomers or name in before)
        ]
        if added.skipped:
            typer.echo(
                f"newcomer: {facts}: skipped {added.skipped:,} facts with relations unknown to the model", err=True
            )
    asked = entities or arrived
    if not asked:
        raise OptionError("there is nobody to ask about; give newcomers with --facts, or names with --entity")
    return model, asked


def _facts(source: str, reading: "ReadOptions") -> list[tuple[str, str, str]]:
    from newcomer.data import read_graph
    from newcomer.errors import InputError

    if source != "-":
        return _named(read_graph(Path(source), reading))
    with tempfile.TemporaryDirectory() as folder:
        piped = Path(folder) / "standard-input.tsv"
        piped.write_bytes(sys.stdin.buffer.read())
        try:
            return _named(read_graph(piped, reading))
        except InputError as error:
            raise InputError("standard input", error.problem, error.line, error.hint) from None


def _named(graph: Any) -> list[tuple[str, str, str]]:
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.triples.rows.tolist()]


def _written(fact: tuple[str, str, str]) -> str:
    head, relation, tail = fact
    return f"{relation}({head}, {tail})"


def _line(about: dict[str, Any], answer: "Answer | Suggestion") -> None:
    """One answer as a line of JSON, with every rule that infers it."""
    from newcomer.predictor import Suggestion

    found = {"fact": list(answer.fact)} if isinstance(answer, Suggestion) else {"answer": answer.entity}
    because = [
        {"rule": g.rule, "confidence": g.confidence, "support": g.support, "premises": [list(p) for p in g.premises]}
        for g in answer.because.groundings
    ]
    figures = {"score": answer.score, "truth": answer.truth, "because": because}
    typer.echo(json.dumps({**about, **found, **figures}, ensure_ascii=False))
