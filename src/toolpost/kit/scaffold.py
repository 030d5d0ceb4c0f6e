"""A new tool to begin with: its file, and tests of it that pass at once.

Above: ``toolpost new``. Below: nothing; what comes out is text. Every tool made here counts the
words of a text, so that its author has something that works to change into what is wanted.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

from toolpost.spec import ToolSpec

Style = Literal["function", "class", "spec", "shell", "http"]
STYLES: Final[tuple[Style, ...]] = get_args(Style)

_TAKEN: Final = frozenset((*dir(builtins), "tool", "text", "ToolFailed", "Tool", "asyncio"))
"""Names that the files made here need for something else."""
_WHAT: Final = "Count the words of a text."
_WHEN: Final = "Use it when the length of a text matters, for example before it is shortened."
_PARAMETER: Final = "The text whose words are counted."

_FUNCTION: Final = '''\
"""The tool {name}. Change what it does; its tests are in test_{stem}.py."""

from typing import Annotated

from pydantic import Field

from toolpost import ToolFailed, tool

Words = Annotated[str, Field(max_length=100_000, description="{parameter}")]


@tool(
    name="{name}",
    category="other",
    tags=["text"],
    tier=0,  # 0 safe, 1 standard, 2 elevated, 3 restricted, 4 dangerous
    effects="read",  # read, idempotent or once: decides what may be repeated
    timeout=5,
    examples=[{{"text": "to be or not to be"}}],
)
async def {function}(text: Words) -> int:
    """{what}

    {when}
    """
    if not text.strip():
        raise ToolFailed("There is no text: give some.")
    return len(text.split())
'''

_CLASS: Final = '''\
"""The tool {name}. Change what it does; its tests are in test_{stem}.py."""

from typing import Annotated

from pydantic import Field

from toolpost import Tool, ToolFailed

Words = Annotated[str, Field(max_length=100_000, description="{parameter}")]


class {klass}(
    Tool,
    name="{name}",
    category="other",
    tags=["text"],
    tier=0,  # 0 safe, 1 standard, 2 elevated, 3 restricted, 4 dangerous
    effects="read",  # read, idempotent or once: decides what may be repeated
    timeout=5,
    examples=[{{"text": "to be or not to be"}}],
):
    """{what}

    {when}
    """

    async def initialize(self) -> None:
        """Open here, once, what every call needs; `close` is called after the last."""
        self.separator = None

    async def run(self, text: Words) -> int:
        if not text.strip():
            raise ToolFailed("There is no text: give some.")
        return len(text.split(self.separator))
'''

_PLAIN: Final = '''\
"""The function of {stem}.yaml. Change what it does."""

from toolpost import ToolFailed


def {function}(text: str) -> int:
    if not text.strip():
        raise ToolFailed("There is no text: give some.")
    return len(text.split())
'''

_SPEC: Final = """\
# The tool {name}. Change what it does; its tests are in test_{stem}.py.
tools:
  - name: {name}
    description: >-
      {what}
      {when}
    kind: {kind}
    category: other
    tags: [text]
    tier: {tier}  # 0 safe, 1 standard, 2 elevated, 3 restricted, 4 dangerous
    effects: read  # read, idempotent or once: decides what may be repeated
    timeout: {timeout}  # seconds
{more}    input_schema:
      type: object
      properties:
        text:
          type: string
          minLength: 1
          maxLength: 100000
          description: {parameter}
      required: [text]
      additionalProperties: false
    output_schema: {{type: integer}}
    examples:
      - {{text: to be or not to be}}
    binding:
{binding}"""

_BINDINGS: Final[Mapping[str, str]] = {
    "spec": "      module: {stem}\n      function: {function}\n",
    "shell": "      command: wc -w\n      stdin: '{{text}}'\n      output: json\n",
    "http": (
        "      url: https://api.example.com/words\n"
        "      query: {{text: '{{text}}'}}\n"
        "      # auth: {{bearer: EXAMPLE_TOKEN}}  # the name of a variable, never the secret\n"
        "      response: {{pointer: /words}}\n"
    ),
}

_TEST: Final = '''\
"""Tests of {name}: what callers do to a tool, and what it is for."""

import asyncio
{imports}

{given}def test_it_does_well_whatever_a_caller_does() -> None:
    report = asyncio.run({checked})
    report.raise_if_failed()


def test_it_counts_words() -> None:
    async def counted(text: str) -> object:
        {opened}
            return (await tools.execute("{name}", {{"text": text}})).output

    assert asyncio.run(counted("to be or not to be")) == 6
'''

_TESTED_CODE: Final = {
    "imports": """
from toolpost.testing import check_tool, sample_executor

from {stem} import {symbol}
""",
    "given": "",
    "checked": 'check_tool({symbol}, failing={{"text": " "}})',
    "opened": "async with sample_executor({symbol}) as tools:",
}
_LOADED: Final = """\
def declared() -> Declared:
    source = FilesSource(["{stem}.yaml"], base=Path(__file__).parent)
    (found,) = asyncio.run(source.load(lambda done, total: None))
    return found


TOOL = declared()


"""
_TESTED_SPEC: Final = {
    "imports": """from pathlib import Path

