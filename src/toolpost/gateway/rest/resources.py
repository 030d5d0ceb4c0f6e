"""What the REST door has without any tool, as OpenAPI describes it: data, held against the routes
by a test.

Above: ``openapi.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from toolpost.errors import Code, Outcome, Remedy
from toolpost.exporters import FORMATS
from toolpost.gateway.rest.wanted import LONGEST_TIME, SHORTEST_TIME
from toolpost.jobs.values import State

LATEST: Final = 1e11
"""A moment, in seconds since 1970, beyond which nobody keeps anything."""
APPROVAL: Final = "ap-[0-9a-f]{20}"
JOB: Final = "jb-[0-9a-f]{20}"
"""What handles look like."""
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}

CALL_FIELDS: Final[Mapping[str, Any]] = {
    "session_id": {**_TEXT, "description": "The conversation that the call belongs to."},
    "timeout": {
        "type": "number",
        "minimum": SHORTEST_TIME,
        "maximum": LONGEST_TIME,
        "description": "Seconds after which nobody waits any longer.",
    },
    "phase": {**_TEXT, "description": "The phase of the caller's work."},
    "grant": {**_TEXT, "description": "The handle of an approval for this very call."},
}

COMPONENTS: Final[Mapping[str, Any]] = {
    "Result": {
        "type": "object",
        "required": ["success", "output", "parts", "metadata"],
        "properties": {
            "success": {"const": True},
            "output": {"description": "What the tool gave back."},
            "parts": {"type": "array", "items": {"type": "object"}},
            "error": {"type": "null"},
            "metadata": {
                "type": "object",
                "required": ["call_id"],
                "properties": {"call_id": {"type": "string"}},
            },
        },
    },
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "remedy", "retryable", "effects"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "code": {"enum": list(get_args(Code))},
            "remedy": {"enum": list(get_args(Remedy))},
            "retryable": {"type": "boolean"},
            "effects": {"enum": list(get_args(Outcome))},
            "retry_after": {"type": "number"},
            "details": {"type": "object"},
            "metadata": {"type": "object"},
        },
    },
    "Tool": {
        "type": "object",
        "required": ["name", "description"],
        "properties": {
            "name": {"type": "string"},
            "description": {"type": "string"},
            "input_schema": {"type": "object"},
        },
    },
    "Export": {
        "type": "object",
        "description": "Tools in a vendor's form, and how to understand a model that calls them.",
        "required": [
            "format",
            "tools",
            "names",
            "keys",
            "notes",
            "left_out",
            "tokens",
            "tokens_in_all",
        ],
        "properties": {
            "format": {"enum": list(FORMATS)},
            "tools": {"type": "array", "items": {"type": "object"}},
            "names": {
                "type": "object",
                "description": "Name at the vendor → name of the tool.",
                "additionalProperties": {"type": "string"},
            },
            "keys": {
                "type": "object",
                "description": "Name at the vendor → parameter at the vendor → the tool's own.",
                "additionalProperties": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
            },
            "notes": {"type": "array", "items": {"$ref": "#/components/schemas/ExportNote"}},
            "left_out": {"type": "array", "items": {"$ref": "#/components/schemas/ExportNote"}},
            "tokens": {"type": "object", "additionalProperties": {"type": "integer"}},
            "tokens_in_all": {"type": "integer"},
        },
    },
    "ExportNote": {
        "type": "object",
        "required": ["tool", "where", "what"],
        "properties": {
            "tool": {"type": "string"},
            "where": {"type": "string", "description": "In its input schema, or in its spec."},
            "what": {"type": "string", "description": "What was done there."},
        },
    },
    "Approval": {
        "type": "object",
        "required": ["handle", "tool", "arguments", "caller", "status"],
        "properties": {
            "handle": {"type": "string"},
            "tool": {"type": "string"},
            "arguments": {},
            "caller": {"type": "object"},
            "status": {"enum": ["waiting", "approved", "denied", "used", "expired"]},
        },
    },
    "Job": {
        "type": "object",
        "required": ["id", "tool", "state", "created"],
        "properties": {
            "id": {"type": "string"},
            "tool": {"type": "string"},
            "state": {"enum": list(get_args(State))},
            "created": {"type": "number"},
            "result": {"type": "object"},
        },
    },
    "AuditedCall": {
        "type": "object",
        "required": ["kind", "tool", "code"],
        "properties": {"tool": {"type": "string"}, "code": {"type": "string"}},
    },
}

RESPONSES: Final[Mapping[str, Any]] = {
    "Problem": {
        "description": "Why it failed, and what to do next.",
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }
}

PARAMETERS: Final[Mapping[str, Any]] = {
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The same call with the same key runs once.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    }
}

SECURITY: Final[Mapping[str, Any]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (toolpost keys create), or a token of an issuer that is "
        "believed here.",
    }
}


def _query(name: str, schema: Mapping[str, Any], said: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": said}


def _path(name: str, said: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema, "description": said}


_QUERY_TEXT: Final = {**_TEXT, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]+$"}
_WORDS: Final = {**_QUERY_TEXT, "not": {"pattern": "^\\s*$"}}
_LIMIT: Final = _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "At most.")


def _after(schema: Mapping[str, Any]) -> dict[str, Any]:
    return _query("after", schema, "The `next` of the page before.")


_HANDLE: Final = _path("handle", "The handle of an approval.")


def _json(schema: Mapping[str, Any], said: str) -> dict[str, Any]:
    return {"description": said, "content": {"application/json": {"schema": schema}}}


def _job(said: str) -> dict[str, Any]:
    content = {
        "application/json": {"schema": _ref("Job")},
        "text/event-stream": {"schema": {"type": "string"}},
    }
    return {"description": said, "content": content}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _page(name: str, of: str) -> dict[str, Any]:
    listed = {"type": "array", "items": _ref(of)}
    return {
        "type": "object",
        "required": [name],
        "properties": {name: listed, "next": {"type": "string"}},
    }


def _operation(
    name: str,
    said: str,
    answer: Mapping[str, Any] | None,
    *parameters: Mapping[str, Any],
    body: Mapping[str, Any] | None = None,
    needed: bool = False,
) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": name, "summary": said, "tags": ["gateway"]}
    if parameters:
        made["parameters"] = list(parameters)
    if body is not None:
        content = {"application/json": {"schema": body}}
        made["requestBody"] = {"required": needed, "content": content}
    good = {"204": {"description": "Done."}} if answer is None else {"200": answer}
    return made | {"responses": {**good, "default": _PROBLEM}}


def _said(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


_REASON: Final = {"type": "string", "maxLength": 2000}
_SEEN: Final = {"type": "string", "description": "The `seen` of what was looked at."}
_OBJECT: Final = {"type": "object"}
_LASTING: Final = _said(
    session={"type": "boolean", "description": "Only in the session that asked."},
    where={"type": "object", "description": "Argument → a JSON Schema that it must fit."},
    seconds={"type": "number", "exclusiveMinimum": 0},
    uses={"type": ["integer", "null"], "minimum": 1},
)
_TOOL_FILTERS: Final = (
    _query("kind", _QUERY_TEXT, "Only of this kind."),
    _query("category", _QUERY_TEXT, "Only of this category."),
    _query("tag", _QUERY_TEXT, "Only with this tag."),
    _query("tier", {"type": "integer", "minimum": 0, "maximum": 4}, "Only up to this tier."),
    _query("search", _WORDS, "Only what does what these words say, best first, with scores."),
)
_FORMAT: Final = (
    _query("format", {"enum": list(FORMATS)}, "As this vendor wants them, and all at once."),
    _query("strict", {"enum": ["true", "false"]}, "With a format: schemas a model is held to."),
)
_MOMENT: Final = {"type": "number", "minimum": 0, "maximum": LATEST}
_AUDIT_FILTERS: Final = (
    *(
        _query(name, _QUERY_TEXT, "Only with this.")
        for name in ("tool", "caller", "session", "code", "text")
    ),
    _query("since", _MOMENT, "Seconds since 1970: only from then on."),
    _query("until", _MOMENT, "Seconds since 1970: only from before then."),
)

PATHS: Final[Mapping[str, Any]] = {
    "/v1/tools": {
        "get": _operation(
            "list_tools",
            "The tools that there are for you.",
            _json(
                {"anyOf": [_page("tools", "Tool"), _ref("Export")]},
                "A page of them, by name; with a format, all of them, as an export.",
            ),
            *_TOOL_FILTERS,
            *_FORMAT,
            _LIMIT,
            _after(_QUERY_TEXT),
        )
    },
    "/v1/tools/{name}": {
        "get": _operation(
            "show_tool",
            "One tool.",
            _json(_ref("Tool"), "Its spec."),
            _path("name", "The name of a tool."),
        )
    },
    "/v1/calls": {
        "get": _operation(
            "list_calls",
            "Your calls that are running.",
            _json({"type": "object", "required": ["calls"]}, "In this process."),
        )
    },
    "/v1/calls/{call_id}": {
        "delete": _operation(
            "stop_call",
            "Stop a call of yours that is running.",
            None,
            _path("call_id", "The id of a call."),
        )
    },
    "/v1/approvals": {
        "get": _operation(
            "list_approvals",
            "What waits for a yes.",
            _json(_page("approvals", "Approval"), "A page of them, the oldest first."),
            _query(
                "status",
                {"enum": ["waiting", "approved", "denied", "used", "expired", "all"]},
                "Only these.",
            ),
            _LIMIT,
            _after({"type": "string", "pattern": f"^{APPROVAL}$"}),
        )
    },
    "/v1/approvals/{handle}": {
        "get": _operation(
            "show_approval", "One of them.", _json(_ref("Approval"), "As it stands."), _HANDLE
        )
    },
    "/v1/approvals/{handle}:approve": {
        "post": _operation(
            "approve",
            "Say yes; with `arguments`, to these instead.",
            _json(_ref("Approval"), "As it stands now."),
            _HANDLE,
            body=_said(reason=_REASON, arguments=_OBJECT, lasting=_LASTING, seen=_SEEN),
        )
    },
    "/v1/approvals/{handle}:deny": {
        "post": _operation(
            "deny",
            "Say no, or take back a yes that is not used.",
            _json(_ref("Approval"), "As it stands now."),
            _HANDLE,
            body=_said(reason=_REASON, seen=_SEEN),
        )
    },
    "/v1/approvals/{handle}:resume": {
        "post": _operation(
            "resume",
            "Make the call that a yes was given for.",
            _json(_ref("Result"), "What came back."),
            _HANDLE,
            {"$ref": "#/components/parameters/IdempotencyKey"},
        )
    },
    "/v1/jobs": {
        "get": _operation(
            "list_jobs",
            "Your detached calls.",
            _json(_page("jobs", "Job"), "A page of them, the oldest first."),
            _query("state", {"enum": list(get_args(State))}, "Only in this state."),
            _LIMIT,
            _after({"type": "string", "pattern": f"^{JOB}$"}),
        )
    },
    "/v1/jobs/{job_id}": {
        "get": _operation(
            "show_job",
            "One of them; as text/event-stream, until it has ended.",
            _job("As it stands, with its result if it has ended."),
            _path("job_id", "The id of a job."),
        ),
        "delete": _operation(
            "cancel_job",
            "Stop it, wherever it runs.",
            _json(_ref("Job"), "As it stands now."),
            _path("job_id", "The id of a job."),
        ),
    },
    "/v1/artifacts/{handle}": {
        "get": _operation(
            "show_artifact",
            "An output that was too large: its size, type and time.",
            _json(_OBJECT, "About it."),
            _path("handle", "The handle of an artifact."),
        )
    },
    "/v1/artifacts/{handle}/content": {
        "get": _operation(
            "read_artifact",
            "Its bytes, or a range of them (Range).",
            {"description": "All of it.", "content": {"*/*": {"schema": {}}}},
            _path("handle", "The handle of an artifact."),
        )
    },
    "/v1/audit": {
        "get": _operation(
            "search_audit",
            "The calls on record that fit, the latest of them.",
            _json(_page("calls", "AuditedCall"), "The oldest first."),
            *_AUDIT_FILTERS,
            _LIMIT,
        )
    },
    "/v1/audit/{call_id}": {
        "get": _operation(
            "show_audited_call",
            "One call on record.",
            _json(_ref("AuditedCall"), "Everything about it."),
            _path("call_id", "The id of a call."),
        )
    },
    "/v1/audit:verify": {
        "post": _operation(
            "verify_audit",
            "Prove that the audit is as it was written.",
            _json(
                {
                    "type": "object",
                    "required": ["ok"],
                    "properties": {"ok": {"type": "boolean"}},
                },
                "What was found.",
            ),
        )
    },
    "/healthz": {
        "get": _operation("alive", "Whether the process answers.", _json(_OBJECT, "It does."))
    },
    "/readyz": {
        "get": _operation(
            "ready",
            "How every source, backend and store is.",
            _json({"type": "object", "required": ["ready", "parts"]}, "It serves."),
        )
    },
    "/metrics": {
        "get": _operation(
            "metrics",
            "What the calls came to, for Prometheus.",
            {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        )
    },
    "/openapi.json": {
        "get": _operation("describe", "This description.", _json(_OBJECT, "OpenAPI 3.1."))
    },
}
