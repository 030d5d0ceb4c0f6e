"""Source code: which language, by the words and marks that only it has.

Above: ``tool.py``. Below: nothing. Code is never parsed: every language has some lines that look
like it, and they are counted. A file's ending counts where it is known, but never alone.
"""

from __future__ import annotations

import re
from typing import Final

from toolpost.builtin.classify.guess import Guess, Sample

_LINES: Final = 600


def _signs(*patterns: tuple[float, str]) -> tuple[tuple[float, re.Pattern[str]], ...]:
    return tuple((weight, re.compile(pattern)) for weight, pattern in patterns)


_LANGUAGES: Final = {
    "python": _signs(
        (3, r"\s*(?:async )?def \w+\(.*(?:\)|,|\()\s*(?:->.{0,80})?:?\s*$"), (3, r"from [\w.]+ import "),
        (1.5, r"import [\w.]+(?: as \w+)?\s*$"), (2, r"\s*(?:elif .{1,200}|except\b.{0,100}|else|try|finally):\s*$"),
        (2, r"\s*class \w+(?:\([\w., =\[\]]*\))?:\s*$"), (3, r"if __name__ == ['\"]__main__['\"]:"),
        (1, r"\s*(?:for .{1,100} in .{1,100}|with .{1,200}|while .{1,100}|if .{1,200}):\s*$"),
        (1, r"\s*@\w+(?:\.\w+)*(?:\(.*\))?\s*$"), (1, r"\s*(?:self\.\w+|return self|print\()"), (1, r'\s*"""'),
    ),
    "javascript": _signs(
        (2, r"\s*(?:export )?(?:const|let|var) [\w{}\[\], :$]+ ="), (2, r"\s*(?:export )?(?:default )?(?:async )?function\*? ?[\w$]*\("),
        (3, r".*\brequire\(['\"]"), (3, r"\s*(?:import|export) .* from ['\"].+['\"];?\s*$"), (3, r"['\"]use strict['\"];?"),
        (3, r"\s*(?:module\.)?exports\b|Object\.defineProperty\(exports"), (2, r"\s*export (?:default |\{|\* |class |async )"), (2, r".*=> [{(]?\s*$"),
        (2, r".*\bconsole\.(?:log|error|warn)\("), (1.5, r".*\b(?:document|window|process|Promise|JSON|Object)\.\w+"), (1.5, r".*(?:===|!==)"), (2, r"\s*(?:return )?this\.\w+"),
        (2, r"\s*class \w+(?: extends [\w.]+)? \{"), (1.5, r".*\bfunction ?\("), (1, r"\s*\}\);?\s*$"), (1, r"\s*(?:await|async|throw new|typeof) "),
    ),
    "typescript": _signs(
        (4, r"\s*(?:export )?(?:declare )?interface \w+(?:<.{1,60}>)?(?: extends [\w, <>]+)? \{"), (4, r"\s*(?:export )?(?:declare )?type \w+(?:<.{1,60}>)? = "), (4, r"\s*(?:export )?declare (?:const|function|class|module|namespace|let|var|global)\b"),
        (3, r".*\b(?:const|let|function) \w+.{0,80}: (?:string|number|boolean|Promise|Array|Record|void|unknown|any)\b"), (3, r"\s*(?:import|export) type "),
        (3, r".*\([^()]*\w+\??: (?:string|number|boolean|\w+\[\]|unknown|any)\b.*\)"), (3, r"\s*(?:private|public|readonly|protected|abstract) (?:static |readonly )?\w+\??(?:: |\()"),
        (2, r"\s*import \{.*\} from ['\"]"), (3, r".*\bas (?:const|unknown|any|string)\b"), (2, r"\s*\w+\??: (?:string|number|boolean|void|\w+\[\]|\w+<.{1,60}>)(?: \| \w+)*[;,]\s*$"),
        (2, r"\s*(?:export )?(?:const )?enum \w+ \{"), (2, r".*\): (?:Promise<|void|string|number|boolean|\w+\b).*[{;]\s*$"), (2, r"export \* from "),
    ),
    "java": _signs(
        (4, r"\s*(?:public|private|protected) (?:static |final |abstract |synchronized )*(?:class|interface|enum|record) \w+"),
        (3, r"package [\w.]+;"), (3, r"import (?:static )?[\w.]+(?:\.\*)?;"), (3, r"\s*public static void main\("),
        (2, r"\s*(?:public|private|protected) (?:static |final |abstract |synchronized )*[\w<>\[\], ?]+ \w+\(.*\)? ?(?:throws [\w, ]+)?[{;]?\s*$"),
        (2, r"\s*@(?:Override|Autowired|Test|Entity|Service|Bean)\b"), (2, r".*\bSystem\.out\.print"), (1, r"\s*(?:private|public) (?:static )?final [\w<>]+ \w+"),
        (1, r".*\bnew \w+(?:<.{0,40}>)?\("),
    ),
    "kotlin": _signs(
        (3, r"\s*(?:private |public |override |suspend |internal |inline )*fun (?:<.{1,40}> )?(?:\w+\.)?\w+\("), (2, r"\s*val \w+(?:: \w+)? ?="),
        (3, r"\s*(?:data|sealed|open|abstract|enum) class \w+"), (2, r"\s*package [\w.]+\s*$"), (2, r"\s*import [\w.]+\*?\s*$"), (2, r".*\?\.\w+|.*\?: "), (2, r"\s*object \w+"),
        (2, r".*\bprintln\("), (2, r"\s*when ?\(.*\) \{"),
    ),
    "c": _signs(
        (3, r"\s*#include\s*[<\"][\w/.]+\.h[>\"]"), (2, r"\s*#(?:define|ifdef|ifndef|endif|pragma|if|else)\b"), (3, r"(?:int|void) main\("),
        (2, r"(?:static |const |unsigned |inline |extern )*(?:int|void|char|float|double|size_t|struct \w+|uint\d+_t|bool)\s+\**\w+\([^;]*\)?\s*\{?\s*$"),
        (2, r"\s*(?:typedef )?struct (?:\w+ )?\{"), (2, r".*\b(?:printf|malloc|free|sizeof|memcpy|strlen|fprintf)\s*\("), (1, r".*\w+->\w+"), (1, r"\s*(?:int|char|unsigned|long|size_t) \**\w+(?:\[\w*\])?(?: = .+)?;"),
        (1, r"\s*return (?:0|-1|NULL);"), (2, r"(?:extern|static|typedef)\b .*[;{(,]\s*$"), (1.5, r"\s*(?:if|for|while|switch) \(.*\) ?\{?\s*$"), (1, r"\s*\w+\(.*\);\s*$"), (1.5, r".*\bNULL\b"),
    ),
    "cpp": _signs(
        (4, r"\s*#include\s*<(?:iostream|vector|string|memory|map|algorithm|cstd\w+|thread|functional|utility|set)>"), (4, r".*\bstd::\w+"), (4, r"\s*using namespace \w+;"),
        (3, r"\s*template ?<.*>"), (2, r"\s*(?:public|private|protected):\s*$"), (2, r"\s*class \w+(?: final)?(?: : (?:public|private) .*)?\s*\{?\s*$"), (2, r"\s*namespace \w+(?:::\w+)* ?\{"),
        (2, r".*\b(?:auto|constexpr|nullptr|static_cast|virtual|override)\b"), (1, r".*\w+::\w+\("),
    ),
    "csharp": _signs(
        (3, r"using (?:static )?[A-Z][\w.]+;"), (4, r"namespace [\w.]+\s*[;{]?\s*$"), (3, r".*\{ get; (?:private |protected )?(?:set|init);? ?\}"), (3, r".*\bConsole\.Write"),
        (2, r"\s*(?:public|private|internal|protected) (?:static |async |override |sealed |readonly |partial |virtual )*(?:class|void|string|int|bool|Task|var|record|interface|struct)\b"),
        (2, r"\s*\[\w+(?:\(.*\))?\]\s*$"), (2, r".*\bstring\b.*\$\""), (1, r"\s*(?:foreach|var) ?\(?"),
    ),
    "go": _signs(
        (4, r"package \w+\s*$"), (4, r"func (?:\(\w+ \*?[\w.\[\]]+\) )?\w+(?:\[.{1,40}\])?\(.*\{\s*$"), (3, r"import \(\s*$|import \"[\w/.-]+\""), (3, r"\s*if err != nil \{"), (2, r".*:= "),
        (3, r"type \w+ (?:struct|interface) \{"), (2, r".*\bfmt\.(?:Print|Sprint|Errorf)"), (1.5, r"\s*defer \w+"), (1.5, r"\s*go func\("), (1, r"\t\"[\w./-]+\"$"),
    ),
    "rust": _signs(
        (4, r"\s*(?:pub(?:\(\w+\))? )?(?:async |unsafe |const )*fn \w+(?:<.{1,80}>)?\("), (3, r"\s*let (?:mut )?\w+(?:: .{1,60})? = "), (3, r"\s*(?:pub )?use [\w:]+(?:::\{.*)?.*;\s*$"),
        (4, r"\s*impl(?:<.{1,60}>)? .+\{\s*$"), (3, r"\s*#\[(?:derive|cfg|test|allow)\b"), (3, r".*\b(?:println|format|vec|panic|assert_eq)!\("), (2, r"\s*(?:pub )?(?:struct|enum|trait|mod) \w+"),
        (2, r"\s*match .+ \{"), (1, r".*->\s*(?:Result|Option|Self|Vec|&|String|i32|u\d+)"), (1, r".*&(?:mut|str|self)\b"),
    ),
    "ruby": _signs(
        (3, r"\s*def (?:self\.)?\w+[?!]?(?:\(.*\)| \w+)?\s*$"), (3, r"\s*require(?:_relative)? ['\"]"), (3, r"\s*end\s*$"), (2, r"\s*class \w+(?: < [\w:]+)?\s*$"), (2, r"\s*module \w+\s*$"),
        (2, r".*\bdo \|.{1,40}\|\s*$|.*\bdo\s*$"), (2, r"\s*attr_(?:accessor|reader|writer) "), (2, r"\s*(?:puts|elsif|unless) "), (1, r"\s*@\w+ = "), (1, r".*=> \w+,?\s*$"),
    ),
    "php": _signs(
        (12, r"\s*<\?php"), (2, r"\s*\$\w+(?:->\w+|\[.*\])* = "), (2, r".*\$this->\w+"), (2, r"\s*(?:public|private|protected) (?:static )?function \w+\("), (2, r"\s*echo "), (2, r"use [A-Z]\w*\\"),
        (2, r"\s*namespace [A-Z]\w*(?:\\\w+)*;"),
    ),
    "shell": _signs(
        (3, r"\s*(?:if|while|until) \[\[? .* \]\]?; (?:then|do)\s*$"), (3, r"\s*(?:fi|done|esac|then)\s*$"), (2, r"\s*for \w+ in .*; do\s*$"), (3, r"set -[euxo]+(?: pipefail)?"), (2, r"\s*echo [\"'$-]"),
        (2, r"\s*(?:export |local |readonly )?\w+=\$\("), (2, r"\s*\w+\(\) ?\{\s*$"), (1.5, r"\s*(?:export|local|source|sudo|cd|mkdir|rm|cp|mv|grep|sed|awk|curl|apt-get|chmod) [-\w./$\"~]"),
        (1, r".*\$\{\w+(?:[:#%].*)?\}"), (1.5, r"\s*(?:case .* in|;;)\s*$"), (1, r".* \|\| (?:exit|return|true)"), (1, r"\s*[A-Z_]+=\S*\s*$"),
    ),
    "powershell": _signs(
        (4, r"\s*(?:\$\w+ = )?(?:Get|Set|New|Remove|Write|Import|Start|Stop|Invoke|Test|Add|Out|Select|Where|ForEach)-[A-Z]\w+"), (3, r"\s*param\s*\("), (3, r"\s*\$\w+ = "), (3, r"\s*function [A-Z]\w+-[A-Z]\w+"),
        (3, r".* -(?:eq|ne|like|match|gt|lt) "), (2, r".*\$_\.\w+"), (2, r"\s*\[(?:string|int|Parameter|CmdletBinding)\b"),
    ),
    "sql": _signs(
        (4, r"\s*(?i:select)\b.+\b(?i:from)\b"), (2, r"\s*(?i:select)\b(?:\s+\S|\s*$)"), (4, r"\s*(?i:create (?:or replace |unique |temporary |temp )?(?:table|index|view|function|database|trigger|type|operator|extension|schema|sequence|aggregate|procedure|cast|policy))\b"), (4, r"\s*(?i:insert into)\b"), (4, r"\s*(?i:update) [\w.\"`]+ (?i:set)\b"),
        (4, r"\s*(?i:delete from)\b"), (4, r"\s*(?i:(?:alter|drop) (?:table|index|function|extension|view|type|operator|database|sequence|aggregate|schema))\b"), (3, r"\s*(?i:grant|revoke) \w+.* (?i:on|to|from) "), (2, r"\s*(?i:from|where|group by|order by|having|limit|(?:left |inner |outer |right )?join)\b .*"), (2, r"\s*[\w\"`]+ (?i:integer|int|bigint|varchar|text|timestamp|serial|boolean|numeric|uuid)\b"),
        (2, r"\s*(?i:begin|commit|rollback)\s*;"), (1, r"\s*(?i:primary key|foreign key|constraint|references)\b"), (2, r"\s*(?i:with) \w+ (?i:as) \("), (2, r"\s*(?i:returns|language|comment on|as \$\w*\$|as '\w+)\b"),
    ),
    "css": _signs(
        (2, r"\s*(?:--)?[a-z-]{2,40}\s?:\s?[^;{}()]{1,200}(?:\([^;{}]{0,200})?;\s*(?:\}\s*)?(?:/\*.*)?$"), (3, r"\s*@(?:media|import|keyframes|font-face|include|mixin|charset)\b"),
        (2.5, r"\s*[.#&:*a-z][\w.#:\[\]=\"'>,\s*+~-]{0,120}\s*\{\s*[a-z-]{2,30}\s?:[^{}]*\}?\s*(?:/\*.*)?$"), (1, r"\s*[.#&:*a-z][\w.#:\[\]=\"'>,\s*+~-]{0,120}\{\s*$"),
    ),
    "scala": _signs(
        (3, r"\s*(?:override |private |implicit )*def \w+(?:\[.{1,40}\])?(?:\(.*\))?(?:: [\w\[\], ]+)? ="), (3, r"\s*(?:case )?(?:class|object) \w+(?:\(.*\))?(?: extends .*)?\s*\{?\s*$"), (2, r"\s*val \w+(?:: [\w\[\]]+)? = "), (2, r"\s*import [\w.]+(?:\.\{.*\}|\._)\s*$"),
        (3, r"\s*(?:sealed )?trait \w+"), (2, r"\s*case .* =>"), (2, r"\s*package [\w.]+\s*$"),
    ),
    "swift": _signs(
        (3, r"\s*(?:public |private |static |override |mutating )*func \w+(?:<.{1,40}>)?\(.*\)(?: async)?(?: throws)?(?: -> .+)? \{"), (3, r"import (?:Foundation|UIKit|SwiftUI|Combine)\s*$"), (2, r"\s*(?:let|var) \w+(?:: [\w\[\]?<>]+)? ?[={]"), (3, r"\s*guard (?:let|var)? ?.* else \{"),
        (2, r"\s*(?:struct|class|enum|extension|protocol) \w+(?:: [\w, ]+)? \{"), (2, r"\s*if let \w+ = "), (2, r"\s*@(?:State|Published|main|objc)\b"),
    ),
    "lua": _signs(
        (3, r"\s*(?:local )?function [\w.:]+\("), (3, r"\s*local \w+(?:, \w+)* = "), (2, r"\s*end[,)]?\s*$"), (3, r".*\bthen\s*$"), (2, r"\s*(?:for .* do|while .* do|repeat|until .*)\s*$"), (2, r".*\brequire ?\(?['\"]"), (1, r"\s*--"), (1, r".*~= |.* \.\. "),
    ),
    "perl": _signs(
        (4, r"\s*use (?:strict|warnings|utf8|v5)\b"), (3, r"\s*my [$@%(]\w*"), (3, r"\s*sub \w+ ?\{"), (2, r".*=~ [ms]?/"), (2, r"\s*(?:print|die|push|foreach|unless)\b.*[$@]\w+"), (2, r".*\$\w+->\{"), (2, r"\s*package [\w:]+;"),
    ),
    "r": _signs(
        (4, r"\s*[\w.]+ <- "), (4, r"\s*library\(\w+\)"), (3, r".*<- function\("), (2, r".*%>%|.*\|> "), (2, r"\s*(?:ggplot|data\.frame|summary|print|c)\("), (1, r".*\$\w+\b"),
    ),
    "haskell": _signs(
        (4, r"module [\w.]+(?: \(.*\))? where"), (3, r"[a-z]\w*'? :: .+"), (3, r"import (?:qualified )?[A-Z][\w.]+"), (3, r"data \w+.* = "), (2, r".*<- "), (2, r"\s*where\s*$"), (2, r".* \$ |.* <\$> "), (2, r"instance \w+ \w+"),
    ),
    "elixir": _signs(
        (4, r"\s*defmodule [\w.]+ do"), (4, r"\s*defp? \w+[?!]?(?:\(.*\))?(?: when .*)? do"), (2, r".*\|> \w+"), (2, r"\s*end\s*$"), (2, r"\s*(?:alias|use|import|require) [A-Z][\w.]+"), (2, r"\s*@(?:moduledoc|doc|spec)\b"),
    ),
    "makefile": _signs(
        (3, r"[\w./%$(){}-]+(?: [\w./%-]+)*\s*:(?!=)(?:\s+[\w./%$(){}| -]+)?\s*$"), (3, r"\.PHONY:"), (2, r"\t@?\S"), (2, r"[A-Z_]+ ?[:?+]?= ?.*"), (2, r".*\$\((?:\w+|@D)\)"), (1, r"(?:ifeq|ifdef|endif|include)\b"),
    ),
    "protobuf": _signs(
        (6, r"syntax = \"proto[23]\";"), (4, r"\s*message \w+ \{"), (3, r"\s*(?:repeated |optional )?[\w.]+ \w+ = \d+;"), (4, r"\s*rpc \w+\("), (3, r"\s*service \w+ \{"),
    ),
    "graphql": _signs(
        (3, r"\s*(?:type|input|interface|enum|union|scalar|extend type) [A-Z]\w*(?: implements \w+)? ?[{=]?"), (3, r"\s*(?:query|mutation|subscription|fragment) \w+.*\{"), (2, r"\s*\w+(?:\(.*\))?: \[?[A-Z]\w*!?\]?!?\s*$"),
    ),
    "diff": _signs(
        (5, r"diff --git a/"), (5, r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@"), (3, r"(?:---|\+\+\+) \S"), (2, r"index [0-9a-f]+\.\.[0-9a-f]+"), (1, r"[+-](?![+-])"),
    ),
}  # fmt: skip

_ENDINGS: Final = {
    "py": "python", "pyi": "python", "js": "javascript", "mjs": "javascript", "jsx": "javascript",
    "ts": "typescript", "tsx": "typescript", "java": "java", "kt": "kotlin", "c": "c", "h": "c",
    "cc": "cpp", "cpp": "cpp", "hpp": "cpp", "cs": "csharp", "go": "go", "rs": "rust", "rb": "ruby",
    "php": "php", "sh": "shell", "bash": "shell", "ps1": "powershell", "sql": "sql", "css": "css",
    "scss": "css", "scala": "scala", "swift": "swift", "lua": "lua", "pl": "perl", "r": "r",
    "hs": "haskell", "ex": "elixir", "exs": "elixir", "mk": "makefile", "proto": "protobuf",
    "graphql": "graphql", "diff": "diff", "patch": "diff",
}  # fmt: skip
_SHEBANGS: Final = (
    ("python", "python"), ("node", "javascript"), ("bash", "shell"), ("/sh", "shell"),
    ("zsh", "shell"), ("ruby", "ruby"), ("perl", "perl"), ("php", "php"), ("lua", "lua"),
    ("pwsh", "powershell"), ("Rscript", "r"),
)  # fmt: skip


def detect(sample: Sample) -> Guess | None:
    """The language of a text that is code."""
    lines = _unfenced(sample.filled[:_LINES])
    if lines and lines[0].startswith("#!"):
        for word, language in _SHEBANGS:
            if word in lines[0]:
                return Guess("source_code", language, 0.98)
    lines = _uncommented(lines)
    if not lines:
        return None
    scores = {name: _score(lines, signs) for name, signs in _LANGUAGES.items()}
    if (ending := named(sample.name)) is not None:
        scores[ending] = scores[ending] * 1.5 + 2
    _settle(scores, lines)
    language = max(scores, key=lambda name: scores[name])
    best = scores[language]
    fitting = _fitting(lines, _LANGUAGES[language])
    if best < 4 or fitting < 0.05 or (best < 7 and fitting < 0.3):
        return None
    others = sorted(scores.values(), reverse=True)[1]
    lead = (best - min(best, others)) / best
    sure = 0.55 + 0.2 * min(1.0, best / 20) + 0.12 * min(1.0, fitting * 3) + 0.1 * min(1.0, lead * 2)
    return Guess("source_code", language, min(0.97, sure))


def named(name: str) -> str | None:
    """The language that a file's name tells."""
    return _ENDINGS.get(name.rpartition(".")[2].lower()) if "." in name else None


_COMMENT: Final = re.compile(r"\s*(?://|\*|#(?![!]|include|define|if|endif|else|pragma|\[|\w)|--(?!-)|;;|%%)")
_QUOTES: Final = ('"""', "'''")


def _uncommented(lines: list[str]) -> list[str]:
    """Without lines that are comments in one language or another, and without long texts."""
    kept: list[str] = []
    until = ""
    for line in lines:
        bare = line.strip()
        if until:
            until = "" if until in bare else until
        elif bare.startswith("/*"):
            until = "" if "*/" in bare else "*/"
        elif bare.startswith(_QUOTES):
            until = "" if bare.count(bare[:3]) > 1 else bare[:3]
        elif not _COMMENT.match(line):
            kept.append(line)
    return kept


def _unfenced(lines: list[str]) -> list[str]:
    """Without what stands between fences: code in a text about code."""
    kept, fenced = [], False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            kept.append(line)
    return kept


def _settle(scores: dict[str, float], lines: list[str]) -> None:
    """Languages that have all of another one, and one that is all colons."""
    if scores["typescript"] > 4:
        scores["typescript"] += scores["javascript"]
    if scores["cpp"] > 4:
        scores["cpp"] += scores["c"] * 0.8
    if not _has_recipes(lines):
        scores["makefile"] = 0.0


_TARGET: Final = re.compile(r"[\w./%$(){}-]+(?: [\w./%-]+)*\s*:(?![=:])(?:\s+[\w./%$(){}| -]+)?\s*$")


def _has_recipes(lines: list[str]) -> bool:
    return any(
        line.startswith(".PHONY") or (_TARGET.match(line) and following.startswith("\t"))
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
    )


Signs = tuple[tuple[float, re.Pattern[str]], ...]


def _score(lines: list[str], signs: Signs) -> float:
    """For each line the first sign that fits; one that is seen often counts less each time."""
    seen = [0] * len(signs)
    for line in lines:
        for number, (_, pattern) in enumerate(signs):
            if pattern.match(line):
                seen[number] += 1
                break
    return sum(
        weight * min(16, count) ** 0.5 for (weight, _), count in zip(signs, seen, strict=True)
    )


def _fitting(lines: list[str], signs: Signs) -> float:
    fits = sum(any(pattern.match(line) for _, pattern in signs) for line in lines)
    return fits / len(lines)
