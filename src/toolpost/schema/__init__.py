"""JSON Schema: verify a schema once, then check values against it, many times and fast."""

from toolpost.schema.check import (
    Schema,
    faulty_defaults,
    gives_whole_numbers,
    register_schemas,
    verify,
    verify_input,
)
from toolpost.schema.faults import Fault

__all__ = [
    "Fault",
    "Schema",
    "faulty_defaults",
    "gives_whole_numbers",
    "register_schemas",
    "verify",
    "verify_input",
]
