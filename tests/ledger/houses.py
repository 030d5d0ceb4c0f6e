"""A place with an audit in it, for tests: a SQLite file, a state folder, and an executor."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.extensions.around import surroundings
from toolpost import Executor, Registry, ToolFailed, tool
from toolpost.extensions.audit import Audit, AuditOptions
from toolpost.ledger.anchor import anchors
from toolpost.ledger.opening import FOLDER, KEY, lines_of
from toolpost.ledger.reading import AuditedCall, calls, records_of
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.verify import Head, Proof, Verified, verify
from toolpost.seal import verifiers
from toolpost.stores.sqlite import SqliteStore


@tool(tier=0, effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier=2, effects="once")
async def send(to: str) -> str:
    """Send something."""
    if to == "nobody":
        raise ToolFailed("There is nobody there.")
    return f"sent to {to}"


TOOLS = (add, send)


@asynccontextmanager
async def house(
    folder: Path,
    *tools: Any,
    mode: str = "standard",
    store_of: type[SqliteStore] = SqliteStore,
    **options: Any,
) -> AsyncIterator[Executor]:
    """An executor whose calls are on the record in ``folder``."""
    store = store_of(folder / ".toolpost" / "store.db")
    await store.open()
    around = surroundings(folder, records=store, journal=store, mode=mode)
    audit = Audit(around, AuditOptions(**options))
    try:
        async with Executor(Registry([*TOOLS, *tools]), observers=[audit]) as executor:
            yield executor
    finally:
        await store.close()


@asynccontextmanager
async def journal(folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder / ".toolpost" / "store.db")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def records(folder: Path) -> list[AuditRecord]:
    async with journal(folder) as store:
        return [record async for record in records_of(lines_of(store))]


async def audited(folder: Path) -> list[AuditedCall]:
    async with journal(folder) as store:
        return [call async for call in calls(lines_of(store))]


async def verified(folder: Path, earlier: tuple[Head, ...] = ()) -> Verified:
    state = folder / ".toolpost" / FOLDER
    known = anchors(state)
    proof = Proof(keys=verifiers(state, KEY), anchors=known, earlier=earlier)
    async with journal(folder) as store:
        return await verify(lines_of(store), proof)


def tamper(folder: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    """What somebody with access to the file, and not to the key, can do."""
    connection = sqlite3.connect(folder / ".toolpost" / "store.db")
    with connection:
        for statement in statements:
            connection.execute(statement, values if "?" in statement else ())
    connection.close()


def bodies(folder: Path) -> dict[int, bytes]:
    """The lines, by the number of the last record in each."""
    connection = sqlite3.connect(folder / ".toolpost" / "store.db")
    found = dict(connection.execute("SELECT number, body FROM journal ORDER BY number").fetchall())
    connection.close()
    return found


def written_over(folder: Path, number: int, body: bytes) -> None:
    tamper(folder, "UPDATE journal SET body = ? WHERE number = ?", values=(body, number))
