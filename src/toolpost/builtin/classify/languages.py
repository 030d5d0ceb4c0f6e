"""The signs of each programming language: patterns that lines of it match, with their weights.

Above: ``code.py``. Below: nothing. A pattern is matched at the start of a line of bounded length,
and stands first where it says most. A language is added here, and in the endings of ``code.py``.
"""

from __future__ import annotations

import re
from typing import Final

Signs = tuple[tuple[float, re.Pattern[str]], ...]


def _signs(*patterns: tuple[float, str]) -> Signs:
    return tuple((weight, re.compile(pattern)) for weight, pattern in patterns)


LANGUAGES: Final = {
    "python": _signs(
        (3, r"\s*(?:async )?def \w+\(.*(?:\)|,|\()\s*(?:->.{0,80})?:?\s*$"),
        (3, r"from [\w.]+ import "),
        (1.5, r"import [\w.]+(?: as \w+)?\s*$"),
        (2, r"\s*(?:elif .{1,200}|except\b.{0,100}|else|try|finally):\s*$"),
        (2, r"\s*class \w+(?:\([\w., =\[\]]*\))?:\s*$"),
        (3, r"if __name__ == ['\"]__main__['\"]:"),
        (1, r"\s*(?:for .{1,100} in .{1,100}|with .{1,200}|while .{1,100}|if .{1,200}):\s*$"),
        (1, r"\s*@\w+(?:\.\w+)*(?:\(.*\))?\s*$"),
        (1, r"\s*(?:self\.\w+|return self|print\()"),
        (1, r'\s*"""'),
    ),
    "javascript": _signs(
        (2, r"\s*(?:export )?(?:const|let|var) [\w{}\[\], :$]+ ="),
        (2, r"\s*(?:export )?(?:default )?(?:async )?function\*? ?[\w$]*\("),
        (3, r".*\brequire\(['\"]"),
        (3, r"\s*(?:import|export) .* from ['\"].+['\"];?\s*$"),
        (3, r"['\"]use strict['\"];?"),
        (3, r"\s*(?:module\.)?exports\b|Object\.defineProperty\(exports"),
        (2, r"\s*export (?:default |\{|\* |class |async )"),
        (2, r".*=> [{(]?\s*$"),
        (2, r".*\bconsole\.(?:log|error|warn)\("),
        (1.5, r".*\b(?:document|window|process|Promise|JSON|Object)\.\w+"),
        (1.5, r".*(?:===|!==)"),
        (2, r"\s*(?:return )?this\.\w+"),
        (2, r"\s*class \w+(?: extends [\w.]+)? \{"),
        (1.5, r".*\bfunction ?\("),
        (1, r"\s*\}\);?\s*$"),
        (1, r"\s*(?:await|async|throw new|typeof) "),
    ),
    "typescript": _signs(
        (4, r"\s*(?:export )?(?:declare )?interface \w+(?:<.{1,60}>)?(?: extends [\w, <>]+)? \{"),
        (4, r"\s*(?:export )?(?:declare )?type \w+(?:<.{1,60}>)? = "),
        (4, r"\s*(?:export )?declare (?:const|function|class|module|namespace|let|var|global)\b"),
        (
            3,
            (
                r".*\b(?:const|let|function) \w+.{0,80}: (?:string|number|boolean|Promise|Array|"
                r"Record|void|unknown|any)\b"
            ),
        ),
        (3, r"\s*(?:import|export) type "),
        (3, r".*\([^()]*\w+\??: (?:string|number|boolean|\w+\[\]|unknown|any)\b.*\)"),
        (
            3,
            (
                r"\s*(?:private|public|readonly|protected|abstract) (?:static |"
                r"readonly )?\w+\??(?:: |\()"
            ),
        ),
        (2, r"\s*import \{.*\} from ['\"]"),
        (3, r".*\bas (?:const|unknown|any|string)\b"),
        (2, r"\s*\w+\??: (?:string|number|boolean|void|\w+\[\]|\w+<.{1,60}>)(?: \| \w+)*[;,]\s*$"),
        (2, r"\s*(?:export )?(?:const )?enum \w+ \{"),
        (2, r".*\): (?:Promise<|void|string|number|boolean|\w+\b).*[{;]\s*$"),
        (2, r"export \* from "),
    ),
    "java": _signs(
        (
            4,
            (
                r"\s*(?:public|private|protected) (?:static |final |abstract |"
                r"synchronized )*(?:class|interface|enum|record) \w+"
            ),
        ),
        (3, r"package [\w.]+;"),
        (3, r"import (?:static )?[\w.]+(?:\.\*)?;"),
        (3, r"\s*public static void main\("),
        (
            2,
            (
                r"\s*(?:public|private|protected) (?:static |final |abstract |"
                r"synchronized )*[\w<>\[\], ?]+ \w+\(.*\)? ?(?:throws [\w, ]+)?[{;]?\s*$"
            ),
        ),
        (2, r"\s*@(?:Override|Autowired|Test|Entity|Service|Bean)\b"),
        (2, r".*\bSystem\.out\.print"),
        (1, r"\s*(?:private|public) (?:static )?final [\w<>]+ \w+"),
        (1, r".*\bnew \w+(?:<.{0,40}>)?\("),
    ),
    "kotlin": _signs(
        (
            3,
            (
                r"\s*(?:private |public |override |suspend |internal |"
                r"inline )*fun (?:<.{1,40}> )?(?:\w+\.)?\w+\("
            ),
        ),
        (2, r"\s*val \w+(?:: \w+)? ?="),
        (3, r"\s*(?:data|sealed|open|abstract|enum) class \w+"),
        (2, r"\s*package [\w.]+\s*$"),
        (2, r"\s*import [\w.]+\*?\s*$"),
        (2, r".*\?\.\w+|.*\?: "),
        (2, r"\s*object \w+"),
        (2, r".*\bprintln\("),
        (2, r"\s*when ?\(.*\) \{"),
    ),
    "c": _signs(
        (3, r"\s*#include\s*[<\"][\w/.]+\.h[>\"]"),
        (2, r"\s*#(?:define|ifdef|ifndef|endif|pragma|if|else)\b"),
        (3, r"(?:int|void) main\("),
        (
            2,
            (
                r"(?:static |const |unsigned |inline |extern )*(?:int|void|char|float|double|"
                r"size_t|struct \w+|uint\d+_t|bool)\s+\**\w+\([^;]*\)?\s*\{?\s*$"
            ),
        ),
        (2, r"\s*(?:typedef )?struct (?:\w+ )?\{"),
        (2, r".*\b(?:printf|malloc|free|sizeof|memcpy|strlen|fprintf)\s*\("),
        (1, r".*\w+->\w+"),
        (1, r"\s*(?:int|char|unsigned|long|size_t) \**\w+(?:\[\w*\])?(?: = .+)?;"),
        (1, r"\s*return (?:0|-1|NULL);"),
        (2, r"(?:extern|static|typedef)\b .*[;{(,]\s*$"),
        (1.5, r"\s*(?:if|for|while|switch) \(.*\) ?\{?\s*$"),
        (1, r"\s*\w+\(.*\);\s*$"),
        (1.5, r".*\bNULL\b"),
    ),
    "cpp": _signs(
        (
            4,
            (
                r"\s*#include\s*<(?:iostream|vector|string|memory|map|algorithm|cstd\w+|thread|"
                r"functional|utility|set)>"
            ),
        ),
        (4, r".*\bstd::\w+"),
        (4, r"\s*using namespace \w+;"),
        (3, r"\s*template ?<.*>"),
        (2, r"\s*(?:public|private|protected):\s*$"),
        (2, r"\s*class \w+(?: final)?(?: : (?:public|private) .*)?\s*\{?\s*$"),
        (2, r"\s*namespace \w+(?:::\w+)* ?\{"),
        (2, r".*\b(?:auto|constexpr|nullptr|static_cast|virtual|override)\b"),
        (1, r".*\w+::\w+\("),
    ),
    "csharp": _signs(
        (3, r"using (?:static )?[A-Z][\w.]+;"),
        (4, r"namespace [\w.]+\s*[;{]?\s*$"),
        (3, r".*\{ get; (?:private |protected )?(?:set|init);? ?\}"),
        (3, r".*\bConsole\.Write"),
        (
            2,
            (
                r"\s*(?:public|private|internal|protected) (?:static |async |override |sealed |"
                r"readonly |partial |virtual )*(?:class|void|string|int|bool|Task|var|record|"
                r"interface|struct)\b"
            ),
        ),
        (2, r"\s*\[\w+(?:\(.*\))?\]\s*$"),
        (2, r".*\bstring\b.*\$\""),
        (1, r"\s*(?:foreach|var) ?\(?"),
    ),
    "go": _signs(
        (4, r"package \w+\s*$"),
        (4, r"func (?:\(\w+ \*?[\w.\[\]]+\) )?\w+(?:\[.{1,40}\])?\(.*\{\s*$"),
        (3, r"import \(\s*$|import \"[\w/.-]+\""),
        (3, r"\s*if err != nil \{"),
        (2, r".*:= "),
        (3, r"type \w+ (?:struct|interface) \{"),
        (2, r".*\bfmt\.(?:Print|Sprint|Errorf)"),
        (1.5, r"\s*defer \w+"),
        (1.5, r"\s*go func\("),
        (1, r"\t\"[\w./-]+\"$"),
    ),
    "rust": _signs(
        (4, r"\s*(?:pub(?:\(\w+\))? )?(?:async |unsafe |const )*fn \w+(?:<.{1,80}>)?\("),
        (3, r"\s*let (?:mut )?\w+(?:: .{1,60})? = "),
        (3, r"\s*(?:pub )?use [\w:]+(?:::\{.*)?.*;\s*$"),
        (4, r"\s*impl(?:<.{1,60}>)? .+\{\s*$"),
        (3, r"\s*#\[(?:derive|cfg|test|allow)\b"),
        (3, r".*\b(?:println|format|vec|panic|assert_eq)!\("),
        (2, r"\s*(?:pub )?(?:struct|enum|trait|mod) \w+"),
        (2, r"\s*match .+ \{"),
        (1, r".*->\s*(?:Result|Option|Self|Vec|&|String|i32|u\d+)"),
        (1, r".*&(?:mut|str|self)\b"),
    ),
    "ruby": _signs(
        (3, r"\s*def (?:self\.)?\w+[?!]?(?:\(.*\)| \w+)?\s*$"),
        (3, r"\s*require(?:_relative)? ['\"]"),
        (3, r"\s*end\s*$"),
        (2, r"\s*class \w+(?: < [\w:]+)?\s*$"),
        (2, r"\s*module \w+\s*$"),
        (2, r".*\bdo \|.{1,40}\|\s*$|.*\bdo\s*$"),
        (2, r"\s*attr_(?:accessor|reader|writer) "),
        (2, r"\s*(?:puts|elsif|unless) "),
        (1, r"\s*@\w+ = "),
        (1, r".*=> \w+,?\s*$"),
    ),
    "php": _signs(
        (12, r"\s*<\?php"),
        (2, r"\s*\$\w+(?:->\w+|\[.*\])* = "),
        (2, r".*\$this->\w+"),
        (2, r"\s*(?:public|private|protected) (?:static )?function \w+\("),
        (2, r"\s*echo "),
        (2, r"use [A-Z]\w*\\"),
        (2, r"\s*namespace [A-Z]\w*(?:\\\w+)*;"),
    ),
    "shell": _signs(
        (3, r"\s*(?:if|while|until) \[\[? .* \]\]?; (?:then|do)\s*$"),
        (3, r"\s*(?:fi|done|esac|then)\s*$"),
        (2, r"\s*for \w+ in .*; do\s*$"),
        (3, r"set -[euxo]+(?: pipefail)?"),
        (2, r"\s*echo [\"'$-]"),
        (2, r"\s*(?:export |local |readonly )?\w+=\$\("),
        (2, r"\s*\w+\(\) ?\{\s*$"),
        (
            1.5,
            (
                r"\s*(?:export|local|source|sudo|cd|mkdir|rm|cp|mv|grep|sed|awk|curl|apt-get|"
                r"chmod) [-\w./$\"~]"
            ),
        ),
        (1, r".*\$\{\w+(?:[:#%].*)?\}"),
        (1.5, r"\s*(?:case .* in|;;)\s*$"),
        (1, r".* \|\| (?:exit|return|true)"),
        (1, r"\s*[A-Z_]+=\S*\s*$"),
    ),
    "powershell": _signs(
        (
            4,
            (
                r"\s*(?:\$\w+ = )?(?:Get|Set|New|Remove|Write|Import|Start|Stop|Invoke|Test|Add|"
                r"Out|Select|Where|ForEach)-[A-Z]\w+"
            ),
        ),
        (3, r"\s*param\s*\("),
        (3, r"\s*\$\w+ = "),
        (3, r"\s*function [A-Z]\w+-[A-Z]\w+"),
        (3, r".* -(?:eq|ne|like|match|gt|lt) "),
        (2, r".*\$_\.\w+"),
        (2, r"\s*\[(?:string|int|Parameter|CmdletBinding)\b"),
    ),
    "sql": _signs(
        (4, r"\s*(?i:select)\b.+\b(?i:from)\b"),
        (2, r"\s*(?i:select)\b(?:\s+\S|\s*$)"),
        (
            4,
            (
                r"\s*(?i:create (?:or replace |unique |temporary |temp )?(?:table|index|view|"
                r"function|database|trigger|type|operator|extension|schema|sequence|aggregate|"
                r"procedure|cast|policy))\b"
            ),
        ),
        (4, r"\s*(?i:insert into)\b"),
        (4, r"\s*(?i:update) [\w.\"`]+ (?i:set)\b"),
        (4, r"\s*(?i:delete from)\b"),
        (
            4,
            (
                r"\s*(?i:(?:alter|drop) (?:table|index|function|extension|view|type|operator|"
                r"database|sequence|aggregate|schema))\b"
            ),
        ),
        (3, r"\s*(?i:grant|revoke) \w+.* (?i:on|to|from) "),
        (
            2,
            (
                r"\s*(?i:from|where|group by|order by|having|limit|(?:left |inner |outer |"
                r"right )?join)\b .*"
            ),
        ),
        (
            2,
            (
                r"\s*[\w\"`]+ (?i:integer|int|bigint|varchar|text|timestamp|serial|boolean|numeric|"
                r"uuid)\b"
            ),
        ),
        (2, r"\s*(?i:begin|commit|rollback)\s*;"),
        (1, r"\s*(?i:primary key|foreign key|constraint|references)\b"),
        (2, r"\s*(?i:with) \w+ (?i:as) \("),
        (2, r"\s*(?i:returns|language|comment on|as \$\w*\$|as '\w+)\b"),
    ),
    "css": _signs(
        (
            2,
            (
                r"\s*(?:--)?[a-z-]{2,40}\s?:\s?[^;{}()]{1,200}(?:\([^;{}]{0,200})?;\s*(?:\}\s*)?(?:/"
                r"\*.*)?$"
            ),
        ),
        (3, r"\s*@(?:media|import|keyframes|font-face|include|mixin|charset)\b"),
        (
            2.5,
            (
                r"\s*[.#&:*a-z][\w.#:\[\]=\"'>,\s*+~-]{0,120}\s*\{\s*[a-z-]{2,30}\s?:[^{}]*\}?\s*("
                r"?:/\*.*)?$"
            ),
        ),
        (1, r"\s*[.#&:*a-z][\w.#:\[\]=\"'>,\s*+~-]{0,120}\{\s*$"),
    ),
    "scala": _signs(
        (
            3,
            (
                r"\s*(?:override |private |implicit )*def \w+(?:\[.{1,40}\])?(?:\(.*\))?(?:: "
                r"[\w\[\], ]+)? ="
            ),
        ),
        (3, r"\s*(?:case )?(?:class|object) \w+(?:\(.*\))?(?: extends .*)?\s*\{?\s*$"),
        (2, r"\s*val \w+(?:: [\w\[\]]+)? = "),
        (2, r"\s*import [\w.]+(?:\.\{.*\}|\._)\s*$"),
        (3, r"\s*(?:sealed )?trait \w+"),
        (2, r"\s*case .* =>"),
        (2, r"\s*package [\w.]+\s*$"),
    ),
    "swift": _signs(
        (
            3,
            (
                r"\s*(?:public |private |static |override |mutating )*func "
                r"\w+(?:<.{1,40}>)?\(.*\)(?: async)?(?: throws)?(?: -> .+)? \{"
            ),
        ),
        (3, r"import (?:Foundation|UIKit|SwiftUI|Combine)\s*$"),
        (2, r"\s*(?:let|var) \w+(?:: [\w\[\]?<>]+)? ?[={]"),
        (3, r"\s*guard (?:let|var)? ?.* else \{"),
        (2, r"\s*(?:struct|class|enum|extension|protocol) \w+(?:: [\w, ]+)? \{"),
        (2, r"\s*if let \w+ = "),
        (2, r"\s*@(?:State|Published|main|objc)\b"),
    ),
    "lua": _signs(
        (3, r"\s*(?:local )?function [\w.:]+\("),
        (3, r"\s*local \w+(?:, \w+)* = "),
        (2, r"\s*end[,)]?\s*$"),
        (3, r".*\bthen\s*$"),
        (2, r"\s*(?:for .* do|while .* do|repeat|until .*)\s*$"),
        (2, r".*\brequire ?\(?['\"]"),
        (1, r"\s*--"),
        (1, r".*~= |.* \.\. "),
    ),
    "perl": _signs(
        (4, r"\s*use (?:strict|warnings|utf8|v5)\b"),
        (3, r"\s*my [$@%(]\w*"),
        (3, r"\s*sub \w+ ?\{"),
        (2, r".*=~ [ms]?/"),
        (2, r"\s*(?:print|die|push|foreach|unless)\b.*[$@]\w+"),
        (2, r".*\$\w+->\{"),
        (2, r"\s*package [\w:]+;"),
    ),
    "r": _signs(
        (4, r"\s*[\w.]+ <- "),
        (4, r"\s*library\(\w+\)"),
        (3, r".*<- function\("),
        (2, r".*%>%|.*\|> "),
        (2, r"\s*(?:ggplot|data\.frame|summary|print|c)\("),
        (1, r".*\$\w+\b"),
    ),
    "haskell": _signs(
        (4, r"module [\w.]+(?: \(.*\))? where"),
        (3, r"[a-z]\w*'? :: .+"),
        (3, r"import (?:qualified )?[A-Z][\w.]+"),
        (3, r"data \w+.* = "),
        (2, r".*<- "),
        (2, r"\s*where\s*$"),
        (2, r".* \$ |.* <\$> "),
        (2, r"instance \w+ \w+"),
    ),
    "elixir": _signs(
        (4, r"\s*defmodule [\w.]+ do"),
        (4, r"\s*defp? \w+[?!]?(?:\(.*\))?(?: when .*)? do"),
        (2, r".*\|> \w+"),
        (2, r"\s*end\s*$"),
        (2, r"\s*(?:alias|use|import|require) [A-Z][\w.]+"),
        (2, r"\s*@(?:moduledoc|doc|spec)\b"),
    ),
    "makefile": _signs(
        (3, r"[\w./%$(){}-]+(?: [\w./%-]+)*\s*:(?!=)(?:\s+[\w./%$(){}| -]+)?\s*$"),
        (3, r"\.PHONY:"),
        (2, r"\t@?\S"),
        (2, r"[A-Z_]+ ?[:?+]?= ?.*"),
        (2, r".*\$\((?:\w+|@D)\)"),
        (1, r"(?:ifeq|ifdef|endif|include)\b"),
    ),
    "protobuf": _signs(
        (6, r"syntax = \"proto[23]\";"),
        (4, r"\s*message \w+ \{"),
        (3, r"\s*(?:repeated |optional )?[\w.]+ \w+ = \d+;"),
        (4, r"\s*rpc \w+\("),
        (3, r"\s*service \w+ \{"),
    ),
    "graphql": _signs(
        (
            3,
            (
                r"\s*(?:type|input|interface|enum|union|scalar|"
                r"extend type) [A-Z]\w*(?: implements \w+)? ?[{=]?"
            ),
        ),
        (3, r"\s*(?:query|mutation|subscription|fragment) \w+.*\{"),
        (2, r"\s*\w+(?:\(.*\))?: \[?[A-Z]\w*!?\]?!?\s*$"),
    ),
    "diff": _signs(
        (5, r"diff --git a/"),
        (5, r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@"),
        (3, r"(?:---|\+\+\+) \S"),
        (2, r"index [0-9a-f]+\.\.[0-9a-f]+"),
        (1, r"[+-](?![+-])"),
    ),
}
