"""Schemas that others refer to by address: registered ones, and the meta-schemas of each draft.

``tree.py`` looks here when a ``$ref`` or a ``$schema`` leads out of a schema. Nothing is fetched:
an address that is not registered is an error there.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any, Final

from toolpost.errors import InvalidSchema

STANDARD: Final = "json-schema.org"
_registered: dict[str, dict[str, Any]] = {}


def add_schema(address: str, schema: Mapping[str, Any]) -> bool:
    """Keep a copy under an address; false if it is there already."""
    if ":" not in address or "#" in address:
        raise InvalidSchema(f"{address}: an address is absolute and has no fragment")
    if STANDARD in address:
        raise InvalidSchema(f"{address}: the addresses of the standard cannot be registered")
    known = _registered.get(address)
    if known is not None and known != schema:
        raise InvalidSchema(f"{address}: another schema is registered under this address")
    _registered.setdefault(address, deepcopy(dict(schema)))
    return known is None


def remove_schema(address: str) -> None:
    """Forget a registered schema; validators that were compiled with it keep their copy."""
    _registered.pop(address, None)


def registered_schemas() -> list[tuple[str, dict[str, Any]]]:
    """Every registered schema with its address."""
    return list(_registered.items())


def find_schema(address: str) -> dict[str, Any] | None:
    """The schema at an address without a fragment; ``None`` if it is not registered."""
    found = _registered.get(address)
    if found is None and STANDARD in address:
        for draft in _META_SCHEMAS:
            if address.startswith(draft):
                found = _meta_schemas(_META_SCHEMAS[draft]).get(address)
    return found


_META_SCHEMAS: Final = {
    "http://json-schema.org/draft-04/": "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/": "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/": "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/": "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/": "https://json-schema.org/draft/2020-12/schema",
}


@cache
def _meta_schemas(address: str) -> dict[str, dict[str, Any]]:
    """The meta-schema of a draft and those it refers to, as the validator has them built in."""
    import jsonschema_rs  # 40 ms, and few schemas refer to a meta-schema

    addresses = [address]
    if address.endswith("2020-12/schema"):  # which refers to its sibling format-annotation alone
        addresses.append(address.removesuffix("schema") + "meta/format-assertion")
    references = [{"$ref": one} for one in addresses]
    schema: dict[str, Any] = {"$schema": address, "allOf": references}
    bundled = jsonschema_rs.bundle(schema, offline=True)
    documents = {**bundled.get("definitions", {}), **bundled.get("$defs", {})}
    return {key.rstrip("#"): document for key, document in documents.items()}
