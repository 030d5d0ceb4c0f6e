"""HTTP tools: one request to a service, to the host that the spec names and to no other.

Above: the road. Below: ``binding`` (what the spec says), ``filling`` (values into a request),
``auth`` (secrets), ``answering`` (what came back), and ``net``, which connects. Which host is
asked is the spec's to say, never a value's; addresses that are not public are asked only where its
``egress`` names them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from toolpost import traceparent
from toolpost.backends.http.answering import output_of
from toolpost.backends.http.auth import Secrets
from toolpost.backends.http.binding import Endpoint, endpoint_of
from toolpost.backends.http.filling import request_from
from toolpost.call import Call
from toolpost.contracts import Health, Services
from toolpost.digest import canonical
from toolpost.errors import ConfigError, MissingPart
from toolpost.net.client import Client, Lanes, Proxy, Request
from toolpost.net.destination import Granted, Refused, Resolve, resolved
from toolpost.net.url import url_from
from toolpost.options import Options, options_from
from toolpost.spec import ToolSpec
from toolpost.wording import shortened

_AGENT: Final = "toolpost"
_PATIENCE: Final = 10.0
"""Seconds that connecting may take, if the tool has as many to spare."""
_MOST_SHOWN: Final = 1000


class HttpOptions(Options, frozen=True):
    """``[backends.http]``: connections to one host at a time, a proxy (nothing is taken from the
    environment), certificates that are believed beside the system's, and what we call ourselves.
    """

    connections: int = 10
    proxy: str | None = None
    proxy_user: str = ""
    proxy_password: str | None = None
    ca_file: str | None = None
    user_agent: str = _AGENT


class HttpBackend:
    """Runs tools of kind ``http``."""

    options: ClassVar[type[Options]] = HttpOptions

    def __init__(self, services: Services | None = None, *, resolve: Resolve = resolved) -> None:
        """``resolve`` is what names are looked up with."""
        self._services = services or Services()
        self._resolve = resolve
        given = self._services.settings.get("http", {})
        self._options = options_from(given, HttpOptions, "backend http")
        _verify(self._options)
        self._lanes = Lanes(self._options.connections)
        self._clients: dict[tuple[str, ...], tuple[Granted, Client]] = {}

    def bind(self, spec: ToolSpec, target: object | None) -> HttpHandle:
        endpoint = endpoint_of(spec)
        granted, client = self._client(spec, endpoint)
        return HttpHandle(
            endpoint,
            client=client,
            granted=None if self._options.proxy else granted,
            secrets=Secrets(endpoint.auth, self._services.secret),
            agent=self._options.user_agent,
        )

    async def close(self) -> None:
        clients = [client for _, client in self._clients.values()]
        self._clients.clear()
        for client in clients:
            await client.close()

    def _client(self, spec: ToolSpec, endpoint: Endpoint) -> tuple[Granted, Client]:
        """Tools with the same grant share connections; with another grant they never do."""
        own = (endpoint.origin.authority,) if spec.egress else ()
        key = (*sorted(spec.egress), "|", *own)
        if key not in self._clients:
            granted = Granted(spec.egress or ("*",), public=own, resolve=self._resolve)
            client = Client(
                granted, lanes=self._lanes, trusted=self._options.ca_file, proxy=self._proxy()
            )
            self._clients[key] = granted, client
        return self._clients[key]

    def _proxy(self) -> Proxy | None:
        options = self._options
        if options.proxy is None:
            return None
        name = options.proxy_password
        password = self._services.secret(name) if name else ""
        if password is None:
            raise MissingPart(f"the secret {name} is not set: set the variable {name}")
        return Proxy(options.proxy, options.proxy_user, password)


class HttpHandle:
    """One endpoint, ready: ``about`` says which, ``plan`` what a call would send."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        client: Client,
        granted: Granted | None,
        secrets: Secrets,
        agent: str,
    ) -> None:
        self._endpoint = endpoint
        self._client = client
        self._granted = granted
        self._secrets = secrets
        self._agent = agent

    @property
    def about(self) -> Mapping[str, Any]:
        return {"host": self._endpoint.origin.authority}

    async def run(self, call: Call) -> Any:
        request = self._secrets.signed(self._request(call))
        patience = min(_PATIENCE, call.spec.time_limit / 2)
        async with self._client.answered(
            request, redirects=self._endpoint.binding.redirects, patience=patience
        ) as answer:
            return await output_of(self._endpoint, answer, call)

    def plan(self, call: Call) -> Mapping[str, Any]:
        request = self._secrets.shown(self._request(call))
        url, query = str(request.url), request.credentials.query
        if query:
            said = "&".join(f"{name}={value}" for name, value in query)
            url += f"{'&' if '?' in url else '?'}{said}"
        headers = dict((*request.headers, *request.credentials.headers))
        if request.type is not None:
            headers["Content-Type"] = request.type
        plan = {"method": request.method, "url": url, "headers": headers}
        return plan if request.body is None else {**plan, "body": _shown(request)}

    async def health(self) -> Health:
        if (problem := self._secrets.problem) is not None:
            return Health(False, problem)
        if self._granted is not None:
            try:
                origin = self._endpoint.origin
                await self._granted.addresses(origin.host, origin.port)
            except Refused as fault:
                return Health(False, str(fault))
        return Health(True)

    async def close(self) -> None: ...

    def _request(self, call: Call) -> Request:
        request = request_from(self._endpoint, call.arguments)
        said = {name.lower() for name, _ in request.headers}
        more = [("User-Agent", self._agent), ("Accept", "*/*")]
        more += traceparent.outgoing(call).items()
        if self._endpoint.key_header is not None and call.key is not None:
            more.append((self._endpoint.key_header, _own_key(call)))
        headers = (*request.headers, *(pair for pair in more if pair[0].lower() not in said))
        completed: Request = msgspec.structs.replace(request, headers=headers)
        return completed


def _own_key(call: Call) -> str:
    """One key for one call, however often it is sent; two callers' never meet."""
    named = canonical([call.caller.principal, call.tool, call.key])
    return hashlib.sha256(named).hexdigest()


def _shown(request: Request) -> Any:
    body, kind = request.body or b"", request.type or ""
    if kind.startswith("application/json") and len(body) <= _MOST_SHOWN:
        return msgspec.json.decode(body)
    try:
        return shortened(body.decode(), _MOST_SHOWN)
    except UnicodeDecodeError:
        return f"{len(body):,} bytes"


def _verify(options: HttpOptions) -> None:
    if options.connections < 1:
        raise ConfigError("backend http: connections must be at least 1")
    if options.proxy is not None:
        try:
            url_from(options.proxy)
        except Refused as fault:
            raise ConfigError(f"backend http: proxy: {fault}") from None
    if options.ca_file is not None and not Path(options.ca_file).is_file():
        raise ConfigError(f"backend http: there is no file {options.ca_file!r} (ca_file)")
