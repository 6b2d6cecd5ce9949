"""Command lines: for each option of each verb a value that is right, or one that is not, and the files it names.

Verbs and options are those of the program itself; one that is new here gets numbers, names and nonsense.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz_files import (
    NASTY_NAMES,
    Triple,
    changed_json,
    changed_toml,
    mutated,
    strange_rows,
    triples_in,
)
from fuzz_folders import copied, damage_model, leave_to_resume, put
from fuzz_stores import NEWCOMERS, STORE_FILES, store, words
from fuzz_world import MODELS, RELATIONS, RULE_FILES, SPACE, World, entities, newcomers, rows, set_words
from newcomer.config import setting_names
from newcomer.config.settings import field_and_type

INTS = ("0", "1", "2", "3", "7", "-1", "1.5", "", "abc", "1_0", "٣", "0x10", " 3", "1e3", "nan", "inf")
HUGE = ("2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 400)
FLOATS = ("0", "0.5", "1", "-1", "-0.0", "nan", "inf", "-inf", "1e400", "1e-320", "", "abc", "0,5", "½")
COSTLY = {"walks", "samples", "trials", "seeds"}  # options that are right to take for ever
SHARES_SET, TRUTHS = ("0", "0.1", "0.5", "1", "50"), ("true", "false", "true", "false", "auto")
WHOLE = {
    *("top", "min_support", "min_head_size", "max_rules", "samples", "threads", "seed", "walks", "max_per_entity"),
    *("trials", "known_facts", "known_facts_seed", "triples", "count", "seeds", "limit", "after", "since", "again"),
    *("accept", "reject", "unsure", "timeout"),
}
SHARES = {"min_head_coverage", "min_confidence", "min_pca", "memory_limit", "time_limit", "rate"}
CHOICES: dict[str, Sequence[str]] = {
    "delimiter": ("tab", "comma", ",", ";", "\t", "pipe", "space"),
    "quote": ('"', "none", "'"),
    "columns": ("head,relation,tail", "tail,relation,head", "head,relation,tail,label", "_,head,relation,tail"),
    "on_bad_line": ("error", "skip"),
    "literals": ("skip", "keep"),
    "unseen": ("subject", "object", "both"),
    "kinds": ("one", "one,two,both", "all", "constant,exists", "three"),
    "who": ("test", "newcomers", "seen", "all"),
    "measure": ("pca", "standard", "smoothed"),
    "preset": ("default", "paper-fb15k"),
    "decoder": ("distmult", "transe", "complex"),
    "protocol": ("inductive", "refreshed", "transductive"),
    "device": ("auto", "cpu", "cuda"),
    "task": ("link-prediction", "triple-classification"),
    "by": ("relation", "class", "facts", "frequency", "linked", "evidence"),
    "thresholds": ("newcomers", "valid", "probabilities"),
    "filter": ("known", "full"),
    "candidates": ("all", "seen"),
    "ties": ("mean", "optimistic", "pessimistic"),
    "metric": ("mrr", "hits@1", "hits@3", "hits@10", "mr", "amri", "accuracy"),
    "on_unknown_relation": ("error", "skip"),
    "aggregation": ("maximum", "noisy-or"),
    "read_as": ("tsv", "amie", "anyburl"),
    "write_as": ("tsv", "amie", "anyburl"),
    "what": ("report", "statistics", "classification", "ablation", "unseen-share"),
    "only": ("fb15k", "sample"),
    "name": ("sample", "fb15k-subject-10", "wn11-subject-1000", "ilpc-small"),
}
LIKELY = {  # how often an option stands in a command line, where that is not seldom
    **{"facts": 0.95, "changes": 0.3, "force": 0.3, "as_json": 0.3, "out": 0.5, "any_data": 0.5, "dry_run": 0.9},
    "resume": 0.25,
}
FORMATS = {"data convert": ("tsv", "tsv.gz", "tsv.zst", "parquet", "nt", "nt.gz")}
PIPED = ("tsv", "csv", "parquet", "nt", "nq", "ttl", "trig")
ENDINGS = {  # of what a verb writes; nothing for a folder
    "predict": (".tsv", ".parquet", ".jsonl"),
    "suggest": (".tsv", ".parquet", ".jsonl"),
    "classify": (".tsv", ".parquet", ".jsonl"),
    "embed": (".tsv", ".parquet", ".npy"),
    "draw": (".png", ".svg", ".pdf"),
    "evaluate": (".json",),
    "mine": (".tsv", ".txt", ".tsv.gz", ".tsv.zst"),
    "rules convert": (".tsv", ".txt", ".tsv.gz"),
    "data convert": ("", ".tsv", ".csv", ".parquet", ".nt", ".tsv.gz", ".nt.zst"),
    "describe": (".png",),
    "export": (".nq", ".tsv", ".parquet", ".jsonl"),
}
FILE_ENDINGS = ("tsv", "tsv", "csv", "txt", "parquet", "nt", "nq", "ttl", "trig")
STRANGE_NAMES = ("é", "😀", "a b", "\u202e", "-x", "a\nb", "~x", "~root", "[x]", "\udcff", "%s", "it's")
STRANGE_PLACES = ("", " ", ".", "-", "facts.tsv/x", "nowhere/deep/x", "/proc/newcomer", "~nobody/x", "x" * 300, "..")


@dataclass
class Case:
    """One command line: its words, what is piped into it, and where it may write."""

    verb: str
    folder: Path
    words: list[str] = field(default_factory=list)
    piped: bytes = b""
    outputs: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)  # files that any command may leave where it opened a store
    damaged_store: bool = False


@dataclass
class Writer:
    """Draws one case; the files it names are put into its folder.

    Of files, of options and of folders of models a share is wrong: mostly of one of these kinds alone, so that what is
    wrong comes far.
    """

    rng: Random
    world: World
    case: Case
    wrong: dict[str, float]
    over_store: bool = False  # newcomers come from a store where they could come from a file
    count: int = 0

    def is_wrong(self, kind: str) -> bool:
        return self.rng.random() < self.wrong[kind]

    def fresh(self, ending: str) -> str:
        """A name for a file that is not there yet."""
        self.count += 1
        stem = f"{self.rng.choice(STRANGE_NAMES)}{self.count}" if self.is_wrong("names") else f"file{self.count}"
        return f"./{stem}{ending}" if stem.startswith("-") else f"{stem}{ending}"

    def file(self, content: bytes, ending: str = ".tsv") -> str:
        """A new file with this content, or the path of what is no such file."""
        name = self.fresh(ending)
        if self.is_wrong("paths"):
            return self.rng.choice(("missing.tsv", "", ".", name, "/proc/self/mem", "x" * 300, str(self.world.data())))
        put(self.case.folder / name, content)
        return name

    def rows(self, around: Sequence[Triple]) -> list[tuple[str, ...]]:
        chosen = list(around) if self.rng.random() < 0.5 else sorted(self.rng.sample(list(around), min(4, len(around))))
        return strange_rows(self.rng, chosen) if self.is_wrong("files") else list(chosen)

    def content(self, around: Sequence[Triple], form: str) -> bytes:
        """Triples in a format, or what was meant to be."""
        written = triples_in(self.rng, form, self.rows(around))
        return mutated(self.rng, written) if self.is_wrong("files") else written

    def triples(self, around: Sequence[Triple]) -> str:
        """A file of triples."""
        form = self.rng.choice(FILE_ENDINGS)
        packed = self.rng.choice(("", "", "", "", ".gz", ".zst"))
        return self.file(self.content(around, form), f".{form}{packed}")

    def facts(self) -> str:
        """Newcomers' facts: a file, or a pipe."""
        if self.rng.random() < 0.25:
            form = self.rng.choice(PIPED) if self.is_wrong("options") else "tsv"
            self.case.piped = self.content(newcomers(), form)
            return "-"
        return self.triples(newcomers())

    def questions(self) -> str:
        asked = [(head, relation, "?") for head, relation, _ in newcomers()] + [("?", "t:knows", "t:p03")]
        return self.triples(asked)

    def data(self) -> str:
        """A data set by its name, a folder or a file."""
        if self.is_wrong("names"):
            return self.rng.choice((*NASTY_NAMES, "sample", "fb15k", "/proc", str(self.world.folder)))
        draw = self.rng.random()
        if draw < 0.6 and not self.wrong["files"]:
            return str(self.world.data(self.rng.choice(("town", "town", "labelled"))))
        if draw < 0.7:
            return self.triples(rows()["train"])
        folder = self.fresh("")
        names = {role: f"{role}.tsv" for role in rows()}
        if self.is_wrong("files"):
            role = self.rng.choice(list(names))
            names[role] = self.rng.choice(
                ("train.tsv", "dataset.json", "x", "train2id.txt", f"{role}.txt.gz", "aux.nt")
            )
        changed = self.rng.choice(list(names)) if self.is_wrong("files") else None
        for role, name in names.items():
            content = self.content(rows()[role], "tsv") if role == changed else self.world.text(f"town/{role}.tsv")
            put(self.case.folder / folder / name, content)
        return folder

    def run(self) -> str:
        """A trained model; what an evaluation writes into it goes into a copy."""
        names = list(MODELS)
        source = self.world.model(self.rng.choice(names[:3] if self.case.verb == "compare" else names))
        damaged = self.is_wrong("models")
        if not damaged and self.case.verb != "evaluate":
            return str(source) if not self.is_wrong("paths") else self.rng.choice(("nowhere", ".", "", "facts.tsv"))
        name = self.fresh("")
        folder = copied(source, self.case.folder / name)
        if damaged:
            damage_model(self.rng, folder, [self.world.model(one) for one in names])
        if self.case.verb == "evaluate":
            self.case.outputs += [f"{name}/result{task}.json" for task in ("", *_TASKS)]
        return name

    def store(self) -> str:
        """A store of newcomers."""
        path = self.case.folder / self.fresh(".db")
        self.case.stores += [f"{path.name}{ending}" for ending in STORE_FILES]
        damaged = self.is_wrong("files")
        self.case.damaged_store |= damaged
        return store(self.rng, self.world, path, damaged, self.is_wrong("paths"))

    def rules(self) -> str:
        """A rule file, or a model."""
        if self.case.verb in ("rules show", "rules top", "rules convert") and self.rng.random() < 0.3:
            return self.run()
        form = self.rng.choice(list(RULE_FILES))
        if "--from" in self.case.words:  # stands before
            form = self.case.words[self.case.words.index("--from") + 1]
        elif not self.is_wrong("options"):
            form = "tsv"
        content = self.world.text(RULE_FILES.get(form, "rules.tsv"))
        lines = content.split(b"\n")
        content = b"\n".join([lines[0], *sorted(self.rng.sample(lines[1:], min(12, len(lines) - 1)))])
        return self.file(mutated(self.rng, content) if self.is_wrong("files") else content, ".tsv")

    def config(self) -> str:
        content = self.world.model(self.rng.choice(list(MODELS))).joinpath("config.toml").read_bytes()
        if self.is_wrong("files"):
            content = changed_toml(self.rng, content, setting_names())
        return self.file(content, ".toml")

    def space(self) -> str:
        if self.rng.random() < 0.3:
            return self.rng.choice(("paper", "wide", "nowhere", ""))
        content = SPACE.encode()
        if self.is_wrong("files"):
            content = changed_toml(self.rng, content, setting_names()) if self.rng.random() < 0.5 else content
            content = mutated(self.rng, content)
        return self.file(content, ".toml")

    def results(self) -> str:
        content = self.world.text("results/ablation.json")
        if self.is_wrong("files"):
            content = changed_json(self.rng, content) if self.rng.random() < 0.7 else mutated(self.rng, content)
        put(self.case.folder / "results" / self.rng.choice(("ablation.json",) * 5 + ("x.json",)), content)
        self.case.outputs.append("results")
        return "results"

    def names_file(self) -> str:
        names = self.rng.sample(entities(), 3)
        if self.is_wrong("files"):
            names[1] = self.rng.choice(NASTY_NAMES)
        content = ("\n".join(names) + "\n").encode("utf-8", "surrogatepass")
        return self.file(mutated(self.rng, content) if self.is_wrong("files") else content, ".txt")

    def entity(self) -> str:
        if self.is_wrong("options"):
            return _sayable(self.rng.choice(NASTY_NAMES))
        return self.rng.choice((*entities(), "t:n0", "t:n1"))

    def relation(self) -> str:
        return _sayable(self.rng.choice(NASTY_NAMES)) if self.is_wrong("options") else self.rng.choice(RELATIONS)

    def change(self) -> str:
        """A change of a setting: of those that cost time only what is cheap or wrong."""
        name = self.rng.choice(setting_names())
        if self.is_wrong("options"):
            names = (name, name[:-1], name.partition(".")[2], "", "x.y", "model", "é", "a.b.c", ".", "=")
            values = (
                "",
                "0",
                "1",
                "true",
                "none",
                "nan",
                "inf",
                "-1",
                "1e400",
                "é",
                "[",
                "[one",
                "one,one",
                "''",
                "0x1",
            )
            return f"{self.rng.choice(names)}{self.rng.choice(('=', '=', '', ' = '))}{self.rng.choice(values)}"
        one, kind = field_and_type(name)
        if one.metadata["choices"]:
            return f"{name}={self.rng.choice(one.metadata['choices'])}"
        whole = kind in (int, int | None)
        return f"{name}={self.rng.choice(('1', '2', '3') if whole else SHARES_SET if kind is float else TRUTHS)}"

    def out(self) -> str:
        """Where to write: a new place, or one that is taken or impossible."""
        ending = self.rng.choice(ENDINGS.get(self.case.verb, ("",)))
        place = self.fresh(ending)
        if self.is_wrong("outputs"):
            place = self.rng.choice((*STRANGE_PLACES, place + ".xyz", f"deep/er/{place}", self._taken(ending)))
        self.case.outputs.append(place)
        return place

    def _taken(self, ending: str) -> str:
        """Something that is there already."""
        name = self.fresh(ending)
        kind = self.rng.randrange(5)
        path = self.case.folder / name
        if kind == 0:
            put(path, b"precious")
        elif kind == 1:
            put(path / "precious.txt", b"precious")
        elif kind == 2:
            path.mkdir()
        elif kind == 3:
            copied(self.world.model("folded"), path)
        else:
            copied(self.world.folder / "stopped.training", path.with_name(f"{name}.training"))
        return name

    def number(self, name: str) -> str:
        """A number for an option."""
        if not self.is_wrong("options"):
            return self.rng.choice(("0.1", "0.5", "1")) if name in SHARES else self.rng.choice(("1", "2", "3", "5"))
        pool: Sequence[str] = FLOATS if name in SHARES else INTS
        return self.rng.choice(pool if name in COSTLY else [*pool, *HUGE])

    def value(self, name: str) -> str:
        """What one option of this verb is given."""
        verb = self.case.verb
        made: dict[str, Callable[[], str]] = {
            **dict.fromkeys(("data", "graph", "source", "full", "full_graph"), self.data),
            **dict.fromkeys(("run", "runs"), self.run),
            **dict.fromkeys(("relation", "relations"), self.relation),
            **dict.fromkeys(("entity", "entities"), self.names_file if verb == "enrich" else self.entity),
            **dict.fromkeys(("out", "plot", "ranks", "page"), self.out),
            "newcomers": self.names_file,
            "facts": self.facts,
            "triples": lambda: self.triples(rows()["test"]),
            "file": self.questions,
            "rules": self.rules,
            "config": self.config,
            "space": self.space,
            "results": self.results,
            "data_root": lambda: self.rng.choice((str(self.world.folder), "nowhere", "", "facts.tsv")),
            "changes": self.change,
            "store": self.store,
        }
        own = words(self.rng, name, self.is_wrong("options"))
        if own is not None:
            return own
        if verb in STORED:
            made |= {"entity": lambda: self.rng.choice((*NEWCOMERS, *entities())), "who": lambda: "ann"}
            made |= {"source": lambda: "a letter", "what": lambda: self.rng.choice(("facts", "answers", "both"))}
            made["facts"] = self.facts if verb in ("add", "remove") else lambda: self.rng.choice(NEWCOMERS)
            if name in made and not self.is_wrong("options"):
                return made[name]()
        if verb in ("enrich", "rules evaluate") and name == "facts":
            made["facts"] = lambda: self.rng.choice(("own", "known"))
        if verb == "split" and name == "triples":
            return self.number(name)
        if verb == "rules convert" and name == "source":
            return self.rules()
        if verb == "rules convert" and name == "data":
            return str(self.world.data())
        choices = FORMATS.get(verb, PIPED) if name == "file_format" else CHOICES.get(name)
        if name in WHOLE | SHARES and name not in made:
            return self.number(name)
        if choices is not None:
            return (
                self.rng.choice((*NASTY_NAMES, "x", "tabs")) if self.is_wrong("options") else self.rng.choice(choices)
            )
        return made.get(name, lambda: self.rng.choice((*INTS, *FLOATS, *NASTY_NAMES)))()