from toolpost import Executor, Registry
from toolpost.contracts import Declared
from toolpost.sources.files import FilesSource
from toolpost.testing import check_tool
""",
    "given": _LOADED,
    "checked": 'check_tool(TOOL, failing={{"text": " "}})',
    "opened": "async with Executor(Registry([TOOL])) as tools:",
}
_TESTED_SHELL: Final = {
    "imports": """from pathlib import Path

from toolpost import Executor, Registry
from toolpost.backends.shell.backend import ShellBackend
from toolpost.contracts import Declared, Services
from toolpost.sources.files import FilesSource
from toolpost.testing import check_tool
""",
    "given": _LOADED.rstrip()
    + """
SETTINGS = {{"shell": {{"programs": ["wc"]}}}}  # as [backends.shell] of a config has them


""",
    "checked": """
        check_tool(TOOL, backends={{"shell": ShellBackend(Services(settings=SETTINGS))}})
    """,
    "opened": "async with Executor(Registry([TOOL]), settings=SETTINGS) as tools:",
}
_TESTED_HTTP: Final = {
    "imports": """import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from toolpost import Executor, Registry, ToolSpec
from toolpost.sources.files import FilesSource
from toolpost.testing import check_tool
""",
    "given": '''\
class Service(BaseHTTPRequestHandler):
    """Answers as the real one does."""

    def do_GET(self) -> None:
        (text,) = parse_qs(urlsplit(self.path).query)["text"]
        body = json.dumps({{"words": len(text.split())}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def tool() -> Iterator[ToolSpec]:
    """The tool as the file has it, but for where it goes."""
    source = FilesSource(["{stem}.yaml"], base=Path(__file__).parent)
    (found,) = asyncio.run(source.load(lambda done, total: None))
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        here = f"127.0.0.1:{{server.server_port}}"
        binding = {{**found.spec.binding, "url": f"http://{{here}}/words"}}
        yield msgspec.structs.replace(found.spec, egress=(here,), binding=binding)
        server.shutdown()


''',
    "checked": "check_tool(tool)",
    "opened": "async with Executor(Registry([tool])) as tools:",
}
_TESTED: Final[Mapping[Style, Mapping[str, str]]] = {
    "function": _TESTED_CODE,
    "class": _TESTED_CODE,
    "spec": _TESTED_SPEC,
    "shell": _TESTED_SHELL,
    "http": _TESTED_HTTP,
}


def scaffold(name: str, style: Style = "function") -> dict[str, str]:
    """File name → its text. A name that no tool may have is an ``InvalidSpec``."""
    ToolSpec(name=name, description="Is the name one?")
    words = _words(name)
    told = {"name": name, "what": _WHAT, "when": _WHEN, "parameter": _PARAMETER}
    told |= {"function": words["function"], "klass": words["klass"], "stem": words["stem"]}
    told["symbol"] = told["klass"] if style == "class" else told["function"]
    stem = told["stem"]
    tested = {part: text.format_map(told) for part, text in _TESTED[style].items()}
    test = _TEST.format_map({**told, **tested})
    if style == "http":
        test = test.replace("() -> None:\n    report", "(tool: ToolSpec) -> None:\n    report")
        test = test.replace("words() -> None:", "words(tool: ToolSpec) -> None:")
    files = {f"test_{stem}.py": test}
    if style == "function":
        return {f"{stem}.py": _FUNCTION.format_map(told), **files}
    if style == "class":
        return {f"{stem}.py": _CLASS.format_map(told), **files}
    if style == "spec":
        files = {f"{stem}.py": _PLAIN.format_map(told), **files}
    return {f"{stem}.yaml": _declared(style, told), **files}


def configured(name: str, style: Style) -> str:
    """What a config says to have the tool."""
    stem = _words(name)["stem"]
    if style in ("function", "class"):
        return f'[[sources]]\nkind = "modules"\nmodules = ["{stem}"]\n'
    source = f'[[sources]]\nkind = "files"\npaths = ["{stem}.yaml"]\n'
    return source + ('\n[backends.shell]\nprograms = ["wc"]\n' if style == "shell" else "")


def _declared(style: Style, told: Mapping[str, str]) -> str:
    more = '    egress: ["api.example.com:443"]\n' if style == "http" else ""
    kind = {"spec": "python"}.get(style, style)
    return _SPEC.format_map(
        {
            **told,
            "kind": kind,
            "tier": "0" if style == "spec" else "1",
            "timeout": {"http": "10", "shell": "10"}.get(style, "5"),
            "more": more,
            "binding": _BINDINGS[style].format_map(told),
        }
    )


def _words(name: str) -> dict[str, str]:
    """A name as Python writes it; a file of ours never hides a module of somebody else's."""
    parts = re.findall(r"[A-Za-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)) or ["tool"]
    snake = "_".join(parts).lower()
    stem = snake if snake.endswith("_tool") else f"{snake}_tool"
    stem = f"t{stem}" if stem[0].isdigit() else stem
    return {
        "stem": stem,
        "function": stem.removesuffix("_tool") if _free(stem.removesuffix("_tool")) else stem,
        "klass": "".join(part[:1].upper() + part[1:] for part in stem.split("_")),
    }


def _free(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word) and word not in _TAKEN
