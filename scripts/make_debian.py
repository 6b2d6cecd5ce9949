"""Make a knowledge graph of Debian packages out of the package lists that every Debian machine has.

    python scripts/make_debian.py --out debian.tsv                  all that apt knows (after apt-get update)
    python scripts/make_debian.py --installed --out installed.tsv   what dpkg says is installed
    python scripts/make_debian.py Packages.xz --out debian.tsv      lists of one's own: plain, gz, xz, lz4 or zst

Beside the facts stands a file that says which lists they come from. Same lists and options, same bytes.

* ``depends_on`` (Depends and Pre-Depends), ``recommends`` and ``suggests`` lead to the first of the alternatives
  ``a | b``, which Debian means as the usual one; the others are facts of ``accepts_alternative``.
* Qualifiers (``python3:any``) and versions (``libc6 (>= 2.34)``) are left out: entities are packages, not their builds.
  ``conflicts_with`` (Conflicts and Breaks) takes only conflicts with every version: those with some nearly always mean
  versions of the past, and such a pair is often installed together.
* ``provides`` leaves out a name that one package provides and none in the lists asks for: it would tell nothing.
  Virtual packages are named like packages, as in the lists.
* A tag of debtags, as in ``role::program``, is a fact of the relation that its facet names: ``role``. The lists of apt
  have tags, that of dpkg has none.
* Every other kind of entity has a prefix, as in ``section:libs``, ``source:openssl``, ``maintainer:Jane Doe``. Mail
  addresses are left out.
* Of a package in several versions the newest counts; the same version for several architectures is one package.
* ``--max-packages`` draws packages, each with all that it depends on, as if they were installed. Their facts may lead
  to packages that were not drawn.
"""

import argparse
import datetime
import hashlib
import lzma
import random
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from newcomer.data.triples import check_written_format, write_triples
from newcomer.errors import InputError, NewcomerError, OptionError, shown
from newcomer.files import exists_already, fresh_file, must_be_file, open_bytes
from newcomer.graph import TripleArray, Vocabulary

LISTS, STATUS = Path("/var/lib/apt/lists"), Path("/var/lib/dpkg/status")
LIST_ENDINGS = ("", ".gz", ".xz", ".lz4", ".zst")
XZ, LZ4 = b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18"

RELATIONSHIPS = {
    "depends": "depends_on", "pre-depends": "depends_on", "recommends": "recommends", "suggests": "suggests",
    "provides": "provides", "conflicts": "conflicts_with", "breaks": "conflicts_with",
}  # fmt: skip
ALTERNATIVE = "accepts_alternative"
PROPERTIES = {
    "section": ("in_section", "section:"), "priority": ("has_priority", "priority:"),
    "architecture": ("architecture", "architecture:"), "multi-arch": ("multi_arch", "multi-arch:"),
}  # fmt: skip
FIELDS = {*RELATIONSHIPS, *PROPERTIES, "package", "version", "status", "source", "maintainer", "tag"}
NAME = r"[A-Za-z0-9][\w+.-]*"
# A name, then what may qualify it: an architecture, a version, and (in lists of sources) architectures and profiles.
TARGET = re.compile(rf"({NAME})(?::[\w-]+)?\s*(\([^()]*\))?\s*(?:\[[^]]*\])?\s*(?:<[^>]*>\s*)*", re.ASCII)
VERSION_PARTS = re.compile(r"([^0-9]*)([0-9]*)")

Fact = tuple[str, str, str]
VersionKey = tuple[Any, ...]


@dataclass(frozen=True)
class Paragraph:
    """The fields of one package that facts are made of, by lower-case name, each with its value and line."""

    path: Path
    line: int
    fields: dict[str, tuple[str, int]]

    def value(self, name: str) -> str:
        """A field's value; nothing where it is missing."""
        return self.fields.get(name, ("", 0))[0]

    def fault(self, name: str, problem: str, hint: str) -> InputError:
        """The error for a field that does not read."""
        return InputError(self.path, problem, self.fields.get(name, ("", self.line))[1], hint)


