"""Rules in a file: which calls are allowed, denied, or put to a person.

Above: the policy ring and ``toolpost policy``. Below: ``document`` (the file, and the place of
every value in it) and ``patterns``. The first rule whose every condition holds decides; where none
does, the mode and the tool's tier do. What is done about a decision is not known here.
"""

from toolpost.rules.reading import parse_rules, read_rules
from toolpost.rules.rule import TABLE, Decision, Judge, Rules, Step, Verdict, by_mode

__all__ = [
    "TABLE",
    "Decision",
    "Judge",
    "Rules",
    "Step",
    "Verdict",
    "by_mode",
    "parse_rules",
    "read_rules",
]
