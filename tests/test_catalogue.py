"""The catalogue: what must be in it, how a set is found, and that it tells the truth about the real files."""

import gzip
import hashlib
import os
import re
from pathlib import Path

import pytest

from newcomer.data import load_dataset, locate
from newcomer.data.catalogue import (
    ROLES,
    SourceFile,
    cache_folder,
    count_rows,
    entries,
    entry,
    find_folder,
    names,
    sample_folder,
)
from newcomer.errors import DatasetError, OptionError

WN11 = [f"wn11-{ends}-{size}" for ends in ("subject", "object", "both") for size in (1000, 3000, 5000)]
FB15K = ["fb15k", *(f"fb15k-{end}-{share}" for end in ("subject", "object") for share in (5, 10))]
DOWNLOADABLE = ["fb15k", "fb15k-subject-10", "fb15k-object-10", *WN11, "yago37"]


def real_sets() -> list[str]:
    return [name for name in names() if name not in ("sample", "yago37")]


def test_the_names() -> None:
    assert sorted(names()) == sorted([*FB15K, *WN11, "wn18rr", "yago37", "yago37-partial", "sample"])
    assert [e.name for e in entries()] == list(names())


def test_which_can_be_downloaded() -> None:
    assert sorted(e.name for e in entries() if e.downloadable) == sorted(DOWNLOADABLE)
    for each in entries():
        assert each.downloadable or each.otherwise
        assert each.name in each.next_step if each.downloadable else each.next_step == each.otherwise


@pytest.mark.parametrize("name", [n for n in names() if n != "sample"])
def test_an_entry_is_complete(name: str) -> None:
    found = entry(name)
    assert found.title
    assert found.licence
    assert found.task == ("triple classification" if name.startswith("wn11") else "link prediction")
    assert set(found.counts) in ({"train", "valid", "test"}, set(ROLES))
    assert all(rows > 0 for rows in found.counts.values())
    assert found.entities
    assert found.relations
    assert (found.newcomers is not None) == ("aux" in found.counts)


@pytest.mark.parametrize("name", DOWNLOADABLE)
def test_sources_are_pinned(name: str) -> None:
    found = entry(name)
    assert [source.role for source in found.files] == [role for role in ROLES if role in found.counts]
    for source in found.files:
        assert re.fullmatch(r"[0-9a-f]{40}", source.git_blob)
        assert re.fullmatch(r"[0-9a-f]{40}", source.commit)
        assert re.fullmatch(r"[\w-]+/[\w-]+", source.repository)
        assert source.path
        assert not source.path.startswith("/")
        assert source.rows == found.counts[source.role]
        assert source.file_name == f"{source.role}.txt"


def test_no_two_files_share_a_blob() -> None:
    blobs = [source.git_blob for each in entries() for source in each.files]
    assert len(set(blobs)) == len(blobs)


def test_published_counts() -> None:
    assert dict(entry("fb15k").counts) == {"train": 483142, "valid": 50000, "test": 59071}
    assert (entry("fb15k").entities, entry("fb15k").relations) == (14951, 1345)
    split = entry("fb15k-subject-10")
    assert dict(split.counts) == {"train": 108854, "aux": 249798, "valid": 11339, "test": 2811}
    assert split.newcomers is not None
    assert split.newcomers == {"test": 2102, "aux": 3959}
    assert dict(entry("yago37").counts) == {"train": 989132, "valid": 50000, "test": 50000}
    assert (entry("yago37").entities, entry("yago37").relations) == (123189, 37)


def test_wordnet11_notes_name_the_traps() -> None:
    notes = " / ".join(entry("wn11-both-5000").notes)
    assert "aux also ties newcomers to newcomers: 13,423 of its rows" in notes
    assert "train 1,335" in notes
    assert "valid names 327 entities that train does not" in notes
    assert "619 of the 4,963 newcomers in test have only newcomers as neighbours" in notes


def test_a_near_miss_is_answered_with_the_right_name() -> None:
    with pytest.raises(OptionError, match=r"unknown data set 'fb15k-subjet-10'; did you mean 'fb15k-subject-10'\?"):
        entry("fb15k-subjet-10")


def test_entries_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        entry("fb15k").counts["train"] = 0  # type: ignore[index]


