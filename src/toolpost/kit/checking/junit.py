"""Scores as JUnit has them, for the programs that show test results: a suite for each tool.

Above: ``toolpost check --junit``. Below: the scores, and the standard library's XML.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from toolpost.characters import visible
from toolpost.kit.checking.findings import Judged, Scored, Scores


def junit(scores: Scores, *, strict: bool = False) -> str:
    """The document. With ``strict`` an item in doubt is a failure too."""
    suites = ET.Element("testsuites", name="toolpost check")
    for tool in scores.tools:
        suites.append(_suite(tool, strict=strict))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _suite(tool: Scored, *, strict: bool) -> ET.Element:
    cases = [_case(tool, one, strict=strict) for one in tool.items]
    count = {kind: sum(case.find(kind) is not None for case in cases) for kind in _KINDS}
    suite = ET.Element(
        "testsuite",
        name=_text(tool.name),
        tests=str(len(cases)),
        failures=str(count["failure"]),
        skipped=str(count["skipped"]),
    )
    suite.extend(cases)
    return suite


_KINDS = ("failure", "skipped")


def _case(tool: Scored, one: Judged, *, strict: bool) -> ET.Element:
    case = ET.Element("testcase", classname=_text(tool.name), name=one.item)
    if one.outcome == "n/a":
        ET.SubElement(case, "skipped", message=_text(one.why))
        return case
    said = [f"{x.severity} at {x.at or '/'}: {x.what}. {x.fix}" for x in one.findings]
    if one.outcome == "failed" or (strict and one.outcome == "warned"):
        counts = next(x for x in one.findings if x.severity != "hint")
        failure = ET.SubElement(case, "failure", message=_text(counts.what))
        failure.text = _text("\n".join(said))
    elif said:
        ET.SubElement(case, "system-out").text = _text("\n".join(said))
    return case


def _text(text: str) -> str:
    """Without what XML cannot hold: some characters stand for themselves nowhere in it."""
    return "".join(char if char not in "\ufffe\uffff" else "?" for char in visible(text))
