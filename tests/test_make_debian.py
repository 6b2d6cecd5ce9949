"""A graph of Debian packages from a small list of its own, with every corner that real lists have."""

import gzip
import lzma
import runpy
from pathlib import Path

import pyarrow as pa
import pytest

from newcomer.data import read_graph

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "make_debian.py"))

PACKAGES = """\
# a comment
Package: mailer
Source: mail-suite (2.0-1)
Version: 2.0-1+b1
Architecture: amd64
Multi-Arch: foreign
Maintainer: "Jane Doe" <jane@example.org>
Pre-Depends: base (>= 1:1.0~)
Depends: python3:any (>= 3.9), default-transport | transport,
 base (<< 9), base [amd64] <!nocheck>,
Recommends: spell|spell-any (= 1)
Suggests: help
Provides: mail-reader, mailer-abi-7 (= 7), mailer
Conflicts: mailer, transport, old-mailer (<< 1)
Breaks: help (<< 2), rival
Description: reads mail
 Package: not-a-field
 .
 Depends: nor-this
Tag: implemented-in::c, role::program,
 works-with::mail, admin::TODO, untidy
Section: mail
Priority: optional


Package: base
Version: 1.9
Section: libs
Priority: required

Package: base
Version: 1.10
section: admin
Maintainer: base@example.org

Package: transport-one
Version: 1
Architecture: amd64
Maintainer: The Team <team@example.org>, Someone <else@example.org>
Depends: base
Provides: transport

Package: transport-one
Version: 1
Architecture: i386

Package: help
Depends: help-data

Package: help-data

Package: reader-two
Provides: mail-reader
"""
FACTS = {
    ("mailer", "built_from", "source:mail-suite"),
    ("mailer", "architecture", "architecture:amd64"),
    ("mailer", "multi_arch", "multi-arch:foreign"),
    ("mailer", "maintained_by", "maintainer:Jane Doe"),
    ("mailer", "depends_on", "base"),
    ("mailer", "depends_on", "python3"),
    ("mailer", "depends_on", "default-transport"),
    ("mailer", "accepts_alternative", "transport"),
    ("mailer", "recommends", "spell"),
    ("mailer", "accepts_alternative", "spell-any"),
    ("mailer", "suggests", "help"),
    ("mailer", "provides", "mail-reader"),  # two packages do; none asks for mailer-abi-7
    ("mailer", "conflicts_with", "transport"),
    ("mailer", "conflicts_with", "rival"),
    ("mailer", "implemented-in", "implemented-in::c"),
    ("mailer", "role", "role::program"),
    ("mailer", "works-with", "works-with::mail"),
    ("mailer", "in_section", "section:mail"),
    ("mailer", "has_priority", "priority:optional"),
    ("base", "built_from", "source:base"),
    ("base", "in_section", "section:admin"),  # 1.10 is newer than 1.9, and says nothing of a priority
    ("transport-one", "built_from", "source:transport-one"),
    ("transport-one", "architecture", "architecture:amd64"),
    ("transport-one", "architecture", "architecture:i386"),
    ("transport-one", "maintained_by", "maintainer:The Team"),
    ("transport-one", "depends_on", "base"),
    ("transport-one", "provides", "transport"),  # mailer names it
    ("help", "built_from", "source:help"),
    ("help", "depends_on", "help-data"),
    ("help-data", "built_from", "source:help-data"),
    ("reader-two", "built_from", "source:reader-two"),
    ("reader-two", "provides", "mail-reader"),
}


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "Packages"
    path.write_text(PACKAGES, encoding="utf-8")
    return path


