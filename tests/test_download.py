"""The downloader against a server on the loopback: whole, damaged, interrupted, absent."""

import hashlib
import io
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from newcomer import locks
from newcomer.data import download
from newcomer.data.catalogue import Entry, SourceFile, entry
from newcomer.data.download import blob_id, fetch_dataset, find_damage
from newcomer.errors import DownloadError, OptionError, OutputError

CONTENTS = {
    "train": b"".join(b"entity %d\tlikes\tentity %d\n" % (i, i * 7 % 1000) for i in range(5000)),
    "aux": b"new\tlikes\tentity 1",  # no newline at the end, as some published files
    "test": "new\tlikes\tSão Paulo\n".encode(),
}
COMMIT = "c" * 40


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob " + str(len(content)).encode() + b"\0" + content).hexdigest()


def source(role: str, content: bytes) -> SourceFile:
    return SourceFile(role, "someone/some-repo", COMMIT, f"data/{role} file", git_blob(content), content.count(b"\n"))


TOY = Entry("toy", "a toy", "none", "link prediction", {}, files=tuple(source(r, c) for r, c in CONTENTS.items()))


@dataclass
class Site:
    """What the server does, and what it was asked."""

    bodies: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)  # bytes of the body to send in the next answers, then hang up
    statuses: list[int] = field(default_factory=list)  # to answer first, instead of the file
    content_range: str = ""  # a wrong one to send
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def roles_asked(self) -> list[str]:
        return [path.split("/")[-1].removesuffix("%20file") for path, _ in self.asked]


class Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.site.asked.append((self.path, wanted))
        body = self.site.bodies.get(self.path)
        if self.site.statuses:
            return self._bare(self.site.statuses.pop(0))
        if body is None:
            return self._bare(404)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and self.site.ranges else 0
        if start >= len(body) and start:
            return self._bare(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", self.site.content_range or f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        cut = self.site.cut_after.pop(0) if self.site.cut_after else len(body)
        self.wfile.write(body[start : start + cut])
        return None

    def _bare(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "NEWCOMER_MIRROR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site() -> Iterator[Site]:
    served = Site({f"/someone/some-repo/{COMMIT}/data/{role}%20file": body for role, body in CONTENTS.items()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"site": served}))
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


Fetch = Callable[..., Path]


@pytest.fixture
def naps() -> list[float]:
    return []


@pytest.fixture
def fetch(site: Site, tmp_path: Path, naps: list[float]) -> Fetch:
    def run(dataset: Entry = TOY, **options: object) -> Path:
        settings = {"base_url": site.url, "sleep": naps.append, "timeout": 5.0, **options}
        return fetch_dataset(dataset, tmp_path / "toy", **settings)  # type: ignore[arg-type]

    return run


def part_of(tmp_path: Path, role: str = "train") -> Path:
    return tmp_path / ".toy.part" / f"{role}.txt.part"


def assert_whole(folder: Path) -> None:
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        f"{role}.txt": body for role, body in CONTENTS.items()
    }
    assert [path.name for path in folder.parent.iterdir()] == ["toy"], "nothing else is left beside the folder"


