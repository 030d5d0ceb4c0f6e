"""How good a tool is: a list of items, each passed, failed, in doubt or not applicable.

    from toolpost.kit.checking import check

    check([my_tool]).raise_if_failed()

Above: ``toolpost check``, and tests of tools. Below: specs, schemas, exporters, the test kit.
"""

from toolpost.kit.checking.around import Pipeline
from toolpost.kit.checking.checklist import CHECKLIST, ITEMS, LINT, check
from toolpost.kit.checking.findings import Finding, Judged, Scored, Scores
from toolpost.kit.checking.reading import subjects_in
from toolpost.kit.checking.subject import Subject, subject_of, subject_of_definition
from toolpost.kit.checking.trying import tried

__all__ = [
    "CHECKLIST",
    "ITEMS",
    "LINT",
    "Finding",
    "Judged",
    "Pipeline",
    "Scored",
    "Scores",
    "Subject",
    "check",
    "subject_of",
    "subject_of_definition",
    "subjects_in",
    "tried",
]
