"""Folders that hold tokenizers."""

import json

import pytest

from keras_transformer.text import Bytes, Characters, InvalidTokenizerError, load_tokenizer
from keras_transformer.text.tokenizers import storage


def test_replaces_a_tokenizer_and_nothing_else(tmp_path):
    target = tmp_path / "tokenizer"
    Bytes().save(target)
    Characters("ab").save(target)
    assert sorted(path.name for path in target.iterdir()) == ["characters.json", "tokenizer_config.json"]
    assert load_tokenizer(target).encode("ab") == [5, 6]
    Bytes().save(target)
    assert sorted(path.name for path in target.iterdir()) == ["tokenizer_config.json"]
    # A folder with anything else is left alone.
    (target / "notes.txt").write_text("mine")
    with pytest.raises(InvalidTokenizerError, match="contains 'notes.txt', which is not part of a tokenizer"):
        Characters("ab").save(target)
    assert load_tokenizer(target).kind == "bytes"
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidTokenizerError, match="is a file"):
        Bytes().save(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "tokenizer"]


def test_failed_write_leaves_the_old_one(tmp_path, monkeypatch):
    target = tmp_path / "tokenizer"
    Bytes().save(target)

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(storage.json, "dumps", lambda value, indent=None, **options: fail() if indent else "{}")
    with pytest.raises(OSError, match="disk full"):
        Characters("ab").save(target)
    monkeypatch.undo()
    assert load_tokenizer(target).kind == "bytes"
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer"]


def test_unfit_folders(tmp_path):
    with pytest.raises(InvalidTokenizerError, match="contains no tokenizer: No such file"):
        load_tokenizer(tmp_path / "nowhere")
    target = tmp_path / "tokenizer"
    Characters("ab").save(target)
    config, characters = target / "tokenizer_config.json", target / "characters.json"
    good_config, good_characters = config.read_text(), characters.read_text()

    def check(match, new_config=good_config, new_characters=good_characters):
        config.write_text(new_config)
        if new_characters is None:
            characters.unlink()
        else:
            characters.write_text(new_characters)
        with pytest.raises(InvalidTokenizerError, match=match):
            load_tokenizer(target)

    changed = json.loads(good_config)
    check("not a tokenizer config", "{")
    check("missing key 'kind'", "{}")
    check("not a tokenizer config", "[]")
    check("'files' names files outside", json.dumps({**changed, "files": ["../characters.json"]}))
    check("was modified", json.dumps({**changed, "special_tokens": {"unknown": "<pad>"}}))
    check("was modified", new_characters=good_characters.replace("b", "c"))
    check("characters.json' cannot be read: No such file", new_characters=None)
    # Valid files of an unknown kind, or inconsistent with each other.
    files = {"characters.json": good_characters.encode()}
    for match, change in (
        ("kind 'word'. Valid kinds: byte_pair, bytes", {"kind": "word"}),
        ("inconsistent tokenizer", {"options": {}}),
        ("inconsistent tokenizer", {"special_tokens": {"pad": "<pad>"}}),
    ):
        core = {key: {**changed, **change}[key] for key in ("kind", "special_tokens", "options")}
        check(match, json.dumps({**changed, **change, "fingerprint": storage.fingerprint(core, files)}))
    config.write_text(good_config)
    characters.write_text(good_characters)
    assert load_tokenizer(target).encode("b") == [6]
