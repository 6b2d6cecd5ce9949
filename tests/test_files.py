"""Bytes in and out: compression by content, and output that appears whole or not at all."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from conftest import complaint, without_rights
from newcomer.errors import InputError, OutputError
from newcomer.files import (
    MARKERS,
    create_bytes,
    fresh_file,
    fresh_folder,
    must_be_file,
    must_be_writable,
    open_bytes,
    plain_suffix,
    read_ahead,
    read_lines,
)

Put = Callable[[str, str | bytes], Path]
CONTENT = "".join(f"head {i * i % 97}\tknows\ttail {i}\n" for i in range(60)).encode()
KINDS = {"gzip": ".gz", "zstd": ".zst"}


def compressed(kind: str, content: bytes = CONTENT) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


def content_of(path: Path) -> bytes:
    with open_bytes(path) as stream:
        return bytes(stream.read())


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a.tsv", "a.gz", "a.zst", "a"])
def test_compression_is_known_by_content_not_by_name(put: Put, kind: str, name: str) -> None:
    assert content_of(put(name, compressed(kind))) == CONTENT
    assert content_of(put(name, CONTENT)) == CONTENT


@pytest.mark.parametrize("kind", KINDS)
def test_several_compressed_members_are_one_content(put: Put, kind: str) -> None:
    assert content_of(put("a", compressed(kind) + compressed(kind))) == CONTENT * 2


@pytest.mark.parametrize(("kind", "magic"), [("gzip", 2), ("zstd", 4)])
def test_a_compressed_file_cut_anywhere_is_not_whole(put: Put, kind: str, magic: int) -> None:
    whole = compressed(kind)
    for cut in range(magic, len(whole)):
        assert f"not a whole {kind} file" in str(complaint(content_of, put("a", whole[:cut])))


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_after_the_end_is_an_error(put: Put, kind: str) -> None:
    assert f"not a whole {kind} file" in str(complaint(content_of, put("a", compressed(kind) + b"and more")))


def test_a_wrong_checksum_is_an_error(put: Put) -> None:
    broken = bytearray(compressed("gzip"))
    broken[-8] ^= 1  # the CRC-32 stands before the length
    assert "not a whole gzip file" in str(complaint(content_of, put("a.gz", bytes(broken))))


@pytest.mark.parametrize(
    ("name", "suffix"), [("a.tsv", ".tsv"), ("a.TSV.GZ", ".tsv"), ("a.nt.zst", ".nt"), ("train", ""), ("a.gz", "")]
)
def test_the_format_is_named_before_the_compression(name: str, suffix: str) -> None:
    assert plain_suffix(Path("folder.d") / name) == suffix


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / ("x" * 300)):
        assert "cannot be read" in str(complaint(content_of, path))


def test_no_permission_is_one_sentence(public_folder: Path) -> None:
    secret = public_folder / "secret.tsv"
    secret.write_bytes(CONTENT)
    secret.chmod(0)
    with without_rights():
        assert "Permission denied" in str(complaint(content_of, secret))


def test_a_file_name_need_not_be_utf8(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9.tsv.gz"
    with create_bytes(path) as stream:
        stream.write(CONTENT)
    assert content_of(path) == CONTENT


@pytest.mark.parametrize(("ending", "magic"), [("", b"head"), (".gz", b"\x1f\x8b"), (".zst", b"\x28\xb5\x2f\xfd")])
def test_output_is_compressed_by_its_ending(tmp_path: Path, ending: str, magic: bytes) -> None:
    path = tmp_path / "new" / f"a.tsv{ending}"
    with create_bytes(path) as stream:
        stream.write(CONTENT)
    assert path.read_bytes().startswith(magic) and content_of(path) == CONTENT
    assert left_behind(path.parent) == [path.name]


@pytest.mark.parametrize("problem", [RuntimeError("stop"), OSError(errno.ENOSPC, "No space left on device")])
def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path, problem: Exception) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"old")
    with pytest.raises((RuntimeError, OutputError)), create_bytes(path) as stream:
        stream.write(CONTENT)
        raise problem
    assert path.read_bytes() == b"old" and left_behind(tmp_path) == ["a.tsv"]


def test_what_fails_leaves_no_folders_behind(tmp_path: Path) -> None:
    problem = RuntimeError("stop")
    with pytest.raises(RuntimeError), create_bytes(tmp_path / "new" / "deep" / "a.tsv") as stream:
        stream.write(CONTENT)
        raise problem
    with pytest.raises(RuntimeError):
        write_folder(tmp_path / "new" / "set", False, problem)
    assert left_behind(tmp_path) == []


def write_file(path: Path) -> None:
    with fresh_file(path) as partial:
        partial.write_bytes(b"new")


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path, put: Put) -> None:
    file = put("file", "old")
    for path in (file / "a.tsv", tmp_path / ("x" * 250), tmp_path, Path(), Path("/")):
        assert isinstance(complaint(write_file, path), OutputError)
    for path in (file / "set", file, tmp_path / ("x" * 250), tmp_path / ("x" * 300)):
        assert isinstance(complaint(write_folder, path, force=True), OutputError)
    assert left_behind(tmp_path) == ["file"] and file.read_bytes() == b"old"


def test_no_permission_to_write_says_so(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    with without_rights():
        assert "Permission denied" in str(complaint(write_file, public_folder / "a.tsv"))
        assert "Permission denied" in str(complaint(write_folder, public_folder / "a"))
    public_folder.chmod(0o755)


def write_folder(path: Path, force: bool = False, problem: Exception | None = None, marker: str | None = None) -> None:
    with fresh_folder(path, force, marker) as staging:
        (staging / "train.tsv").write_bytes(b"new")
        if problem is not None:
            raise problem


@pytest.mark.parametrize("marker", MARKERS)
def test_a_folder_is_replaced_only_when_forced(tmp_path: Path, put: Put, marker: str) -> None:
    put(f"set/{marker}", "old")
    assert "--force" in str(complaint(write_folder, tmp_path / "set"))
    assert left_behind(tmp_path / "set") == [marker]
    write_folder(tmp_path / "set", force=True)
    assert left_behind(tmp_path / "set") == ["train.tsv"] and left_behind(tmp_path) == ["set"]


def test_force_deletes_nobody_elses_files(tmp_path: Path, put: Put) -> None:
    put("set/thesis.tex", "years of work")
    put("set/enrichment.json", "{}")
    for marker, words in (
        ("dataset.json", "holds 'enrichment.json' and no dataset.json"),
        (None, "holds 'thesis.tex'"),
    ):
        assert words in str(complaint(write_folder, tmp_path / "set", True, marker=marker))
        assert (tmp_path / "set" / "thesis.tex").read_text() == "years of work"
        (tmp_path / "set" / "enrichment.json").unlink(missing_ok=True)
    assert left_behind(tmp_path) == ["set"]


def test_force_fills_an_empty_folder_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    write_folder(tmp_path / "set", force=True)
    assert left_behind(tmp_path / "set") == ["train.tsv"]
    (tmp_path / "link").symlink_to(tmp_path / "set")
    assert "is not a folder" in str(complaint(write_folder, tmp_path / "link", force=True))
    assert left_behind(tmp_path / "set") == ["train.tsv"]


@pytest.mark.parametrize("content", ["train.tsv", None])
def test_of_two_writers_the_later_one_fails(tmp_path: Path, put: Put, content: str | None) -> None:
    def second() -> None:
        with fresh_folder(tmp_path / "set") as staging:
            (staging / "mine").write_bytes(b"second")
            (tmp_path / "set").mkdir()
            if content:
                put(f"set/{content}", "first")

    assert "exists already" in str(complaint(second))
    assert left_behind(tmp_path) == ["set"] and left_behind(tmp_path / "set") == ([content] if content else [])


def test_a_writer_that_comes_between_the_last_look_and_the_swap_wins(
    tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def late(source: Path, target: Path) -> Path:
        put("set/train.tsv", "first")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", late)
    assert "exists already" in str(complaint(write_folder, tmp_path / "set"))
    assert (tmp_path / "set" / "train.tsv").read_text() == "first" and left_behind(tmp_path) == ["set"]


@pytest.mark.parametrize("problem", [RuntimeError("stop"), OSError(errno.ENOSPC, "No space left on device")])
def test_a_folder_that_fails_half_way_leaves_the_old_one(tmp_path: Path, put: Put, problem: Exception) -> None:
    put("set/dataset.json", "old")
    with pytest.raises((RuntimeError, OutputError), match=r"stop|No space"):
        write_folder(tmp_path / "set", True, problem)
    assert left_behind(tmp_path / "set") == ["dataset.json"] and left_behind(tmp_path) == ["set"]


@pytest.mark.parametrize("problem", [OSError(errno.EIO, "Input/output error"), SystemExit(143)])
def test_the_old_folder_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    put("set/dataset.json", "old")
    replace = Path.replace

    def refuses(source: Path, target: Path) -> Path:
        if (source / "train.tsv").exists():
            raise problem
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", refuses)
    with pytest.raises((OutputError, SystemExit), match=r"Input/output error|143"):
        write_folder(tmp_path / "set", force=True)
    assert left_behind(tmp_path / "set") == ["dataset.json"] and left_behind(tmp_path) == ["set"]


@pytest.mark.parametrize("force", [True, False])
def test_a_folder_does_not_replace_a_link_to_nowhere(tmp_path: Path, force: bool) -> None:
    (tmp_path / "set").symlink_to(tmp_path / "nowhere")
    assert isinstance(complaint(write_folder, tmp_path / "set", force), OutputError)
    assert left_behind(tmp_path) == ["set"]


def test_blocks_read_ahead_are_the_same_blocks() -> None:
    blocks = [b"a", b"", b"b"]
    assert list(read_ahead(iter(blocks))) == blocks


def test_an_error_while_reading_ahead_arrives() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise InputError("a.gz", "is not whole")

    ahead = read_ahead(broken())
    assert next(ahead) == b"a"
    assert isinstance(complaint(next, ahead), InputError)


def test_what_is_no_file_is_told_apart(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is a folder where a file is expected" in str(complaint(must_be_file, tmp_path))
    assert "does not exist" in str(complaint(must_be_file, tmp_path / "missing"))
    for path in (tmp_path / "pipe", Path("/dev/null")):
        assert "is neither a file nor a folder" in str(complaint(must_be_file, path))


def test_lines_of_a_text_file_and_the_one_that_is_no_utf8(put: Put) -> None:
    assert read_lines(put("a.txt", "\ufeffa\r\nb\rc\n\u2028")) == ["a", "b", "c", "\u2028"]
    assert read_lines(put("a.gz", compressed("gzip", b"x\ny"))) == ["x", "y"]
    error = complaint(read_lines, put("b.txt", b"a\n\xff\n"))
    assert isinstance(error, InputError) and error.line == 2 and "is not UTF-8" in str(error)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes no files")
def test_a_folder_that_takes_no_files_is_told_before_they_are_written(tmp_path: Path) -> None:
    assert "cannot be written" in str(complaint(must_be_writable, Path("/proc/newcomer")))
    must_be_writable(tmp_path / "a.json")
    must_be_writable(tmp_path / "nowhere" / "a.json")
    assert list(tmp_path.iterdir()) == []
