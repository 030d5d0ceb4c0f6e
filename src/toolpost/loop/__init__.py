"""Tools in the loop of a model: its message in, the results of its tool calls out."""

from toolpost.loop.calling import Listing, Tools, called, listed, specs_of, verify_caller
from toolpost.loop.content import content_of, in_words, parse, text_of
from toolpost.loop.loop import Ended, Loop
from toolpost.loop.values import Called, Said, Turn

__all__ = [
    "Called",
    "Ended",
    "Listing",
    "Loop",
    "Said",
    "Tools",
    "Turn",
    "called",
    "content_of",
    "in_words",
    "listed",
    "parse",
    "specs_of",
    "text_of",
    "verify_caller",
]
