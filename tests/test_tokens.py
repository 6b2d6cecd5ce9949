"""Tokens: who they are, what they may do, and files of them."""

import string
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import call, sentence
from conftest import complaint
from newcomer.errors import InputError, OptionError
from newcomer.service.tokens import LOCAL, ROLES, Caller, fresh_token, parsed, read_tokens


def line(name: str = "ann", role: str = "read", token: str = "t") -> str:
    return f"{name} {role} {sha256(token.encode()).hexdigest()}"


@pytest.mark.parametrize("role", ROLES)
def test_a_fresh_token_is_known_by_the_line_that_is_kept(role):
    token, kept = fresh_token("ann", role)
    found = parsed([kept], "file").caller(token)
    assert found == Caller("ann", role) and token not in kept
    assert fresh_token("ann", role)[0] != token


def test_a_role_has_those_below_it():
    assert [[Caller("x", role).may(other) for other in ROLES] for role in ROLES] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert LOCAL.may("operate")


@given(st.text(max_size=2_000))
def test_another_token_is_of_nobody(text):
    tokens = parsed([line(token="t"), line("bob", "write", "u")], "file")
    found = tokens.caller(text)
    assert (found is None) == (text not in ("t", "u"))


def test_comments_and_empty_lines_are_left_alone():
    tokens = parsed(["# people", "", f"  {line()}  ", line("bob", "operate", "u")], "file")
    assert len(tokens) == 2 and tokens.caller("u") == Caller("bob", "operate")


@pytest.mark.parametrize(
    "wrong",
    ["ann", "ann read", line(role="admin"), line("a/b"), line("a" * 65), "ann read secret", f"{line()} x", line()],
)
def test_a_wrong_line_is_named_but_not_shown(wrong):
    error = complaint(parsed, [line(), wrong], "file")
    assert isinstance(error, InputError) and error.line == 2
    assert "secret" not in str(error) and sha256(b"t").hexdigest() not in str(error)


def test_a_file_of_tokens_comes_before_the_variable(put, monkeypatch):
    monkeypatch.delenv("NEWCOMER_TOKENS", raising=False)
    assert read_tokens(None) is None
    monkeypatch.setenv("NEWCOMER_TOKENS", f"{line(token='t')},{line('bob', 'read', 'u')}")
    assert read_tokens(None).caller("u") == Caller("bob", "read")
    path = str(put("tokens", line("cyd", "read", "v") + "\n"))
    assert read_tokens(path).caller("u") is None and read_tokens(path).caller("v").name == "cyd"
    assert isinstance(complaint(read_tokens, str(put("empty", "# nobody\n"))), InputError)
    assert isinstance(complaint(read_tokens, "nowhere"), InputError)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\n", "ä", "x" * 65])
def test_a_name_is_made_of_letters_and_digits(name):
    assert isinstance(complaint(fresh_token, name, "read"), OptionError)


def test_the_command_shows_the_token_once_with_the_line_to_keep():
    said = call("token", "ann", "--role", "write").stdout.splitlines()
    assert parsed([said[3]], "file").caller(said[1]) == Caller("ann", "write")
    assert set(said[1].removeprefix("nc_")) <= set(string.ascii_letters + string.digits + "-_") and len(said[1]) > 40
    assert "unknown role 'admin'" in sentence(call("token", "ann", "--role", "admin"))