def make(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr("sys.argv", ["make_debian.py", *map(str, words)])
    SCRIPT["main"]()


def facts_in(path: Path) -> set[tuple[str, str, str]]:
    return {(head, relation, tail) for head, relation, tail in (line.split("\t") for line in lines_of(path))}


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_every_corner_of_a_list(listed, tmp_path, monkeypatch, capsys):
    out = tmp_path / "graph.tsv"
    make(monkeypatch, listed, "--out", out)
    assert facts_in(out) == FACTS
    assert lines_of(out) == sorted(lines_of(out)) and len(lines_of(out)) == len(FACTS)
    assert f"written {len(FACTS)} facts about 6 packages to {out}" in capsys.readouterr().out


def test_the_notice_names_the_lists_and_no_folder_or_address(listed, tmp_path, monkeypatch):
    make(monkeypatch, listed, "--max-packages", 9, "--seed", 4, "--out", tmp_path / "graph.tsv")
    text = (tmp_path / "graph.tsv.NOTICE.md").read_text(encoding="utf-8")
    assert f"| Packages | {SCRIPT['changed'](listed)} | {SCRIPT['sha256'](listed)} |" in text
    assert "make_debian.py --max-packages 9 --seed 4`" in text and "| depends_on | 5 |" in text
    assert str(tmp_path) not in text and "@" not in text + (tmp_path / "graph.tsv").read_text(encoding="utf-8")


def test_any_compression_and_any_format_give_the_same_graph(listed, tmp_path, monkeypatch):
    plain = listed.read_bytes()
    lz4 = pa.BufferOutputStream()
    with pa.CompressedOutputStream(lz4, "lz4") as stream:
        stream.write(plain)
    for packed in (gzip.compress(plain, mtime=0), lzma.compress(plain), lz4.getvalue().to_pybytes()):
        listed.write_bytes(packed)
        make(monkeypatch, listed, "--out", tmp_path / "graph.tsv", "--force")
        assert facts_in(tmp_path / "graph.tsv") == FACTS
    make(monkeypatch, listed, "--out", tmp_path / "graph.parquet")
    assert len(read_graph(tmp_path / "graph.parquet")) == len(FACTS)


def test_only_what_is_installed(tmp_path, monkeypatch):
    status = tmp_path / "status"
    paragraph = "Package: {}\nStatus: {} ok {}\nConffiles:\n /etc/it 0123\n\n"
    status.write_text(
        paragraph.format("kept", "install", "installed")
        + paragraph.format("gone", "deinstall", "config-files")
        + paragraph.format("held", "hold", "installed"),
        encoding="utf-8",
    )
    monkeypatch.setitem(SCRIPT["chosen"].__globals__, "STATUS", status)
    make(monkeypatch, "--installed", "--out", tmp_path / "graph.tsv")
    assert {head for head, _, _ in facts_in(tmp_path / "graph.tsv")} == {"kept", "held"}
    assert "installed on the machine" in (tmp_path / "graph.tsv.NOTICE.md").read_text(encoding="utf-8")


def test_all_lists_of_apt_and_nothing_beside_them(listed, tmp_path, monkeypatch):
    (tmp_path / "site_main_binary-amd64_Packages.gz").write_bytes(gzip.compress(listed.read_bytes()))
    (tmp_path / "site_contrib_binary-amd64_Packages").write_text("Package: one-more\n", encoding="utf-8")
    for other in ("site_main_i18n_Translation-en", "site_Packages.diff_Index", "site_InRelease"):
        (tmp_path / other).write_text("no list of packages", encoding="utf-8")
    monkeypatch.setitem(SCRIPT["chosen"].__globals__, "LISTS", tmp_path)
    make(monkeypatch, "--out", tmp_path / "graph.tsv")
    assert facts_in(tmp_path / "graph.tsv") == FACTS | {("one-more", "built_from", "source:one-more")}


def test_packages_are_drawn_with_what_they_depend_on(tmp_path, monkeypatch):
    chains = "".join(f"Package: top{i}\nDepends: mid{i}\n\nPackage: mid{i}\nDepends: low\n\n" for i in range(40))
    (tmp_path / "Packages").write_text(chains + "Package: low\n", encoding="utf-8")

    def heads(seed: int) -> set[str]:
        make(
            monkeypatch,
            tmp_path / "Packages",
            "--max-packages",
            12,
            "--seed",
            seed,
            "--out",
            tmp_path / "a.tsv",
            "--force",
        )
        return {head for head, _, _ in facts_in(tmp_path / "a.tsv")}

    drawings = [heads(seed) for seed in range(4)]
    assert all(len(drawing) == 12 and "low" in drawing for drawing in drawings)
    for drawing in drawings:  # only where the limit cuts the last one off may anything be missing
        assert sum(f"mid{name[3:]}" not in drawing for name in drawing if name.startswith("top")) <= 1
    assert len({frozenset(drawing) for drawing in drawings}) > 1 and heads(2) == drawings[2]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.9", "1.10"),
        ("1.0~rc1", "1.0"),
        ("1.0~~", "1.0~"),
        ("9", "1:0"),
        ("1.0", "1.0a"),
        ("1.0a", "1.0+b"),
        ("1.0", "1.0-1"),
        ("2-1", "2-1.1"),
        ("1-9", "1-10"),
        ("a-1-2", "a-2-1"),
        ("", "0.1"),
    ],
)
def test_versions_compare_as_debian_compares_them(older, newer):
    key = SCRIPT["version_key"]
    assert key(older) < key(newer) and not key(newer) < key(older)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"Package: a\n\njust words\n", "line 3: 'just words' is not a field"),
        (b" begins indented\n", "line 1: ' begins indented' is not a field"),
        (b"Package: a\nDepends: b,\n c (> 1, d\n", "line 2: 'c (> 1' in Depends does not name a package"),
        (b"Package: a\nPre-Depends: b | c d\n", "line 2: 'c d' in Pre-Depends does not name a package"),
        (b"Package: a\n\nVersion: 1\nSection: x\n", "line 3: a paragraph without the field Package"),
        (b"Package: a b\n", "line 1: 'a b' is not the name of a package"),
        (b"Package: a\nSection: \xff\n", "line 2: is not UTF-8"),
        (b"\n\n", "no package in it"),
        (lzma.compress(b"Package: a\n")[:-9], "is not a whole compressed file"),
        (b"\x04\x22\x4d\x18 and nothing else", "is not a whole compressed file"),
        (gzip.compress(b"Package: a\n", mtime=0)[:-9], "is not a whole gzip file"),
    ],
)
def test_a_bad_list_is_one_sentence_and_leaves_nothing(content, sentence, listed, tmp_path, monkeypatch, capsys):
    listed.write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        make(monkeypatch, listed, "--out", tmp_path / "graph.tsv")
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and error.count("\n") == 1 and sentence in error and str(listed) in error
    assert list(tmp_path.iterdir()) == [listed]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing", "--out", "a.tsv"], "missing: does not exist"),
        (["--out", "a.xls"], "unknown format to write 'xls'"),
        (["Packages", "--out", "a.tsv", "--max-packages", "0"], "--max-packages 0: is not 1 or more"),
        (["Packages", "--out", "a.tsv", "--installed"], "leave out Packages or --installed"),
        (["--out", "taken.tsv"], "taken.tsv: exists already"),
        (["--out", "beside.tsv"], "beside.tsv.NOTICE.md: exists already"),
        (["Packages", "--out", "folder.tsv", "--force"], "folder.tsv: cannot be written"),
        (["taken.tsv", "--out", "taken.tsv", "--force"], "taken.tsv: is a list to read"),
        (["--out", "a.tsv"], "holds no package lists; run apt-get update"),
    ],
)
def test_a_mistake_in_the_options_is_one_sentence(words, sentence, listed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.tsv").write_text("mine", encoding="utf-8")
    (tmp_path / "beside.tsv.NOTICE.md").touch()
    (tmp_path / "folder.tsv").mkdir()
    (tmp_path / "empty").mkdir()
    monkeypatch.setitem(SCRIPT["chosen"].__globals__, "LISTS", tmp_path / "empty")
    with pytest.raises(SystemExit) as stopped:
        make(monkeypatch, *words)
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and error.count("\n") == 1 and sentence in error
    assert (tmp_path / "taken.tsv").read_text(encoding="utf-8") == "mine" and not (tmp_path / "a.tsv").exists()