@dataclass
class Package:
    """A package in its newest version."""

    version: VersionKey
    facts: set[Fact] = field(default_factory=set)


def content(path: Path) -> bytes:
    """The unpacked bytes of a list; how it is packed is seen from its beginning."""
    must_be_file(path)
    with open_bytes(path) as stream:
        raw = bytes(stream.read())
    try:
        if raw.startswith(XZ):
            return lzma.decompress(raw)
        if raw.startswith(LZ4):
            return bytes(pa.input_stream(pa.py_buffer(raw), compression="lz4").read())
    except (lzma.LZMAError, OSError):
        raise InputError(path, "is not a whole compressed file", hint="copy or download it again") from None
    return raw


def paragraphs(path: Path) -> Iterator[Paragraph]:
    """The packages of a list, in its order."""
    fields: dict[str, tuple[str, int]] = {}
    begins = name = None
    for number, raw in enumerate([*content(path).split(b"\n"), b""], start=1):
        line = decoded(raw, path, number).rstrip()
        if not line:
            if begins:
                yield Paragraph(path, begins, fields)
            fields, begins, name = {}, None, None
        elif line.startswith("#"):
            continue
        elif line[0] in " \t" and name:  # the field goes on
            if name in FIELDS:
                fields[name] = (f"{fields[name][0]} {line.strip()}", fields[name][1])
        else:
            begins = begins or number
            name, value = named_field(line, path, number)
            if name in FIELDS:
                fields[name] = (value, number)


