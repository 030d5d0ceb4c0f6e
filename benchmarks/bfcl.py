"""How many real schemas load, and how well they tell right calls from wrong ones.

    python -m benchmarks.bfcl …/bfcl_eval/data

The argument is the data directory of an installed ``bfcl-eval`` (the Berkeley Function Calling
Leaderboard, on PyPI). Its function descriptions are written in a dialect of their own, which is
brought to JSON Schema first. A right call is one that the benchmark accepts; a mutant is a right
call with one change that its schema forbids.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from toolpost.errors import InvalidArguments, InvalidSchema
from toolpost.schema import Schema, verify_input

Json = dict[str, Any]

_TYPES: Final = {
    **dict.fromkeys(("dict", "HashMap", "Hashtable", "object"), "object"),
    **dict.fromkeys(("float", "double", "number"), "number"),
    **dict.fromkeys(("integer", "byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("string", "String", "char"), "string"),
    **dict.fromkeys(("boolean", "bool", "Boolean"), "boolean"),
    **dict.fromkeys(
        ("array", "list", "tuple", "ArrayList", "Array", "Queue", "Stack", "Set"), "array"
    ),
}
_WRONG: Final[dict[str, Any]] = {
    "object": "text", "array": "text", "string": 12345, "integer": "text", "number": "text",
    "boolean": "text",
}  # fmt: skip


def lines(path: Path) -> Iterator[Json]:
    """The objects of a file with one per line."""
    for line in path.read_text("utf-8").split("\n"):
        if line.strip():
            yield json.loads(line)


def converted(schema: Any) -> Any:
    """A schema of the benchmark as JSON Schema; a type without a JSON form is left out."""
    if not isinstance(schema, dict):
        return schema
    made = {key: value for key, value in schema.items() if key not in ("type", "optional")}
    kind = _TYPES.get(schema["type"]) if isinstance(schema.get("type"), str) else None
    if kind is not None:
        made["type"] = kind
    if not isinstance(made.get("required", []), list):
        del made["required"]  # a boolean on the parameter itself
    if isinstance(made.get("properties"), dict):
        made["properties"] = {key: converted(one) for key, one in made["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if keyword in made:
            made[keyword] = converted(made[keyword])
    return made


def functions(data: Path) -> Iterator[tuple[str, str, Json]]:
    """Category and id of a task, with each function that it offers."""
    for file in sorted(data.glob("BFCL_v*.json")):
        if "format_sensitivity" not in file.name:
            for task in lines(file):
                offered = task.get("function") or []
                for one in offered if isinstance(offered, list) else [offered]:
                    yield file.name, task["id"], one


def right_calls(data: Path) -> Iterator[tuple[str, str, str, Json]]:
    """Category, task, function and accepted values of every answer with named arguments.

    Answers in Java and JavaScript are left out: their values are expressions, written as text.
    """
    for file in sorted((data / "possible_answer").glob("BFCL_v*.json")):
        for task in lines(file) if "java" not in file.name else ():
            for call in task["ground_truth"]:
                if isinstance(call, dict):
                    for name, options in call.items():
                        yield file.name, task["id"], name, options


def chosen(schema: Json, options: Json) -> Json:
    """One right call: of each argument the first accepted value that fits it, else the first.

    An empty value says that an argument may be left out; so does null, the default of many.
    """
    known = schema.get("properties", {})
    taken = {}
    for name, accepted in options.items():
        one = known.get(name, {})
        values = [_plain(one, value) for value in accepted if value not in ("", None)]
        if values:
            fitting = [value for value in values if not Schema(one).faults(value)]
            if fitting or "" not in accepted:
                taken[name] = (fitting or values)[0]
    return taken


def _plain(schema: Json, value: Any) -> Any:
    """Below an object every value is a list of accepted ones again."""
    if isinstance(value, list):
        inner = schema.get("items")
        return [_plain(inner if isinstance(inner, dict) else {}, one) for one in value]
    if isinstance(value, dict):
        return chosen(schema, {k: v if isinstance(v, list) else [v] for k, v in value.items()})
    return value


def mutants(schema: Json, arguments: Json) -> Iterator[tuple[str, Json, Json]]:
    """Kind, schema and arguments of every change that the schema forbids."""
    known = schema.get("properties", {})
    for name in schema.get("required", []):
        if name in arguments:
            yield "missing", schema, {k: v for k, v in arguments.items() if k != name}
    closed = {**schema, "additionalProperties": False}
    yield "unknown", closed, {**arguments, "no_such_parameter": 1}
    for name, value in arguments.items():
        for kind, wrong in _wrong(known.get(name, {}), value):
            yield kind, schema, {**arguments, name: wrong}


def _wrong(schema: Json, value: Any) -> Iterator[tuple[str, Any]]:
    kind = schema.get("type")
    if kind in _WRONG:
        yield "type", _WRONG[kind]
        yield "null", None
    if "enum" in schema and kind == "string":
        yield "enum", "no such value"
    if kind == "array" and isinstance(value, list) and isinstance(schema.get("items"), dict):
        for inner, wrong in _wrong(schema["items"], value[0] if value else None):
            yield f"item {inner}", [*value, wrong]
    if kind == "object" and isinstance(value, dict):
        for name, one in value.items():
            for inner, wrong in _wrong(schema.get("properties", {}).get(name, {}), one):
                yield f"property {inner}", {**value, name: wrong}
        for name in schema.get("required", []):
            if name in value:
                yield "property missing", {k: v for k, v in value.items() if k != name}


def accepts(schema: Json, arguments: Json) -> bool:
    try:
        Schema(schema).admit(arguments)
    except InvalidArguments:
        return False
    return True


def main(data: Path) -> None:
    offered: dict[tuple[str, str, str], Json] = {}
    counts: Counter[str] = Counter()
    for category, task, function in functions(data):
        schema = converted(function["parameters"])
        offered[category, task, function["name"]] = schema
        counts["schemas"] += 1
        try:
            verify_input(schema)
        except InvalidSchema as fault:
            counts["schemas refused"] += 1
            print("refused:", function["name"], fault)
    for category, task, name, options in right_calls(data):
        schema = offered.get((category, task, name), {})
        if not schema:
            counts["calls of an unknown function"] += 1
            continue
        counts["right calls"] += 1
        arguments = chosen(schema, options)
        if not accepts(schema, arguments):
            continue
        counts["right calls accepted"] += 1
        for kind, changed, wrong in mutants(schema, arguments):
            counts["mutants"] += 1
            if accepts(changed, wrong):
                counts[f"mutants accepted ({kind})"] += 1
            else:
                counts["mutants refused"] += 1
    for what, count in sorted(counts.items()):
        print(f"{what:40}{count:8,}")
    print(f"right calls accepted {counts['right calls accepted'] / counts['right calls']:.3%}")
    print(f"mutants refused {counts['mutants refused'] / counts['mutants']:.3%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