def test_rows_are_counted_with_or_without_a_last_newline(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes(b"a\tb\tc\nd\te\tf")
    (tmp_path / "aux.tsv").write_bytes(b"a\tb\tc\n")
    (tmp_path / "test.tsv").write_bytes(b"")
    assert count_rows(tmp_path) == {"train": 2, "aux": 1, "test": 0}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, an empty working folder, and no data anywhere."""
    for folder in ("home", "work"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NEWCOMER_DATA", raising=False)
    return tmp_path / "home"


def made(*parts: str | Path) -> Path:
    folder = Path(*parts)
    folder.mkdir(parents=True)
    return folder


def test_the_cache_folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == home / ".cache" / "newcomer" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "newcomer" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_folder() == home / ".cache" / "newcomer" / "data"


def test_where_a_name_is_looked_for(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = made(cache_folder(), "fb15k")
    assert find_folder("fb15k") == cached
    second = made(tmp_path, "second", "fb15k")
    monkeypatch.setenv("NEWCOMER_DATA", os.pathsep.join([str(tmp_path / "first"), str(tmp_path / "second")]))
    assert find_folder("fb15k") == second
    first = made(tmp_path, "first", "fb15k")
    assert find_folder("fb15k") == first
    made("fb15k")
    assert find_folder("fb15k") == Path("fb15k")


def test_a_path_and_a_name_of_ones_own(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = made(tmp_path, "data", "my graph")
    assert find_folder(mine) == mine
    monkeypatch.setenv("NEWCOMER_DATA", str(tmp_path / "data"))
    assert find_folder("my graph") == mine
    made(home, "graphs")
    assert find_folder("~/graphs") == home / "graphs"


def test_the_sample_is_the_packages_own(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_folder("sample") == sample_folder()
    other = made(tmp_path, "data", "sample")
    monkeypatch.setenv("NEWCOMER_DATA", str(tmp_path / "data"))
    assert find_folder("sample") == other


def test_a_known_name_that_is_not_here(home: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        find_folder("fb15k")
    message = str(caught.value)
    assert str(cache_folder()) in message
    assert "NEWCOMER_DATA is not set" in message
    assert message.endswith("fetch it with: newcomer data get fb15k")


def test_a_known_name_that_cannot_be_fetched(home: Path) -> None:
    with pytest.raises(DatasetError, match="it cannot be downloaded: put its files into a folder of that name"):
        find_folder("wn18rr")


def test_a_wrong_name_is_answered_with_near_ones(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "data", "proteins")
    monkeypatch.setenv("NEWCOMER_DATA", str(tmp_path / "data"))
    with pytest.raises(DatasetError, match=r"did you mean 'proteins'.*newcomer data list"):
        find_folder("protiens")
    with pytest.raises(DatasetError, match="did you mean 'wn18rr'") as caught:
        find_folder("wn18r")
    assert str(tmp_path / "data") in str(caught.value)
    with pytest.raises(DatasetError) as caught:
        find_folder("zzzzzzzz")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["nofile.tsv", "no/such.tsv"])
def test_a_file_that_is_not_there_is_not_called_a_folder(home: Path, name: str) -> None:
    with pytest.raises(DatasetError) as caught:
        load_dataset(name)
    assert "is not a folder" not in str(caught.value)
    assert "is no file or folder here" in str(caught.value) or "give a file, a folder or a name" in str(caught.value)


def test_paths_that_are_no_folder(home: Path) -> None:
    Path("file.tsv").write_text("a\tb\tc\n")
    for text in ("file.tsv", "./file.tsv"):
        with pytest.raises(DatasetError, match=r"'file\.tsv' is a file, and a data set is a folder"):
            find_folder(text)
    with pytest.raises(DatasetError, match="'no/such' does not exist"):
        find_folder("no/such")
    with pytest.raises(OptionError, match="empty"):
        find_folder("")
    with pytest.raises(DatasetError):
        find_folder("n" * 5000)


def test_a_name_does_not_climb_out_of_the_data_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "data")
    made(tmp_path, "secret")
    monkeypatch.setenv("NEWCOMER_DATA", str(tmp_path / "data"))
    with pytest.raises(DatasetError, match="does not exist"):
        find_folder(os.path.join("..", "..", "secret", "x"))  # noqa: PTH118 - the text matters, not the path


@pytest.fixture
def real_data() -> Path:
    """The first folder of NEWCOMER_DATA that holds the published sets."""
    for root in os.environ.get("NEWCOMER_DATA", "").split(os.pathsep):
        if root and (Path(root) / "fb15k").is_dir():
            return Path(root)
    pytest.skip("NEWCOMER_DATA names no folder with the published data sets")


def content_of(folder: Path, role: str) -> bytes:
    packed = folder / f"{role}.txt.gz"
    return gzip.decompress(packed.read_bytes()) if packed.is_file() else (folder / f"{role}.txt").read_bytes()


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.mark.parametrize("name", real_sets())
def test_the_real_files_are_what_the_catalogue_says(real_data: Path, name: str) -> None:
    folder = real_data / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    found = entry(name)
    contents = {role: content_of(folder, role) for role in found.counts}
    rows = {role: text.rstrip(b"\n").count(b"\n") + 1 for role, text in contents.items()}
    assert rows == dict(found.counts)
    for source in found.files:
        text = contents[source.role]
        assert source.git_blob in (git_blob(text), git_blob(text.removesuffix(b"\n"))), source.path


@pytest.mark.parametrize("name", real_sets())
def test_the_real_entities_are_counted_right(real_data: Path, name: str) -> None:
    folder = real_data / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    found = entry(name)
    ends: dict[str, set[bytes]] = {}
    relations: set[bytes] = set()
    for role in found.counts:
        columns = [line.split(b"\t") for line in content_of(folder, role).split(b"\n") if line]
        ends[role] = {row[0] for row in columns} | {row[2] for row in columns}
        relations |= {row[1] for row in columns}
    assert len(set().union(*ends.values())) == found.entities
    assert len(relations) == found.relations
    if found.newcomers:
        newcomers = ends["aux"] - ends["train"]
        assert (len(newcomers & ends["test"]), len(newcomers)) == (found.newcomers["test"], found.newcomers["aux"])


def test_a_pipe_is_neither_a_file_nor_a_folder(home: Path) -> None:
    os.mkfifo("pipe")
    for text in ("pipe", "./pipe", "/dev/null"):
        with pytest.raises(DatasetError, match="is neither a file nor a folder"):
            locate(text)


def test_a_file_at_home_is_found(home: Path) -> None:
    (home / "x.tsv").write_text("a\tr\tb\n")
    assert locate("~/x.tsv") == home / "x.tsv"
    with pytest.raises(DatasetError, match=r"does not exist"):
        locate("~/y.tsv")


@pytest.mark.parametrize("published", [b"a\tb\tc\n", b"a\tb\tc"])
def test_content_is_known_with_or_without_its_last_newline(published: bytes) -> None:
    source = SourceFile("train", "some/where", "c" * 40, "train.txt", git_blob(published), 1)
    assert source.is_content(b"a\tb\tc\n") and source.is_content(b"a\tb\tc")
    assert not source.is_content(b"a\tb\td\n") and not source.is_content(b"a\tb\tc\n\n\n")
