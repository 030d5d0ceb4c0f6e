"""Configuration files that are neither JSON, YAML nor TOML: INI, .env, nginx and many more.

Above: ``tool.py``. Below: nothing. Each is known by how most of its lines look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolpost.builtin.classify.guess import Guess, Sample, share

_SECTION: Final = re.compile(r"\s*\[[^\[\]=]{1,120}\]\s*(?:[#;].*)?$")
_PAIR: Final = re.compile(r"\s*[A-Za-z_@$][\w .:@/*$-]{0,80}?\s*[=:]\s*\S?.*$")
_ENV: Final = re.compile(r"(?:export )?[A-Z][A-Z0-9_]{1,80}=(?:\"[^\"]*\"|'[^']*'|[^\s'\"].*|)$")
_PROPERTY: Final = re.compile(r"[a-zA-Z][\w-]*(?:\.[\w\[\]-]+)+\s*[=:]\s*.*$")
_UNIT: Final = re.compile(r"\[(?:Unit|Service|Install|Timer|Socket|Mount|Path)\]$")
_DESKTOP: Final = re.compile(r"\[Desktop Entry\]$")
_NGINX_OPEN: Final = re.compile(
    r"\s*(?:server|http|location|upstream|events|map|if|types)\b[^;{}]{0,200}\{\s*$"
)
_NGINX_LINE: Final = re.compile(r"\s*[a-z_]{2,40}(?:\s+[^;{}]{1,300})?;\s*(?:#.*)?$|\s*\}\s*$")
_HTTPD: Final = re.compile(
    r"\s*</?(?:VirtualHost|Directory|Location|IfModule|Files|FilesMatch|Proxy)\b"
)
_HTTPD_LINE: Final = re.compile(r"\s*[A-Z][A-Za-z]{3,40}\s+\S")
_DOCKER: Final = re.compile(
    r"(?:FROM|RUN|CMD|LABEL|EXPOSE|ENV|ADD|COPY|ENTRYPOINT|VOLUME|USER|WORKDIR|ARG|ONBUILD|"
    r"HEALTHCHECK|SHELL) "
)
_HCL: Final = re.compile(
    r"(?:resource|provider|variable|output|module|data|terraform|"
    r"locals)\b(?: \"[^\"]{1,80}\"){0,2} ?\{"
)
_CRON: Final = re.compile(
    r"(?:[\d*/,-]+\s+){4}[\d*/,A-Za-z-]+\s+\S|@(?:reboot|daily|hourly|weekly|monthly)\s+\S"
)
_HOSTS: Final = re.compile(
    r"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]{2,39})\s+[\w.-]+(?:\s+[\w.-]+)*\s*(?:#.*)?$"
)
_SSH_CONFIG: Final = re.compile(r"(?:Host|Match)\s+\S")
_SSH_LINE: Final = re.compile(
    r"\s*(?:Host|HostName|User|Port|IdentityFile|ProxyJump|ForwardAgent|Match|"
    r"StrictHostKeyChecking|ServerAliveInterval)\b"
)
_REQUIREMENT: Final = re.compile(
    r"(?:-r |-e |--)?[A-Za-z0-9][\w.\[\],-]{0,80}\s*(?:[=<>!~]=|[<>])\s*[\d][\w.*+!-]*"
)
_IGNORE: Final = re.compile(r"!?(?:[\w.*/?\[\]{}@-]+/?|\*\.[\w*]+)$")
_HAPROXY: Final = re.compile(r"(?:global|defaults|frontend|backend|listen)\b")
_FSTAB: Final = re.compile(r"(?:UUID=|LABEL=|/dev/|tmpfs|proc)\S*\s+\S+\s+\w+\s+\S+\s+\d\s+\d")
_SUDOERS: Final = re.compile(r"[%\w]+\s+ALL\s*=\s*\(")
_PASSWD: Final = re.compile(r"[\w.-]+:[^:]*:\d*:\d*:[^:]*:[^:]*:[^:]*$")
_ROBOTS: Final = re.compile(r"(?:User-agent|Disallow|Allow|Sitemap|Crawl-delay):", re.I)


def detect(sample: Sample) -> Iterator[Guess]:
    lines = [line for line in sample.filled if not line.lstrip().startswith(("#", ";"))]
    if not lines:
        return
    for detector in (_by_lines, _ini, _nginx, _httpd, _docker, _hcl, _proxy, _pairs):
        found = detector(lines, sample)
        if found is not None:
            yield found


_BY_LINES: Final = (
    ("env", _ENV, 0.95, 0.93, 1),
    ("properties", _PROPERTY, 0.8, 0.88, 1),
    ("crontab", _CRON, 0.7, 0.92, 1),
    ("hosts", _HOSTS, 0.95, 0.9, 1),
    ("requirements", _REQUIREMENT, 0.8, 0.9, 2),
    ("fstab", _FSTAB, 0.7, 0.93, 1),
    ("passwd", _PASSWD, 0.9, 0.93, 1),
    ("robots", _ROBOTS, 0.8, 0.95, 2),
)
"""Name, pattern, share of the lines that must fit, confidence, and how many lines at least."""


def _by_lines(lines: list[str], sample: Sample) -> Guess | None:
    best: Guess | None = None
    for name, pattern, least, sure, count in _BY_LINES:
        fits = share(lines, pattern.match)
        if fits >= least and len(lines) >= count and (best is None or sure * fits > best[2]):
            best = Guess("config", name, sure * fits)
    if best is None and "gitignore" in sample.name and share(lines, _IGNORE.match) > 0.9:
        return Guess("config", "ignore file", 0.9)
    if best is None and share(lines, _SSH_LINE.match) > 0.7 and _SSH_CONFIG.match(lines[0]):
        return Guess("config", "ssh config", 0.94)
    if best is None and any(_SUDOERS.match(line) for line in lines):
        return Guess("config", "sudoers", 0.85)
    return best


def _ini(lines: list[str], sample: Sample) -> Guess | None:
    sections = [line for line in lines if _SECTION.match(line)]
    fits = share(lines, lambda line: _SECTION.match(line) or _PAIR.match(line) or line[0].isspace())
    if not sections or fits < 0.85 or not _SECTION.match(lines[0]):
        return None
    details = {"sections": [line.strip()[:80] for line in sections[:30]]}
    if any(_UNIT.match(line) for line in sections):
        return Guess("config", "systemd unit", 0.97, details)
    if any(_DESKTOP.match(line) for line in sections):
        return Guess("config", "desktop entry", 0.97, details)
    if any(line.startswith('[remote "') or line.strip() == "[core]" for line in sections):
        return Guess("config", "git config", 0.96, details)
    pairs = any(_PAIR.match(line) for line in lines if line not in sections)
    return Guess("config", "ini", 0.87 if pairs else 0.6, details)


def _nginx(lines: list[str], sample: Sample) -> Guess | None:
    blocks = sum(_NGINX_OPEN.match(line) is not None for line in lines)
    fits = share(lines, lambda line: _NGINX_OPEN.match(line) or _NGINX_LINE.match(line))
    if blocks and fits >= 0.8:
        return Guess("config", "nginx", 0.95)
    return None


def _httpd(lines: list[str], sample: Sample) -> Guess | None:
    if not any(_HTTPD.match(line) for line in lines):
        return None
    fits = share(lines, lambda line: _HTTPD.match(line) or _HTTPD_LINE.match(line))
    return Guess("config", "apache httpd", 0.94) if fits >= 0.7 else None


def _docker(lines: list[str], sample: Sample) -> Guess | None:
    if not lines[0].startswith(("FROM ", "ARG ")):
        return None
    fits = share(
        lines, lambda line: _DOCKER.match(line) or line[0].isspace() or line.startswith("&&")
    )
    return Guess("config", "dockerfile", 0.96) if fits >= 0.7 else None


def _hcl(lines: list[str], sample: Sample) -> Guess | None:
    found = sum(_HCL.match(line) is not None for line in lines)
    if (
        found
        and share(lines, lambda line: _HCL.match(line) or line[0].isspace() or line == "}") > 0.8
    ):
        return Guess("config", "terraform", 0.95)
    return None


def _proxy(lines: list[str], sample: Sample) -> Guess | None:
    heads = [line for line in lines if not line[0].isspace()]
    if len(heads) >= 2 and share(heads, _HAPROXY.match) == 1 and len(lines) > len(heads):
        return Guess("config", "haproxy", 0.93)
    return None


_PLAIN_PAIR: Final = re.compile(
    r"\s*[A-Za-z_][\w.-]{0,80}\s*=\s*[^=].*$|\s*[A-Za-z_][\w.-]{0,80}\s*=\s*$"
)


def _pairs(lines: list[str], sample: Sample) -> Guess | None:
    if len(lines) >= 2 and share(lines, _PLAIN_PAIR.match) >= 0.9:
        return Guess("config", "key value", 0.72)
    if sample.name.lower().endswith((".conf", ".cfg", ".cnf", ".config")):
        return Guess("config", "unknown", 0.66)
    return None
