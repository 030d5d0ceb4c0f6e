"""The schemas of a spec, verified: what a spec cannot see to by itself.

Above: whoever takes specs in (``create_tool``, the registry, sources). Below: ``schema``, which
refuses to know of tools. It adds the tool's name and the place inside the spec to what is wrong.
"""

from __future__ import annotations

import msgspec

from toolpost.errors import InvalidSchema
from toolpost.schema import verify, verify_input
from toolpost.spec import ToolSpec


def verified(spec: ToolSpec) -> ToolSpec:
    """The same spec, with its schemas in the spelling of their draft, or ``InvalidSchema``."""
    try:
        at = "input_schema"
        takes = verify_input(spec.input_schema)
        at = "output_schema"
        gives = None if spec.output_schema is None else verify(spec.output_schema)
    except InvalidSchema as fault:
        raise InvalidSchema(f"{at} of {spec.name!r}: {fault.message}", at=(at, *fault.at)) from None
    if takes is spec.input_schema and gives is spec.output_schema:
        return spec
    return msgspec.structs.replace(spec, input_schema=takes, output_schema=gives)