STORED = ("add", "remove", "list", "answers", "export", "push", "grow")
_TASKS = ("-link-prediction", "-triple-classification")
KINDS = ("files", "options", "models", "outputs", "paths", "names")
RIGHT = dict.fromkeys(KINDS, 0.0)


def wrong_shares(rng: Random) -> dict[str, float]:
    """How much of each kind is wrong: mostly one kind alone."""
    if rng.random() < 0.15:
        return dict.fromkeys(KINDS, 0.3)
    return {
        **RIGHT,
        rng.choice(("files", "files", "files", "options", "options", "models", "models", "outputs", *KINDS)): 0.6,
    }


def draw_case(rng: Random, world: World, verb: str, parameters: Sequence[Any], folder: Path) -> Case:
    """A command line of this verb."""
    writer = Writer(rng, world, Case(verb, folder), wrong_shares(rng), over_store=rng.random() < 0.3)
    case = writer.case
    options = [one for one in parameters if one.opts[0].startswith("-")]
    arguments = [one for one in parameters if not one.opts[0].startswith("-")]
    for one in options:
        case.words += _words_of(writer, one)
    if verb in ("train", "tune"):
        case.words = [*set_words(), "--set", f"model.propagation={rng.choice(('true', 'false'))}", *case.words]
        if "--trials" not in case.words and verb == "tune":
            case.words += ["--trials", "1"]
        if "--resume" in case.words:
            leave_to_resume(writer)
    if verb == "reproduce" and "--dry-run" not in case.words and rng.random() < 0.95:
        case.words.append("--dry-run")
    if "--format" in case.words and verb not in FORMATS and "-" not in case.words:
        case.piped = writer.content(newcomers(), "tsv")
    placed = [word for one in arguments for word in _values_of(writer, one)]
    if placed and rng.random() < 0.01:
        placed.pop()
    case.words = [*verb.split(), *case.words, *(["--"] if rng.random() < 0.9 else []), *map(_sayable, placed)]
    if rng.random() < 0.01:
        case.words.insert(rng.randrange(len(case.words)), rng.choice(("--help", "--nonsense", "-x", "--", "extra", "")))
    return case


