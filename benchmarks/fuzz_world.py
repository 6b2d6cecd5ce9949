"""What inputs are drawn from: a town as data sets, small models of it, rule files, a training and a search to resume.

Everything is made once, by the same commands that are to be fuzzed, and never written again.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from newcomer.training.pipeline import Listener

PEOPLE, CITIES, COUNTRIES, NEWCOMERS = 18, 6, 3, 4
RELATIONS = ("t:lives_in", "t:knows", "t:city_in", "t:citizen_of")  # names that RDF can hold, too
SMALL = (
    "model.dim=4",
    "model.layers=1",
    "training.batches=2",
    "training.negatives=4",
    "training.epochs=2",
    "training.validate_every=1",
    "training.validation_rate=50",
    "training.propagation_steps=2",
    "rules.neighbor_min_support=2",
    "rules.min_head_size=1",
    "rules.walks=10",
)
MODELS = {  # the data set and the settings of each
    "folded": ("town", ("--set", "model.propagation=false")),
    "propagated": ("town", ("--set", "model.propagation=true")),
    "network": ("town", ("--preset", "paper-fb15k")),
    "judging": ("labelled", ("--set", "model.propagation=false")),
}
RULE_FILES = {"tsv": "rules.tsv", "amie": "rules.amie.tsv", "anyburl": "rules.anyburl.txt"}
SPACE = "[model.dim]\nchoices = [4, 6]\n\n[training.lr]\nlow = 0.01\nhigh = 0.1\nlog = true\n"
COMPLETE = "complete"

Triple = tuple[str, str, str]
Command = Callable[..., None]


def rows() -> dict[str, list[Triple]]:
    """The parts of the town: of every third person the citizenship is asked in valid, of newcomers in test."""

    def lives(name: str, number: int) -> Triple:
        return name, "t:lives_in", f"t:city{number % CITIES}"

    def citizen(name: str, number: int) -> Triple:
        return name, "t:citizen_of", f"t:land{number % CITIES % COUNTRIES}"

    people, arrived = [f"t:p{i:02}" for i in range(PEOPLE)], [f"t:q{i}" for i in range(NEWCOMERS)]
    places = [(f"t:city{c}", "t:city_in", f"t:land{c % COUNTRIES}") for c in range(CITIES)]
    knows = [(name, "t:knows", people[(i * 5 + 3) % PEOPLE]) for i, name in enumerate(people)]
    known = [citizen(name, i) for i, name in enumerate(people) if i % 3]
    return {
        "train": [*places, *knows, *known, *(lives(name, i) for i, name in enumerate(people))],
        "aux": [
            *(lives(name, i) for i, name in enumerate(arrived)),
            *((name, "t:knows", people[i]) for i, name in enumerate(arrived)),
        ],
        "valid": [citizen(name, i) for i, name in enumerate(people) if i % 3 == 0],
        "test": [citizen(name, i) for i, name in enumerate(arrived)],
    }


def entities() -> list[str]:
    """Everybody and every place."""
    return sorted({name for part in rows().values() for head, _, tail in part for name in (head, tail)})


@dataclass(frozen=True)
class World:
    """The folder that holds it all."""

    folder: Path

    def data(self, name: str = "town") -> Path:
        """A data set."""
        return self.folder / name

    def model(self, name: str) -> Path:
        """A trained model."""
        return self.folder / "models" / name

    def text(self, name: str) -> bytes:
        """The content of one of the files."""
        return (self.folder / name).read_bytes()

    def files(self) -> list[Path]:
        """All files, in their order."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


def set_words() -> list[str]:
    """The settings of a training that takes no time."""
    return [word for change in SMALL for word in ("--set", change)]


def make_world(folder: Path, newcomer: Command, results: Path) -> World:
    """The world in a folder, made by the command line ``newcomer``; one that is there and complete stays.

    ``results`` is a folder of published figures, for the page that is made of such.
    """
    world = World(folder)
    if (folder / COMPLETE).exists():
        return world
    shutil.rmtree(folder, ignore_errors=True)
    _write_data(folder)
    for name, (data, settings) in MODELS.items():
        newcomer("train", folder / data, "--out", world.model(name), *settings, *set_words())
    newcomer("mine", world.data(), "--out", folder / RULE_FILES["tsv"], "--kinds", "all", "--samples", "1000")
    for form in ("amie", "anyburl"):
        convert = ("rules", "convert", folder / RULE_FILES["tsv"], folder / RULE_FILES[form])
        newcomer(*convert, "--data", world.data(), "--to", form)
    (folder / "space.toml").write_text(SPACE, encoding="utf-8")
    search = ("--space", folder / "space.toml", "--trials", "1", "--set", "model.propagation=false", *set_words())
    newcomer("tune", world.data(), "--out", folder / "search", *search)
    _stop_a_training(world)
    _fill_a_store(world, newcomer)
    (folder / "results").mkdir()
    shutil.copy(results / "ablation.json", folder / "results")
    (folder / COMPLETE).touch()
    return world


def _fill_a_store(world: World, newcomer: Command) -> None:
    """A store with newcomers, answers about them, and decisions."""
    facts, model = world.folder / "arrived.tsv", world.model("folded")
    facts.write_text("".join("\t".join(fact) + "\n" for fact in newcomers()), encoding="utf-8")
    place = ("--store", world.folder / "town.db")
    newcomer("add", model, "--facts", facts, *place, "--key", "1")
    newcomer("predict", model, *place, "--relation", "t:citizen_of", "--top", "2", "--record")
    newcomer("answers", *place, "--accept", "1", "--reject", "2")


def _write_data(folder: Path) -> None:
    for name, labelled in (("town", False), ("labelled", True)):
        (folder / name).mkdir(parents=True)
        for role, triples in rows().items():
            false = [(head, relation, "t:land9") for head, relation, _ in triples] if role in ("valid", "test") else []
            lines = ["\t".join((*row, "1") if labelled and false else row) for row in triples]
            lines += ["\t".join((*row, "-1")) for row in false if labelled]
            if labelled and role == "train":
                lines.append("\t".join(("t:city0", "t:city_in", "t:land9")))
            (folder / name / f"{role}.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")


class _Stopped(BaseException):
    """The end of a process, as far as this one can have it."""


class _StopAtOnce(Listener):
    def epoch(self, *_: object) -> None:
        raise _Stopped


def _stop_a_training(world: World) -> None:
    """Leave a training behind that was interrupted after its first epoch."""
    from newcomer.api import train_into
    from newcomer.config import load_preset, with_overrides
    from newcomer.data import load_dataset

    settings = with_overrides(load_preset("default"), ["model.propagation=false", *SMALL])
    try:
        train_into(world.folder / "stopped", load_dataset(world.data()), settings, report=_StopAtOnce())
    except _Stopped:
        return
    raise AssertionError("the training was not interrupted")


def newcomers(names: Sequence[str] = ("t:n0", "t:n1", "t:n2")) -> list[Triple]:
    """Facts of newcomers that no data set has."""
    facts = [[(name, "t:lives_in", f"t:city{i}"), (name, "t:knows", f"t:p{i:02}")] for i, name in enumerate(names)]
    return [("t:n0", "t:knows", "t:n1"), *(fact for own in facts for fact in own)]
