"""Which value counts, where it came from, and what a person is told about a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrund.model.errors import UsageError
from agentrund.service import config
from agentrund.service.settings_types import Address


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working folder, an empty user folder, and a system file that is not there."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


def load(place: Path, flags=None, env=None, limit=None):
    environ = {"HOME": str(place / "home"), **(env or {})}
    return config.load(flags, environ=environ, system_file=place / "etc.toml", memory_limit=lambda: limit)


def write_user_file(place: Path, text: str) -> Path:
    path = place / "home" / ".config" / "agentrund" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_defaults_need_no_file(place):
    settings = load(place)
    assert settings.root == place / "work" / ".runs"
    assert settings.socket is None
    assert settings.otlp_grpc == Address("127.0.0.1", 4317)
    assert settings.blob_max_bytes == 8192
    assert settings.max_line_bytes == settings.max_request_bytes == 64 * 1024 * 1024
    assert (settings.heartbeat_timeout, settings.idle_close, settings.idle_timeout) == (60, 60, 1800)
    assert set(settings.origins.values()) == {"default"}
    assert set(settings.origins) == set(config.NAMES)


def test_precedence_from_the_weakest_to_the_strongest(place):
    steps = [("default", 8192)]
    (place / "etc.toml").write_text("blob_max_bytes = 1")
    steps.append((str(place / "etc.toml"), 1))
    assert (load(place).origins["blob_max_bytes"], load(place).blob_max_bytes) == steps[-1]

    user = write_user_file(place, "blob_max_bytes = '2KiB'")
    assert load(place).origins["blob_max_bytes"] == str(user)
    assert load(place).blob_max_bytes == 2048

    project = place / "work" / "agentrund.toml"
    project.write_text("blob_max_bytes = 3")
    assert load(place).origins["blob_max_bytes"] == str(project)

    env = {"AGENTRUND_BLOB_MAX_BYTES": "4"}
    assert load(place, env=env).origins["blob_max_bytes"] == "env AGENTRUND_BLOB_MAX_BYTES"
    assert load(place, env=env).blob_max_bytes == 4

    flagged = load(place, {"blob_max_bytes": "5"}, env)
    assert flagged.origins["blob_max_bytes"] == "flag --blob-max-bytes"
    assert flagged.blob_max_bytes == 5


def test_a_flag_not_given_and_an_empty_variable_do_not_count(place):
    settings = load(place, {"sync": None}, {"AGENTRUND_SYNC": ""})
    assert settings.origins["sync"] == "default"


def test_unknown_key_names_file_key_and_the_nearest_setting(place):
    (place / "etc.toml").write_text("blob_max_byte = 1")
    with pytest.raises(UsageError) as caught:
        load(place)
    assert str(place / "etc.toml") in caught.value.message
    assert "`blob_max_byte`" in caught.value.message
    assert "`blob_max_bytes`" in caught.value.hint


def test_unknown_variable_is_no_error(place):
    assert load(place, env={"AGENTRUND_FUTURE": "1"}).origins["sync"] == "default"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("otlp_grpc", "4317"),
        ("otlp_grpc", "127.0.0.1:99999"),
        ("group", "a group"),
        ("sync", "never"),
        ("blob_max_bytes", "8 miles"),
        ("blob_max_bytes", "-1"),
        ("max_line_bytes", "0"),
        ("heartbeat_timeout", "60"),
        ("idle_timeout", "half an hour"),
        ("otlp_run_key", "span"),
    ],
)
def test_bad_value_names_place_key_and_expectation(place, name, value):
    variable = config.env_name(name)
    with pytest.raises(UsageError) as caught:
        load(place, env={variable: value})
    assert f"env {variable}" in caught.value.message
    assert f"`{name}`" in caught.value.message
    assert value in caught.value.message
    assert caught.value.hint == f"expected {config.KINDS[name].expected}"


def test_bad_value_is_found_even_where_a_stronger_one_wins(place):
    (place / "etc.toml").write_text("sync = 'never'")
    with pytest.raises(UsageError, match=r"etc\.toml"):
        load(place, {"sync": "interval"})


@pytest.mark.parametrize("text", ["root = ", "root = '\x00'", "\xff"])
def test_a_file_that_is_no_toml_is_named(place, text):
    (place / "etc.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"etc\.toml: not valid TOML"):
        load(place)


@pytest.mark.parametrize("value", ["true", "3", "[]", "{}", "1979-05-27"])
def test_a_value_of_another_toml_type_is_refused(place, value):
    (place / "etc.toml").write_text(f"otlp_run_key = {value}")
    with pytest.raises(UsageError, match="otlp_run_key"):
        load(place)


def test_relative_paths_start_at_the_working_folder_and_tilde_is_home(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place / "home"))
    assert load(place, {"root": "a/../b"}).root == place / "work" / "b"
    assert load(place, {"root": "~/x"}).root == place / "home" / "x"


def test_doors_can_be_off_and_ports_free(place):
    assert load(place, {"otlp_grpc": "off"}).otlp_grpc is None
    assert load(place, {"otlp_grpc": "127.0.0.1:0"}).otlp_grpc == Address("127.0.0.1", 0)
    assert str(load(place, {"otlp_grpc": "[::1]:4317"}).otlp_grpc) == "[::1]:4317"


TOKEN = "abcdefghijklmnopqrstuvwxyz"


def test_an_option_that_is_none_is_unset(place):
    (place / "etc.toml").write_text("group = 'staff'\ntls_key = '/k.pem'")
    assert load(place).group == "staff"
    unset = load(place, {"group": "none"}, {"AGENTRUND_TLS_KEY": "none"})
    assert (unset.group, unset.tls_key) == (None, None)


@pytest.mark.parametrize(
    "bad", ["short", "fifteen-letters", "with a blank in it", "ümlaut" * 5, f"{TOKEN}\n"]
)
def test_a_bad_token_is_not_repeated(place, bad):
    with pytest.raises(UsageError) as caught:
        load(place, env={"AGENTRUND_TOKEN": bad})
    assert "env AGENTRUND_TOKEN" in caught.value.message
    assert bad not in caught.value.message + caught.value.hint


def test_a_token_is_neither_shown_nor_an_option(place):
    settings = load(place, env={"AGENTRUND_TOKEN": TOKEN})
    assert settings.token == TOKEN
    assert TOKEN not in repr(settings) + settings.show("token")
    assert "token" not in config.FLAGS
    assert load(place).show("token") == "none"


@pytest.mark.parametrize("name", ["etc.toml", "work/agentrund.toml"])
def test_a_file_with_a_token_that_others_can_read_is_refused(place, name):
    path = place / name
    path.write_text(f"token = '{TOKEN}'")
    path.chmod(0o604)
    with pytest.raises(UsageError, match="others can read the `token` in it") as caught:
        load(place)
    assert TOKEN not in caught.value.message
    for mode in (0o640, 0o600):
        path.chmod(mode)
        assert load(place).token == TOKEN


def test_every_setting_is_described_and_shown_as_it_would_be_typed(place):
    settings = load(place)
    assert set(config.ABOUT) == set(config.NAMES)
    for name in config.NAMES:
        shown = settings.show(name)
        if name != "socket":  # until it is named, there are several
            assert config.KINDS[name].parse(shown) == getattr(settings, name)


def test_a_line_is_at_most_a_part_of_what_there_is_beyond_an_idle_collector(place):
    small = load(place, {"max_memory": "304MiB"})
    assert small.max_line_bytes == small.max_request_bytes == 16 << 20
    assert load(place, {"max_memory": "1GiB"}).max_line_bytes == 64 << 20
    assert load(place, {"max_memory": "4GiB"}).max_line_bytes == 64 << 20
    with pytest.raises(UsageError, match="flag --max-line-bytes: `max_line_bytes` is too large") as caught:
        load(place, {"max_memory": "304MiB", "max_line_bytes": "17MiB"})
    assert "16MiB" in caught.value.hint


@pytest.mark.parametrize(
    ("limit", "most"), [(None, 1024), (2 << 30, 1024), (1 << 30, 768), (512 << 20, 384), (64 << 20, 128)]
)
def test_memory_is_what_the_cgroup_leaves_where_nobody_says_how_much(place, limit, most):
    settings = load(place, limit=limit)
    assert settings.max_memory == most << 20
    assert (settings.origins["max_memory"] == config.CGROUP) is (most < 1024)
    assert settings.max_line_bytes == settings.spare_memory // 15
    assert load(place, {"max_memory": "2GiB"}, limit=limit).max_memory == 2 << 30
