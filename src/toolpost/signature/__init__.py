"""A function's signature as data: description, schemas, what is injected, the ways in and out."""

from toolpost.signature.describe import Convert, Signature, describe
from toolpost.signature.inject import FromSpec, Given, Inject, Injected, Secret

__all__ = [
    "Convert",
    "FromSpec",
    "Given",
    "Inject",
    "Injected",
    "Secret",
    "Signature",
    "describe",
]
