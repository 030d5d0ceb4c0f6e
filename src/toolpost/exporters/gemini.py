"""Gemini's form: a function declaration, its parameters as JSON Schema.

Above: ``export``, by name. Below: ``roots`` and ``dialect``. A declaration may also have them in
a schema language of Gemini's own (``parameters``), which knows less; its SDK advises against it.
"""

from __future__ import annotations

from typing import Any, Final

from toolpost.errors import InvalidSchema
from toolpost.exporters.dialect import Dialect, Unfit
from toolpost.exporters.names import Rule
from toolpost.exporters.rewriting import rewritten
from toolpost.exporters.roots import rooted
from toolpost.exporters.values import Form, Tell, Unexportable
from toolpost.spec import ToolSpec

_DIALECT: Final = Dialect(
    keywords=frozenset(
        ("title", "description", "format", "minimum", "maximum", "minItems", "maxItems")
    ),
    prefix_items=True,
    const=False,
    listed=frozenset(("string", "integer", "number")),
    cycles=None,
)


def _declaration(spec: ToolSpec, name: str, *, strict: bool, tell: Tell) -> dict[str, Any]:
    try:
        parameters = rewritten(rooted(spec.input_schema, tell), _DIALECT, tell)
    except (Unfit, InvalidSchema) as reason:
        raise Unexportable(f"its input schema cannot be said: {reason}") from None
    return {
        "name": name,
        "description": spec.description,
        "parameters_json_schema": parameters,
    }


# the SDK says 128, the services have long said 64: what both take does no harm
GEMINI: Final = Form(write=_declaration, names=Rule(legal=r"[A-Za-z_][A-Za-z0-9_.:-]*", most=64))