def test_blob_id_is_what_git_says(tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(b"hello\n")
    assert blob_id(tmp_path / "hello") == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object


def test_a_good_server(fetch: Fetch, tmp_path: Path, site: Site, naps: list[float]) -> None:
    assert fetch() == tmp_path / "toy"
    assert_whole(tmp_path / "toy")
    assert [wanted for _, wanted in site.asked] == [None, None, None]
    assert naps == []


def test_the_mirror_comes_from_the_environment(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWCOMER_MIRROR", site.url + "/")
    fetch_dataset(TOY, tmp_path / "deep" / "toy")
    assert_whole(tmp_path / "deep" / "toy")


@pytest.mark.parametrize("mirror", ["ftp://host/x", "file:///etc", "just words", "http://", "http://[::1"])
def test_a_mirror_that_is_no_address(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(OptionError, match="no http or https address"):
        fetch_dataset(TOY, tmp_path / "toy", mirror)
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_every_byte(fetch: Fetch) -> None:
    told: dict[str, list[tuple[int, int | None]]] = {}
    fetch(progress=lambda source, done, total: told.setdefault(source.role, []).append((done, total)))
    for role, body in CONTENTS.items():
        assert told[role][-1] == (len(body), len(body))
        assert told[role] == sorted(told[role])


def test_progress_bars_take_what_the_downloader_tells(fetch: Fetch, tmp_path: Path) -> None:
    with download.progress_bars() as bars:
        fetch(progress=bars)
    assert_whole(tmp_path / "toy")


def test_damaged_content_is_thrown_away(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    path = next(path for path in site.bodies if "aux" in path)
    site.bodies[path] = b"<html>please log in</html>"
    with pytest.raises(DownloadError) as caught:
        fetch()
    message = str(caught.value)
    assert "aux%20file" in message
    assert git_blob(CONTENTS["aux"]) in message
    assert git_blob(site.bodies[path]) in message
    assert "run the same command again" in message
    assert not (tmp_path / "toy").exists()
    assert not part_of(tmp_path, "aux").exists()
    site.bodies[path] = CONTENTS["aux"]
    site.asked.clear()
    fetch()
    assert_whole(tmp_path / "toy")
    assert site.roles_asked() == ["aux", "test"], "what had arrived whole is not fetched again"


def test_an_interrupted_transfer_is_resumed_by_the_next_run(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    half = len(CONTENTS["train"]) // 2
    site.cut_after = [half]
    with pytest.raises(
        DownloadError, match=rf"after {half:,} of {len(CONTENTS['train']):,} bytes; run the same command"
    ):
        fetch(attempts=1)
    assert part_of(tmp_path).read_bytes() == CONTENTS["train"][:half]
    assert not (tmp_path / "toy").exists()
    site.asked.clear()
    fetch(attempts=1)
    assert site.asked[0][1] == f"bytes={half}-"
    assert_whole(tmp_path / "toy")


def test_an_interrupted_transfer_is_resumed_within_one_run(
    fetch: Fetch, site: Site, tmp_path: Path, naps: list[float]
) -> None:
    site.cut_after = [1000, 500]
    fetch()
    assert [wanted for _, wanted in site.asked] == [None, "bytes=1000-", "bytes=1500-", None, None]
    assert naps == [1.0, 2.0], "each wait is longer than the one before"
    assert_whole(tmp_path / "toy")


def test_a_server_without_ranges_starts_over(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cut_after = [1000]
    fetch()
    assert site.asked[1][1] == "bytes=1000-"
    assert_whole(tmp_path / "toy")


def test_a_server_that_continues_elsewhere_starts_over(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    site.cut_after = [1000]
    site.content_range = "bytes 7-9/10"
    fetch()
    assert [wanted for _, wanted in site.asked][:3] == [None, "bytes=1000-", None]
    assert site.roles_asked() == ["train", "train", "train", "aux", "test"]
    assert_whole(tmp_path / "toy")


def test_a_part_longer_than_the_file_starts_over(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    part_of(tmp_path).parent.mkdir()
    part_of(tmp_path).write_bytes(CONTENTS["train"] + b"more")
    fetch()
    assert [wanted for _, wanted in site.asked][:2] == [f"bytes={len(CONTENTS['train']) + 4}-", None]
    assert_whole(tmp_path / "toy")


def test_a_part_that_is_whole_needs_no_server(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    part_of(tmp_path).parent.mkdir()
    part_of(tmp_path).write_bytes(CONTENTS["train"])
    fetch()
    assert site.roles_asked() == ["aux", "test"]
    assert_whole(tmp_path / "toy")


def test_an_interrupt_from_the_keyboard_keeps_the_part(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    def stop(source: SourceFile, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(progress=stop)
    kept = part_of(tmp_path).read_bytes()
    assert kept
    assert CONTENTS["train"].startswith(kept)
    assert not (tmp_path / "toy").exists()
    fetch()
    assert_whole(tmp_path / "toy")


@pytest.mark.parametrize(("status", "words"), [(404, "no such file"), (403, "refuses it"), (418, "answers 418")])
def test_a_final_answer_is_not_asked_again(
    fetch: Fetch, site: Site, tmp_path: Path, naps: list[float], status: int, words: str
) -> None:
    site.statuses = [status]
    with pytest.raises(DownloadError, match=words) as caught:
        fetch()
    assert site.url in str(caught.value)
    assert str(status) in str(caught.value)
    assert len(site.asked) == 1
    assert naps == []
    assert list(tmp_path.iterdir()) == [], "nothing arrived, so nothing is kept"


def test_a_passing_failure_is_asked_again(fetch: Fetch, site: Site, tmp_path: Path, naps: list[float]) -> None:
    site.statuses = [500, 503]
    fetch()
    assert naps == [1.0, 2.0]
    assert_whole(tmp_path / "toy")


def test_a_lasting_failure_is_told(fetch: Fetch, site: Site, tmp_path: Path, naps: list[float]) -> None:
    site.statuses = [500] * 9
    with pytest.raises(DownloadError, match=r"answers 500 .*run the same command again later \(4 tries\)"):
        fetch()
    assert len(site.asked) == 4
    assert len(naps) == 3
    assert not (tmp_path / "toy").exists()


def test_a_refused_connection(fetch: Fetch) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(DownloadError, match="refuses the connection; check the network"):
            fetch(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}")


def test_a_server_that_never_answers(fetch: Fetch, naps: list[float]) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(DownloadError, match="does not answer in time"),
    ):
        fetch(base_url=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05, attempts=2)
    assert naps == [1.0]


def test_every_request_has_a_time_limit(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[object] = []

    def record(request: object, timeout: object = None) -> object:
        limits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(download, "urlopen", record)
    with pytest.raises(DownloadError, match="does not answer in time"):
        fetch(timeout=12.5, attempts=2)
    assert limits == [12.5, 12.5]


def test_a_file_github_no_longer_has(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(request: Request, timeout: float) -> None:
        raise HTTPError(request.full_url, 404, "Not Found", Message(), io.BytesIO())

    monkeypatch.setattr(download, "urlopen", gone)
    with pytest.raises(DownloadError, match="set NEWCOMER_MIRROR to a server that has it"):
        fetch(base_url=None)


def test_a_host_that_is_not_found(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(DownloadError, match=r"the host nowhere\.invalid is not found"):
        fetch(base_url="http://nowhere.invalid")


def test_a_whole_destination_is_left_alone(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    fetch()
    (tmp_path / "toy" / "my notes.txt").write_text("mine")
    site.asked.clear()
    fetch()
    assert site.asked == []
    assert (tmp_path / "toy" / "my notes.txt").read_text() == "mine"


def test_a_damaged_destination_is_replaced_only_by_force(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    fetch()
    train = tmp_path / "toy" / "train.txt"
    train.write_bytes(b"something else\n")
    assert "train.txt is not the published file" in (find_damage(TOY, tmp_path / "toy") or "")
    with pytest.raises(DownloadError, match="--force"):
        fetch()
    assert train.read_bytes() == b"something else\n"
    fetch(force=True)
    assert_whole(tmp_path / "toy")
    assert find_damage(TOY, tmp_path / "toy") is None


def test_a_file_missing_at_the_destination(fetch: Fetch, tmp_path: Path) -> None:
    fetch()
    (tmp_path / "toy" / "aux.txt").unlink()
    with pytest.raises(DownloadError, match=r"aux\.txt is missing"):
        fetch()


def test_force_that_fails_leaves_what_was_there(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    fetch()
    site.statuses = [404]
    with pytest.raises(DownloadError):
        fetch(force=True)
    assert find_damage(TOY, tmp_path / "toy") is None


def test_force_deletes_no_strangers_files(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"holds 'thesis\.txt', no part of toy"):
        fetch(force=True)
    assert (tmp_path / "toy" / "thesis.txt").read_text() == "years of work"


def test_an_empty_destination_is_filled(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    fetch()
    assert_whole(tmp_path / "toy")


def test_a_destination_that_is_a_file(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("a file")
    for force in (False, True):
        with pytest.raises(OutputError, match="not a folder"):
            fetch(force=force)
    assert (tmp_path / "toy").read_text() == "a file"


def test_a_link_to_a_folder_stays_a_link(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "toy").symlink_to(tmp_path / "elsewhere")
    fetch()
    assert (tmp_path / "toy").is_symlink()
    assert find_damage(TOY, tmp_path / "elsewhere") is None


def test_what_does_not_arrive_leaves_no_folders(site: Site, tmp_path: Path) -> None:
    site.bodies.clear()
    with pytest.raises(DownloadError):
        fetch_dataset(TOY, tmp_path / "deep" / "er" / "toy", site.url)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written"):
        fetch_dataset(TOY, tmp_path / "file" / "toy", site.url)


@pytest.mark.parametrize("name", ["fb15k-subject-5", "wn18rr", "yago37-partial", "sample"])
def test_a_set_without_a_source_says_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(DownloadError, match=f"data set '{name}': it (cannot be downloaded|ships with the package)"):
        fetch_dataset(entry(name), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_of_two_downloads_at_once_the_second_is_told(fetch: Fetch, site: Site, tmp_path: Path) -> None:
    said: list[str] = []

    def meanwhile(source: SourceFile, done: int, total: int | None) -> None:
        with pytest.raises(DownloadError) as caught:
            fetch()
        said.append(str(caught.value))

    fetch(progress=meanwhile)
    assert said and all("another download of it is under way" in text for text in said)
    assert len(site.asked) == len(CONTENTS), "the second one asked the server for nothing"
    assert_whole(tmp_path / "toy")


def test_a_staging_folder_that_moves_before_it_is_locked_is_left_alone(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part_of(tmp_path).parent.mkdir()
    part_of(tmp_path).write_bytes(CONTENTS["train"])
    flock = locks.fcntl.flock

    def late(descriptor: int, how: int) -> None:
        part_of(tmp_path).parent.rename(tmp_path / "moved")
        flock(descriptor, how)

    monkeypatch.setattr(locks.fcntl, "flock", late)
    with pytest.raises(DownloadError, match="another download"):
        fetch()
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]


def test_bars_are_drawn_on_a_terminal_and_nowhere_else(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with download.progress_bars() as silent:
        fetch(progress=silent)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with download.progress_bars() as bars:
        fetch(progress=bars, force=True)
    out, err = capsys.readouterr()
    assert out == "" and "train.txt" in err
