"""A look through some data: ``Search`` says what was found, what becomes of it, in which words.

Above: ``sanitize.py``. Below: the rules of ``redact``, and what a schema says about a place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from toolpost.call import Call, Progress
from toolpost.errors import Denied, InvalidArguments, InvalidOutput
from toolpost.redact import Finding, Rules, names_a_secret, replaced, stripped
from toolpost.redact.pieces import Pieces
from toolpost.redact.places import ANYWHERE, RAW, SECRET, Place
from toolpost.result import Failure, Notice, Part, Resource, Result, Text
from toolpost.schema import Schema
from toolpost.wording import short

NAME: Final = "sanitize"
Action = Literal["redact", "block", "warn", "allow"]
_MOST_TOLD: Final = 10
_MOST_LISTED: Final = 50
_LONGEST_NAME: Final = 200

_replace: Callable[..., Any] = msgspec.structs.replace

_Told = list[tuple[str, str]]
"""Places, and what kind of thing was found there."""


class Search:
    """One look through some data: what was found, and the data as it may go on."""

    def __init__(
        self,
        rules: Rules,
        raw: Rules,
        actions: Mapping[str, Action],
        *,
        clean: Callable[[str], str] | None = None,
        stated: frozenset[str] = frozenset(),
        acts: bool = False,
    ) -> None:
        self._rules, self._raw, self._actions, self._clean = rules, raw, actions, clean
        self._stated, self._acts = stated, acts
        self._told: dict[Action, _Told] = {"redact": [], "warn": [], "block": [], "allow": []}
        self._whole: _Told = []

    @property
    def blocked(self) -> bool:
        return bool(self._told["block"])

    def data(self, value: Any, place: Place, at: tuple[str, ...]) -> Any:
        """The value, or a copy where something had to change."""
        kind = type(value)
        if kind is str:
            return self.text(value, place, at)
        if kind is dict:
            made: dict[Any, Any] = {}
            names = SECRET if place.secret else RAW if place.raw else ANYWHERE
            for key, item in value.items():
                name = self.text(key, names, at) if type(key) is str else key
                if name != key and (name in value or name in made):
                    name = f"{name} {len(made)}"
                made[name] = self.data(item, place.at(key), (*at, name))
            same = all(made.get(key, made) is item for key, item in value.items())
            return value if same else made
        if kind is list:
            inner = place.item()
            listed = [self.data(item, inner, (*at, str(i))) for i, item in enumerate(value)]
            same = all(a is b for a, b in zip(listed, value, strict=True))
            return value if same else listed
        return value

    def text(self, text: str, place: Place, at: tuple[str, ...]) -> str:
        if place.secret or text in self._stated:
            return text
        if self._clean is not None:
            text = self._clean(text)
        rules = self._raw if place.raw else self._rules
        found = rules.find(text)
        if at and not found and names_a_secret(at[-1]):
            found = _under_its_name(rules, at[-1], text)
        if not found:
            return text
        gone = []
        for finding in found:
            action = self._actions.get(finding.kind, "redact")
            self._told[action].append(("/".join(("", *at)), finding.kind))
            if action == "redact":
                gone.append(finding)
        if gone and self._acts and _is_all(text, gone):
            self._whole += [("/".join(("", *at)), finding.kind) for finding in gone]
        return replaced(text, gone) if gone else text

    def part(self, part: Part) -> Part:
        if isinstance(part, Text):
            text = self.text(part.text, ANYWHERE, ())
            return part if text is part.text else Text(text)
        if isinstance(part, Resource):
            uri = self.text(part.uri, ANYWHERE, ())
            body, name, description = (
                told and self.text(told, ANYWHERE, ())
                for told in (part.text, part.name, part.description)
            )
            return Resource(uri, part.mime, body, part.data, name, description)
        return part

    def failure(self, error: Failure) -> Failure:
        message = self.text(error.message, ANYWHERE, ())
        details = self.data(error.details, ANYWHERE, ())
        if message == error.message and details is error.details:
            return error
        cleaned: Failure = _replace(error, message=message, details=details)
        return cleaned

    def judge_arguments(self, call: Call) -> None:
        """Refuse what may not pass, and say what was found in the rest."""
        if blocked := self._told["block"]:
            raise Denied(
                f"The arguments of {call.tool} hold {_listed(blocked)}, which may not be passed to "
                "this tool, so it was not run. Take it out and call again."
                + (_MARKED_PARAMETER if self._secret(blocked) else _RAW_PARAMETER),
                remedy="fix_args",
                effects="none",
                details=_details(blocked),
            )
        if self._whole:
            marks = ", ".join(dict.fromkeys(f'"[redacted:{kind}]"' for _, kind in self._whole))
            raise self._refusal(call, self._whole, f"{call.tool} would act on {marks} instead")
        for action, verb in _VERBS:
            if told := self._told[action]:
                call.warn(f"{verb} in the arguments: {_listed(told)}.")
                call.note(NAME, f"{verb.lower()} in the arguments: {_listed(told)}")
        if passed := self._told["allow"]:  # the audit has to search what it is told here
            call.note(NAME, f"passed in the arguments: {_listed(passed)}")

    def result(self, tool: str, result: Result, schema: Schema) -> Result:
        """The result as it may be handed over. What was redacted is said to whoever reads it."""
        output = self.data(result.output, ANYWHERE, ())
        parts = tuple(self.part(part) for part in result.parts)
        error = None if result.error is None else self.failure(result.error)
        if blocked := self._told["block"]:
            raise Denied(
                f"The output of {tool} may not hold {_listed(blocked)}. The output is withheld.",
                remedy="other_tool",
                effects="done",
                details=_details(blocked),
            )
        if output is not result.output:
            self._verify_fit(tool, result.output, output, schema)
        if redacted := self._told["redact"]:
            if error is None:
                parts = (*parts, Notice(f"Redacted in the output: {_listed(redacted)}.{_MARKS}"))
            else:
                message = f"{error.message} (Redacted in this error: {_listed(redacted)}.)"
                error = _replace(error, message=message)
        if output is result.output and parts == result.parts and error is result.error:
            return result
        cleaned: Result = _replace(result, output=output, parts=parts, error=error)
        return cleaned

    def warn_of_output(self, call: Call) -> None:
        """Say in the warnings and on the trail what was found in the output."""
        for action, verb in _VERBS:
            if told := self._told[action]:
                more = _MARKS if action == "redact" else ""
                call.warn(f"{verb} in the output: {_listed(told)}.{more}")
                call.note(NAME, f"{verb.lower()} in the output: {_listed(told)}")

    def _verify_fit(self, tool: str, before: Any, after: Any, schema: Schema) -> None:
        """Withhold an output that fitted the tool's schema and, redacted, does not any more:
        clients validate it as well, and would lose all of it without a word that helps.
        """
        try:
            schema.check(after)
            return
        except InvalidOutput as fault:  # which tells what an enum or a const states
            problem = self._rules.redact_text(fault.message)
        try:
            schema.check(before)
        except InvalidOutput:  # another guard has put something else in its place
            return
        redacted = self._told["redact"]
        what = (
            f"Redacted in the output of {tool}: {_listed(redacted)}."
            if redacted
            else f"Characters that cannot be seen were taken out of the output of {tool}."
        )
        kinds = dict.fromkeys(kind for _, kind in redacted if not self._rules.kinds[kind])
        allowed = ", ".join(f'{kind} = "allow"' for kind in kinds)
        raise Denied(
            f"{what} What is left does not fit the tool's output schema ({problem}), so "
            "the output is withheld. The tool did run: do not call it again for this. Whoever "
            "describes the tool can loosen its output schema"
            + (f", or let it pass: {allowed} in [extensions.sanitize.actions]." if kinds else "."),
            remedy="other_tool",
            effects="done",
            details=_details(redacted),
        )

    def _secret(self, told: _Told) -> bool:
        return any(self._rules.kinds[kind] for _, kind in told)

    def unfit(self, call: Call, fault: InvalidArguments) -> Denied:
        """What is left after redaction does not fit the schema; before, it did."""
        why = f"what is left does not fit the tool's schema ({fault.message})"
        return self._refusal(call, self._told["redact"], why, fault.details)

    def _refusal(
        self, call: Call, told: _Told, why: str, more: Mapping[str, Any] | None = None
    ) -> Denied:
        """The caller cannot mend it: what it has sent is in order, and is not let through."""
        kinds = {self._rules.kinds[kind] for _, kind in told}
        return Denied(
            f"The arguments of {call.tool} may not hold {_listed(told)}: it is redacted, and {why}."
            " Do not send it again: call without it, or not at all."
            + (_MARKED_PARAMETER if True in kinds else "")
            + (_RAW_PARAMETER if False in kinds else ""),
            details={**_details(told), **(more or {})},
        )


_VERBS: Final[tuple[tuple[Action, str], ...]] = (("redact", "Redacted"), ("warn", "Passed on"))
_MARKS: Final = (
    " [redacted:…] stands where the value was taken out. Never use that mark as if it were the "
    "value."
)
_MARKED_PARAMETER: Final = (
    " If the tool needs the secret, whoever describes it can mark the parameter as "
    '"x-secret": true, or let the configuration give the tool its value.'
)
_RAW_PARAMETER: Final = (
    " If the tool cannot do without personal data, whoever describes it can mark the parameter as "
    '"x-raw": true.'
)


def _is_all(text: str, gone: list[Finding]) -> bool:
    """Whether a text is nothing but what is found in it: ``bob@example.com``, or ``Bob <…>``."""
    last = gone[-1]
    named = text[last.start - 1 : last.start] == "<" and text[last.end :].strip() == ">"
    if named and len(text) <= _LONGEST_NAME and "\n" not in text:
        return True
    end = 0
    for finding in gone:
        if any(map(str.isalnum, text[end : finding.start])):
            return False
        end = finding.end
    return not any(map(str.isalnum, text[end:]))


def _details(told: _Told) -> dict[str, Any]:
    return {"findings": [{"at": at, "kind": kind} for at, kind in told[:_MOST_LISTED]]}


def _under_its_name(rules: Rules, name: str, text: str) -> list[Finding]:
    """``{"api_key": "…"}`` is as much of an assignment as ``api_key = "…"``."""
    before = f'{name}="'
    found = rules.find(f'{before}{text}"')
    shift = len(before)
    return [
        Finding(kind, start - shift, min(end - shift, len(text)))
        for kind, start, end in found
        if start >= shift
    ]


def _listed(told: _Told) -> str:
    each = list(dict.fromkeys(f"{kind} at {short(at)}" if at else kind for at, kind in told))
    more = f" and {len(each) - _MOST_TOLD} more" if len(each) > _MOST_TOLD else ""
    return ", ".join(each[:_MOST_TOLD]) + more


class Heard:
    """Who listens to a running tool: nothing that is in two pieces gets past, and a blocked one is
    lost.
    """

    def __init__(
        self,
        listener: Callable[[Progress], None],
        rules: Rules,
        actions: Mapping[str, Action],
    ) -> None:
        self._listener, self._rules, self._actions = listener, rules, actions
        self._pieces = Pieces()

    def __call__(self, said: Progress) -> None:
        if type(said.partial) is not str:
            if said.partial is not None:
                self.close()
            self._tell(said)
        elif whole := self._pieces.hear(said.partial):
            self._tell(_replace(said, partial=whole))
        elif said.message is not None or said.done is not None:
            self._tell(_replace(said, partial=None))

    def close(self) -> None:
        if rest := self._pieces.rest():
            self._tell(Progress(partial=rest))

    def _tell(self, said: Progress) -> None:
        search = Search(self._rules, self._rules, self._actions, clean=stripped)
        message = said.message and search.text(said.message, ANYWHERE, ())
        partial = search.data(said.partial, ANYWHERE, ())
        if not search.blocked:
            self._listener(Progress(said.done, said.total, message, partial))
