"""What the config may say of searching the web and of plain requests: ``[sources.web]``.

Above: ``web.py`` and its tools. Below: the table of providers. It refuses to know keys: those are
in the environment.
"""

from __future__ import annotations

from typing import Final

from toolpost.builtin.web_answers import url_configured
from toolpost.builtin.web_providers import PROVIDERS, Name
from toolpost.errors import ConfigError
from toolpost.net.destination import Granted, Refused
from toolpost.net.url import Url, url_from
from toolpost.options import Options

_BYTES: Final = 1024 * 1024


class Service(Options, frozen=True, forbid_unknown_fields=True):
    """Where a provider is, if not where it usually is; it may then be a private address."""

    url: str | None = None


class Google(Service, frozen=True, forbid_unknown_fields=True):
    """``cx`` is the id of a search engine that was made there; or it is in GOOGLE_CSE_ID."""

    cx: str | None = None


class Settings(Options, frozen=True):
    """``[sources.web]``: which providers are asked, in which order; and where plain requests go."""

    providers: tuple[Name, ...] | None = None
    """Asked one after the other until one answers; those without a key are passed over."""
    brave: Service = Service()
    tavily: Service = Service()
    serpapi: Service = Service()
    google: Google = Google()
    searxng: Service = Service()
    bing: Service = Service()
    egress: tuple[str, ...] = ()
    """Where http_get and http_request may go, ``host:port`` or ``*`` for all that is public; with
    none there are no such tools.
    """
    max_bytes: int = _BYTES
    """Of one answer to a plain request, unpacked."""

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise ConfigError("web: max_bytes must be at least 1", at=("max_bytes",))
        if self.providers is not None and not self.providers:
            raise ConfigError("web: providers names none; leave it out", at=("providers",))
        for one in self.egress:
            verify_authority(one)
        places(self)


def places(settings: Settings) -> dict[Name, Url | None]:
    """Who is asked, in order, and where; ``None`` for one that is nowhere."""
    found: dict[Name, Url | None] = {}
    for name in settings.providers or tuple(PROVIDERS):
        base = _url(settings, name) or PROVIDERS[name].base
        if base or settings.providers:
            found[name] = url_configured(base, f"web: {name}: url") if base else None
    return found


def grant(settings: Settings) -> Granted:
    """Searches go to the providers; a place that the config names may be private."""
    there = {name: url.authority for name, url in places(settings).items() if url is not None}
    named = [where for name, where in there.items() if _url(settings, name)]
    return Granted(named, public=[where for where in there.values() if where not in named])


def verify_authority(text: str) -> None:
    """``ConfigError`` unless it is ``*`` or a host and its port."""
    host, mark, port = text.rpartition(":")
    try:
        if text != "*" and not (mark and url_from(f"http://{host}:{port}/").port == int(port)):
            raise Refused("it is none")
    except (Refused, ValueError):
        raise ConfigError(
            f"egress: {text!r} is no host and port: write example.org:443, or * for all that is "
            "public",
            at=("egress",),
        ) from None


def _url(settings: Settings, name: Name) -> str | None:
    service: Service = getattr(settings, name)
    return service.url