def _values_of(writer: Writer, one: Any) -> Iterator[str]:
    for _ in range(1 if one.nargs == 1 else writer.rng.choice((1, 2, 2, 2, 3))):
        yield writer.value(one.name)


def _words_of(writer: Writer, one: Any) -> Iterator[str]:
    """An option as it stands in the command line: mostly not at all, unless it is needed."""
    words = writer.case.words
    wanted = 0.98 if one.required else LIKELY.get(one.name, 0.05)
    if one.name in ("data", "relations", "config", "rules", "triples", "entities"):
        wanted = max(wanted, 0.35)
    if writer.case.verb in ("evaluate", "compare") and one.name == "data":
        wanted = 0.9
    if one.name == "plot":
        wanted = 0.05
    if one.name in ("facts", "store", "record") and not one.required and writer.case.verb not in STORED:
        wanted = 0.9 if writer.over_store == (one.name != "facts") else 0.02
        wanted = 0.3 if one.name == "facts" and writer.case.verb in ("enrich", "rules evaluate") else wanted
    if (writer.case.verb, one.name) in (("list", "facts"), ("remove", "facts")):
        wanted = 0.1
    if (one.name == "as_json" and "--out" in words) or (one.name == "out" and "--json" in words):
        wanted = 0.02
    if one.name == "heads" and "--relation" in words:
        wanted = 0.3
    while writer.rng.random() < wanted:
        if one.is_flag:
            yield writer.rng.choice((*one.opts, *one.secondary_opts))
        else:
            yield from (one.opts[0], _sayable(writer.value(one.name)))
        if not one.multiple and writer.rng.random() < 0.97:
            return
        wanted = 0.3


def _sayable(word: str) -> str:
    """A word as a shell can pass it: any bytes but 0."""
    return word.replace("\x00", "").encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
