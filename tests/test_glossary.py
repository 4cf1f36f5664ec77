"""The glossary: it has every word that a class is named after, with a meaning for each folder."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
PAGES = [ROOT / "docs" / "concepts.md", ROOT / "docs" / "internals" / "glossary.md"]
WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")

#: Words that need no entry, because they mean what they mean anywhere.
EVERYDAY = """
abandon accept access acknowledge advance aggregate async await bad began bound broadcast broken
builder cache call came cancel cause client collect collection commit compact completable config
configuration count current custom declare delay deserialization direct directory discard empty
encode encrypt end enumeration equal error evict exponential extract fact fail fallback fetch filter
final finish fix flat fold forward free fs give global hash hosted id idleness in incompatible
incremental index initialization inject input instance is kind leave like list live load
local manual map memory merge miss mode no of one only open orderness out output own parallel pass
pend phase print process promise rate reach read readable rebalance reduce ref reference refuse
request resident rest run save say see sequence serialization serve server ship shuffle simulate
size sliding socket state status stop strategy stream surroundings system take thread time
timestamp to transactional tumbling tuple two type unchanged unreadable up update user
utils value visibility void wait where with without wrap work writable write written
"""
#: Names of products and formats.
NAMES = "arrow avro azure csv db flink google h hdfs json jvm kafka python rocks rocksdb spark"
#: all of these
COMMON = {*EVERYDAY.split(), *NAMES.split()}


#: an entry of the first column: a word or two, and the folders in which it has this meaning
ENTRY = re.compile(r"([a-z ]+?)(?: \(([^)]+)\))?(?:, |$)")


def glossary() -> Iterator[tuple[str, frozenset[str]]]:
    """The words of the glossary, each with the folders that its row names."""
    text = "\n".join(page.read_text() for page in PAGES)
    for row in re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE):
        if row != "word":
            for word, rooms in ENTRY.findall(row):
                yield word, frozenset(re.findall(r"`([^`]+)`", rooms))


def entries() -> set[str]:
    """The words of the glossary: the first column of its tables."""
    return {part for word, _ in glossary() for part in word.split()}


def senses() -> dict[str, list[frozenset[str]]]:
    """By word, in the singular: the folders of each of its rows; none for all other folders."""
    found: dict[str, list[frozenset[str]]] = {}
    for word, rooms in glossary():
        found.setdefault(word.removesuffix("s"), []).append(rooms)
    return found


def pyflink_names() -> set[str]:
    """Names of PyFlink's modules and classes."""
    api = json.loads((ROOT / "tests" / "api" / "pyflink_api.json").read_text())
    return {name for module in api.values() for name in [*module, *module.get("__all__", ())]}


def class_names() -> Iterator[tuple[str, str]]:
    """The classes that other modules may use, each with its module; not those of Flink."""
    flink = pyflink_names()
    for module in sorted(SOURCE.rglob("*.py")):
        if module.parent.name == "shapes":  # what REST answers look like: Flink's words
            continue
        for node in ast.parse(module.read_text()).body:
            own = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            if own and node.name not in flink and not node.name.endswith(("Error", "Warning")):
                yield node.name, module.relative_to(SOURCE).as_posix()


def forms(word: str) -> set[str]:
    """A word, and what it may be a form of: a plural, a participle, or one who does it."""
    found = {word}
    for ending in ("s", "es", "ies", "d", "ed", "ing", "n", "r", "er", "or"):
        if word.endswith(ending):
            stem = word.removesuffix(ending)
            found |= {stem, stem + "e", stem + "y", stem[:-1]}
    return found


def test_every_class_is_named_after_words_of_the_glossary() -> None:
    known = entries() | COMMON
    missing = {
        f"{word} ({name} in {module})"
        for name, module in class_names()
        for word in map(str.lower, WORDS.findall(name))
        if not forms(word) & known
    }
    assert sorted(missing) == []


def test_a_word_has_one_meaning_or_one_for_each_folder() -> None:
    for word, rows in senses().items():
        rooms = [room for row in rows for room in row]
        assert len(rooms) == len(set(rooms)), f"{word!r} has two rows for one folder"
        assert not any(f"{a}/".startswith(f"{b}/") for a, b in permutations(rooms, 2)), word
        assert [room for room in rooms if not (SOURCE / room).exists()] == [], word
        assert rows.count(frozenset()) <= 1, f"{word!r} has two rows, and they name no folders"
        assert len(rows) > 1 or not rooms, f"{word!r} has one meaning; leave the folders out"


def test_each_class_is_where_its_word_has_a_meaning() -> None:
    """Forms of the word, such as a plural, count as well."""
    limited = {
        word: {f"{room}/" for row in rows for room in row}
        for word, rows in senses().items()
        if frozenset() not in rows
    }
    assert (
        sorted(
            f"{name} in {module}: {word!r}"
            for name, module in class_names()
            for part in map(str.lower, WORDS.findall(name))
            for word in forms(part) & limited.keys()
            if not module.startswith(tuple(limited[word]))
        )
        == []
    )


def test_the_glossary_is_read_as_it_is_written() -> None:
    assert ENTRY.findall("table (`state`, `rest`), line buffer, op") == [
        ("table", "`state`, `rest`"),
        ("line buffer", ""),
        ("op", ""),
    ]
    assert len(senses()) > 250


def test_everyday_words_are_in_use_and_not_in_the_glossary() -> None:
    words = {word for name, _ in class_names() for word in WORDS.findall(name)}
    used = {form for word in words for form in forms(word.lower())}
    assert sorted(COMMON - used) == []
    assert sorted(COMMON & entries()) == []
