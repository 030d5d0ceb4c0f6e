"""The index: passages in SQLite's full-text search, beside where each comes from.

Above: ``ingesting.py`` and ``searching.py``. Below: SQLite. A query is words and nothing else:
each goes in quotes, so that no sign in it means anything to SQLite.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from toolpost.builtin.knowledge.splitting import Document
from toolpost.errors import ToolFailed, Unavailable

_PATIENCE: Final = 10.0
_WORD: Final = re.compile(r"[^\W_]+")
_MOST_WORDS: Final = 24
_LONGEST_WORD: Final = 64
_SCHEMA: Final = """
create table if not exists documents (
  id integer primary key, path text not null unique, digest text not null, title text not null
);
create table if not exists places (
  id integer primary key, document integer not null, line integer not null
);
create index if not exists places_of on places (document);
create virtual table if not exists passages using fts5 (
  title, heading, text, tokenize = 'porter unicode61 remove_diacritics 2'
);
create table if not exists vectors (id integer primary key, vector blob not null);
create table if not exists state (key text primary key, value integer not null);
"""
_DAMAGED: Final = "The file of the knowledge base is damaged: delete it and ingest again."
_WEIGHTS: Final = "bm25(passages, 4.0, 3.0, 1.0)"
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can do does for from has have how i if in is it its me my no not "
        "of on or our should so that the their then there these this to was we what when where "
        "which who why will with you your",
    )
)


class Hit(NamedTuple):
    """A passage that a query found; ``rank`` is better the larger it is."""

    id: int
    rank: float


class Found(NamedTuple):
    """A passage as it is told."""

    id: int
    path: str
    line: int
    title: str
    heading: str
    text: str
    snippet: str


@contextmanager
def opened(path: str, *, make: bool = False) -> Iterator[Index]:
    """The index in a file; ``make`` makes it if it is not there."""
    if not make and not Path(path).is_file():
        raise ToolFailed(
            "Nothing is in the knowledge base yet: call ingest_knowledge first.",
            remedy="other_tool",
            effects="none",
        )
    with _explained():
        if make:
            _make_folder(Path(path).parent)
        connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        try:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            connection.executescript(_SCHEMA)
            yield Index(connection, path)
        finally:
            connection.close()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise ToolFailed(f"The knowledge base cannot be kept: {exc.strerror}.") from exc


@contextmanager
def _explained() -> Iterator[None]:
    """What SQLite says becomes what a model can do something about."""
    try:
        yield
    except sqlite3.OperationalError as exc:
        said = str(exc)
        if "locked" in said or "busy" in said:
            raise Unavailable("The knowledge base is being written: try again.") from exc
        if "fts5" in said:
            raise ToolFailed("The SQLite of this Python has no full-text search.") from exc
        if "no such" in said or "has no column" in said:
            raise ToolFailed(_DAMAGED) from exc
        raise ToolFailed(f"The knowledge base cannot be kept: {said}.") from exc
    except sqlite3.DatabaseError as exc:
        if isinstance(exc, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        raise ToolFailed(_DAMAGED) from exc


class Index:
    """The open index."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.path = path
        self._run = connection.execute
        self._many = connection.executemany

    # Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is done inside, or nothing of it."""
        self._run("begin immediate")
        try:
            yield
        except BaseException:
            self._run("rollback")
            raise
        self._run(
            "insert into state values ('generation', 1) "
            "on conflict (key) do update set value = value + 1"
        )
        self._run("commit")

    def digests(self) -> dict[str, str]:
        """Path → digest of every document."""
        return dict(self._run("select path, digest from documents").fetchall())

    def put(self, path: str, digest: str, document: Document) -> None:
        """A document, in the place of what was there under its path."""
        self.remove([path])
        cursor = self._run(
            "insert into documents (path, digest, title) values (?, ?, ?)",
            (path, digest, document.title),
        )
        number = cursor.lastrowid
        for passage in document.passages:
            place = self._run(
                "insert into places (document, line) values (?, ?)", (number, passage.line)
            ).lastrowid
            self._run(
                "insert into passages (rowid, title, heading, text) values (?, ?, ?, ?)",
                (place, document.title, passage.heading, passage.text),
            )

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            row = self._run("select id from documents where path = ?", (path,)).fetchone()
            if row is None:
                continue
            ids = self._run("select id from places where document = ?", row).fetchall()
            self._many("delete from passages where rowid = ?", ids)
            self._many("delete from vectors where id = ?", ids)
            self._run("delete from places where document = ?", row)
            self._run("delete from documents where id = ?", row)

    def add_vectors(self, vectors: Iterable[tuple[int, bytes]]) -> None:
        self._many("insert or replace into vectors values (?, ?)", vectors)

    # Reading

    def counts(self) -> tuple[int, int]:
        """Documents and passages."""
        documents = self._run("select count(*) from documents").fetchone()[0]
        return documents, self._run("select count(*) from places").fetchone()[0]

    @property
    def generation(self) -> int:
        """Another one after every change."""
        row = self._run("select value from state where key = 'generation'").fetchone()
        return row[0] if row else 0

    def without_vectors(self, most: int, *, after: int) -> list[tuple[int, str]]:
        """Passages behind this one, in their order."""
        return self._run(
            "select p.rowid, p.title || '. ' || p.heading || '. ' || p.text from "
            "(select l.id from places l left join vectors v on v.id = l.id where l.id > ? "
            "and v.id is null order by l.id limit ?) one join passages p on p.rowid = one.id",
            (after, most),
        ).fetchall()

    def vectors(self) -> list[tuple[int, bytes]]:
        return self._run("select id, vector from vectors order by id").fetchall()

    def matching(self, words: Sequence[str], *, most: int, begins: bool = False) -> list[Hit]:
        """Passages with any of the words, the best first; ``begins``: or with longer ones."""
        rows = self._run(
            f"select rowid, -{_WEIGHTS} from passages where passages match ? "  # noqa: S608 - ours
            f"order by {_WEIGHTS} limit ?",
            (_query(words, begins=begins), most),
        )
        return [Hit(*row) for row in rows]

    def holding(self, word: str, ids: Sequence[int], *, begins: bool = False) -> set[int]:
        """Which of these passages have a word."""
        marks = ",".join("?" * len(ids))
        rows = self._run(
            f"select rowid from passages where passages match ? and rowid in ({marks})",  # noqa: S608 - marks
            (_query([word], begins=begins), *ids),
        )
        return {row[0] for row in rows}

    def spread(self, word: str) -> int:
        """In how many passages a word is."""
        found: int = self._run(
            "select count(*) from passages where passages match ?", (_query([word]),)
        ).fetchone()[0]
        return found

    def found(self, ids: Sequence[int], words: Sequence[str]) -> list[Found]:
        """These passages, with a snippet around the words; in the order given."""
        by_id: dict[int, Found] = {}
        for number in ids:
            row = self._run(
                "select d.path, l.line, p.title, p.heading, p.text from passages p "
                "join places l on l.id = p.rowid join documents d on d.id = l.document "
                "where p.rowid = ?",
                (number,),
            ).fetchone()
            if row is not None:
                where, line, title, heading, text = row
                snippet = self._snippet(number, words) or text
                by_id[number] = Found(number, where, line, title, heading, text, snippet)
        return [by_id[number] for number in ids if number in by_id]

    def _snippet(self, number: int, words: Sequence[str]) -> str:
        if not words:
            return ""
        row = self._run(
            "select snippet(passages, 2, '', '', '…', 48) from passages "
            "where passages match ? and rowid = ?",
            (_query(words, begins=True), number),
        ).fetchone()
        return row[0] if row else ""


def words_of(query: str) -> list[str]:
    """The words of a query that are worth looking for, each once."""
    found = [word[:_LONGEST_WORD] for word in _WORD.findall(query.lower())]
    telling = [word for word in found if word not in _COMMON]
    return list(dict.fromkeys(telling or found))[:_MOST_WORDS]


def _query(words: Sequence[str], *, begins: bool = False) -> str:
    end = "*" if begins else ""
    return " OR ".join(f'"{word}"{end}' for word in words)