def decoded(raw: bytes, path: Path, number: int) -> str:
    """A line as text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8", number, "give a list of Debian packages") from None


def named_field(line: str, path: Path, number: int) -> tuple[str, str]:
    """The name and the value of a field."""
    name, colon, value = line.partition(":")
    if not colon or not re.fullmatch(r"[!-~]+", name):
        problem = f"{shown(line)} is not a field like `Package: bash`"
        raise InputError(path, problem, number, "give a list of Debian packages")
    return name.lower(), value.strip()


def version_key(version: str) -> VersionKey:
    """A version such that keys compare as Debian compares versions; none at all is older than any."""
    epoch, colon, rest = version.partition(":")
    if not colon or not epoch.isdecimal():
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return int(epoch), *map(part_key, (upstream, revision) if dash else (rest, "0"))


def part_key(part: str) -> VersionKey:
    """Letters before other signs, and a tilde before even the end; digits as numbers."""
    return tuple(
        ((*(-1 if sign == "~" else ord(sign) + 256 * (not sign.isalpha()) for sign in signs), 0), int(digits or 0))
        for signs, digits in VERSION_PARTS.findall(part)
    )


def targets(paragraph: Paragraph, name: str) -> Iterator[list[tuple[str, bool]]]:
    """The alternatives of each entry of a relationship: a package and whether only some versions of it are meant."""
    for entry in paragraph.value(name).split(","):
        alternatives = [text.strip() for text in entry.split("|") if text.strip()]
        found = [TARGET.fullmatch(text) for text in alternatives]
        if None in found:
            problem = f"{shown(alternatives[found.index(None)])} in {name.title()} does not name a package"
            raise paragraph.fault(name, problem, "mend it")
        if alternatives:
            yield [(match[1], match[2] is not None) for match in found if match]


def related(paragraph: Paragraph) -> Iterator[tuple[str, str]]:
    """The relations of a package to packages."""
    for name, relation in RELATIONSHIPS.items():
        for (first, versioned), *others in targets(paragraph, name):
            if relation != "conflicts_with" or not versioned:
                yield relation, first
            yield from ((ALTERNATIVE, other) for other, _ in others)


def described(paragraph: Paragraph, package: str) -> Iterator[tuple[str, str]]:
    """The relations of a package to anything else."""
    for name, (relation, prefix) in PROPERTIES.items():
        if value := paragraph.value(name):
            yield relation, prefix + value
    source, *_ = paragraph.value("source").split() or [package]
    yield "built_from", f"source:{source}"
    maintainer = paragraph.value("maintainer").partition("<")[0].strip(' ",')
    if maintainer and "@" not in maintainer:
        yield "maintained_by", f"maintainer:{maintainer}"
    for tag in paragraph.value("tag").split(","):
        facet, _, value = tag.strip().partition("::")
        if facet and value not in ("", "TODO"):  # nobody has said yet which
            yield facet, tag.strip()


def read_packages(paths: Iterable[Path]) -> dict[str, Package]:
    """All packages of the lists by name; one that dpkg knows but that is not installed is left out."""
    packages: dict[str, Package] = {}
    for paragraph in (paragraph for path in paths for paragraph in paragraphs(path)):
        name = paragraph.value("package")
        if not re.fullmatch(NAME, name, re.ASCII):
            problem = f"{shown(name)} is not the name of a package" if name else "a paragraph without the field Package"
            raise paragraph.fault("package", problem, "give a list of Debian packages")
        if paragraph.value("status").split()[2:] not in ([], ["installed"]):
            continue
        version = version_key(paragraph.value("version"))
        if name not in packages or packages[name].version < version:
            packages[name] = Package(version)
        if packages[name].version == version:
            ends = (*related(paragraph), *described(paragraph, name))
            packages[name].facts |= {(name, relation, tail) for relation, tail in ends if tail != name}
    return packages


def without_idle_names(packages: dict[str, Package]) -> None:
    """Take away what one package provides and none asks for."""
    pairs = {(fact[1] == "provides", fact[0], fact[2]) for package in packages.values() for fact in package.facts}
    providers = Counter(tail for provided, _, tail in pairs if provided)
    asked = {tail for provided, _, tail in pairs if not provided} | packages.keys()
    for package in packages.values():
        package.facts = {
            fact for fact in package.facts if fact[1] != "provides" or fact[2] in asked or providers[fact[2]] > 1
        }


def drawn(packages: dict[str, Package], count: int, seed: int) -> dict[str, Package]:
    """So many packages, each drawn together with all that it depends on."""
    order = sorted(packages)
    random.Random(seed).shuffle(order)
    taken: dict[str, Package] = {}
    for start in order:
        waiting = deque([start])
        while waiting and len(taken) < count:
            name = waiting.popleft()
            if name in packages and name not in taken:
                taken[name] = packages[name]
                waiting += sorted(tail for _, relation, tail in packages[name].facts if relation == "depends_on")
    return taken


NOTICE = """\
# {out}

{facts:,} facts with {relations} relations about {packages:,} Debian packages. Made by
`scripts/make_debian.py{options}`; the same lists give the same facts.

## Where the names come from
Packages, their relations, sections and maintainers: the lists below. Tags: debtags, as in the lists.
{installed}
| list | last changed (UTC) | SHA-256 |
|---|---|---|
{lists}

## What was left out
Versions, qualifiers, mail addresses, conflicts with some versions only, and names that one package provides and none
asks for. The beginning of the script says why.

## Licence
The lists state no licence of their own. Their fields come from the `debian/control` files of the packages, each under
the terms in its package's `debian/copyright`; the tags are the work of the contributors to debtags. Lists that are not
Debian's have the terms of those who publish them. Maintainers are named as in the lists, and many are persons: think of
that before you publish the facts. Debian is a trademark of Software in the Public Interest, Inc.

