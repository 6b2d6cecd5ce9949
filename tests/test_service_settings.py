"""The settings of a service, and when it refuses to begin.

Covers newcomer.service.settings and newcomer.service.server.
"""

import socket
from pathlib import Path

import pytest

from command_line import call, sentence
from conftest import complaint
from newcomer.errors import InputError, OptionError, OutputError
from newcomer.service.server import check_tokens, listening_on
from newcomer.service.settings import LEAST, Settings, store_beside


def test_settings_reach_a_worker_as_they_are():
    settings = Settings(run="model", cors=("https://example.org",), hosts=("box",), port=0, docs=True)
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize("name", LEAST)
def test_a_number_that_is_too_small_is_named(name):
    error = complaint(Settings, run="model", **{name: LEAST[name] - 1})
    assert isinstance(error, OptionError) and f"--{name.replace('_', '-')} is {LEAST[name] - 1}, but" in str(error)


def test_a_port_is_one():
    assert str(complaint(Settings, run="model", port=70_000)) == (
        "--port is 70000, but must be an integer from 0 to 65,535"
    )


@pytest.mark.parametrize("origin", ["example.org", "*", "https://example.org/", "ftp://x", "https://", "null"])
def test_an_origin_is_as_a_browser_sends_it(origin):
    assert isinstance(complaint(Settings, run="model", cors=(origin,)), OptionError)


def test_newcomers_are_kept_beside_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert store_beside(Path("runs/model")) == Path("runs/model.newcomers.db")
    assert store_beside(Path("runs/model/")) == Path("runs/model.newcomers.db")
    assert store_beside(Path()) == tmp_path.with_name(f"{tmp_path.name}.newcomers.db")
    assert store_beside(Path("a/..")) == tmp_path.with_name(f"{tmp_path.name}.newcomers.db")
    assert Settings(run="model").store == "model.newcomers.db"
    assert Settings(run="model", store="town.db").store == "town.db"


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *((name, True) for name in ("127.0.0.1", "127.8.9.1", "::1", "localhost")),
        *((name, False) for name in ("0.0.0.0", "::", "192.168.0.1", "box", "")),
    ],
)
def test_other_machines_are_listened_to_only_with_tokens(host, is_local, monkeypatch):
    monkeypatch.delenv("NEWCOMER_TOKENS", raising=False)
    settings = Settings(run="model", host=host)
    assert settings.is_local == is_local and (settings.names is None) != is_local
    if is_local:
        check_tokens(settings)
    else:
        assert isinstance(complaint(check_tokens, settings), OptionError)
    monkeypatch.setenv("NEWCOMER_TOKENS", f"ann read {'0' * 64}")
    check_tokens(settings)


def test_a_port_that_is_taken_is_told():
    with listening_on(Settings(run="model", port=0)) as taken:
        error = complaint(listening_on, Settings(run="model", port=taken.getsockname()[1]))
        assert isinstance(error, OutputError)
    assert isinstance(complaint(listening_on, Settings(run="model", host="nowhere.invalid")), OutputError)


def test_an_address_of_the_sixth_version_stands_in_brackets():
    settings = Settings(run="model", host="::1", port=0)
    assert settings.shown_host == "[::1]" and "[::1]" in settings.names
    if socket.has_ipv6:
        with listening_on(settings) as listening:
            assert listening.family == socket.AF_INET6


def test_what_cannot_be_served_ends_in_one_sentence(tmp_path):
    said = sentence(call("serve", "model", "--host", "0.0.0.0", cwd=tmp_path))
    assert "no tokens are asked for" in said and list(tmp_path.iterdir()) == []
    assert "--tokens FILE" in said
    assert "nowhere" in sentence(call("serve", "model", "--tokens", "nowhere", cwd=tmp_path))
    assert "--queue is -1" in sentence(call("serve", "model", "--queue", "-1", cwd=tmp_path))
    assert "does not exist" in sentence(call("serve", "model", "--port", "0", cwd=tmp_path))
    assert isinstance(complaint(check_tokens, Settings(run="model", tokens="nowhere")), InputError)