## Facts by relation
| relation | facts |
|---|---|
{rows}
"""
INSTALLED = "The facts tell what is installed on the machine they were made on.\n"


def notice(facts: list[Fact], paths: list[Path], options: argparse.Namespace) -> str:
    """What the facts are and where they come from; files by name alone, not where they lie on this machine."""
    sizes = Counter(relation for _, relation, _ in facts)
    limit = f" --max-packages {options.max_packages} --seed {options.seed}" if options.max_packages else ""
    return NOTICE.format(
        out=options.out.name,
        facts=len(facts),
        relations=len(sizes),
        packages=len({head for head, _, _ in facts}),
        options=" --installed" * options.installed + limit,
        installed=INSTALLED if options.installed else "",
        lists="\n".join(f"| {path.name} | {changed(path)} | {sha256(path)} |" for path in paths),
        rows="\n".join(f"| {relation} | {count:,} |" for relation, count in sorted(sizes.items())),
    )


def changed(path: Path) -> str:
    """When a file was last changed."""
    return datetime.datetime.fromtimestamp(int(path.stat().st_mtime), datetime.UTC).isoformat(" ")[:-6]


def sha256(path: Path) -> str:
    """The digest of a file as it lies there."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def notice_of(out: Path) -> Path:
    """Where the notice of a graph stands."""
    return out.with_name(f"{out.name}.NOTICE.md")


def write(facts: list[Fact], paths: list[Path], options: argparse.Namespace) -> Path:
    """Write the facts and, beside them, what they are; returns where the latter stands."""
    entities = Vocabulary(sorted({end for head, _, tail in facts for end in (head, tail)}))
    relations = Vocabulary(sorted({relation for _, relation, _ in facts}))
    heads, names, tails = zip(*facts, strict=True)
    beside = notice_of(options.out)
    with fresh_file(beside) as part:
        part.write_text(notice(facts, paths, options), encoding="utf-8", newline="\n")
        triples = TripleArray(entities.ids(heads), relations.ids(names), entities.ids(tails))
        write_triples(options.out, entities, relations, triples)
    return beside


def parsed() -> argparse.Namespace:
    """The options, checked before anything is read."""
    parser = argparse.ArgumentParser(description="Make a knowledge graph of Debian packages from package lists.")
    parser.add_argument("lists", nargs="*", type=Path, metavar="FILE", help=f"a list [default: all in {LISTS}]")
    parser.add_argument("--installed", action="store_true", help=f"read {STATUS}: what is installed")
    parser.add_argument("--max-packages", type=int, metavar="N", help="draw N packages with what they depend on")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawing [default: 0]")
    parser.add_argument("--out", type=Path, required=True, help=".tsv, .csv, .parquet or .nt; text also .gz or .zst")
    parser.add_argument("--force", action="store_true", help="replace the output if it exists")
    options = parser.parse_args()
    if options.max_packages is not None and options.max_packages < 1:
        raise OptionError(f"--max-packages {options.max_packages}: is not 1 or more; give how many packages to draw")
    if options.installed and options.lists:
        raise OptionError(f"--installed reads {STATUS} and no other list; leave out {options.lists[0]} or --installed")
    check_written_format(options.out)
    for path in (options.out, notice_of(options.out)):
        if path.exists() and not options.force:
            raise exists_already(path)
    return options


def chosen(options: argparse.Namespace) -> list[Path]:
    """The lists to read."""
    if options.installed:
        return [STATUS]
    paths = options.lists or [path for ending in LIST_ENDINGS for path in LISTS.glob(f"*_Packages{ending}")]
    if not paths:
        raise InputError(LISTS, "holds no package lists", hint="run apt-get update, or name lists as arguments")
    if options.out.resolve() in {path.resolve() for path in paths}:
        raise OptionError(f"{options.out}: is a list to read; choose another place")
    return sorted(paths)


def main() -> None:
    """Write the graph; a user's mistake ends in one sentence."""
    try:
        options = parsed()
        paths = chosen(options)
        packages = read_packages(paths)
        without_idle_names(packages)
        if options.max_packages:
            packages = drawn(packages, options.max_packages, options.seed)
        if not packages:
            raise InputError(", ".join(map(str, paths)), "no package in it", hint="give a list of Debian packages")
        facts = sorted(fact for package in packages.values() for fact in package.facts)
        beside = write(facts, paths, options)
    except NewcomerError as error:
        print(f"make_debian: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"written {len(facts):,} facts about {len(packages):,} packages to {options.out}; sources in {beside}")


if __name__ == "__main__":
    main()
