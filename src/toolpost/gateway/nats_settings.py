"""``[gateway.nats]``: where clients on a bus may call the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolpost.bus.settings import BusOptions
from toolpost.options import options_from


class NatsSettings(BusOptions, frozen=True, kw_only=True):
    """``group``: of several gateways in one group, one takes each call."""

    group: str = "gateways"


def door_from(table: Mapping[str, Any]) -> NatsSettings:
    """The table as a value, or a ``ConfigError``."""
    return options_from(table, NatsSettings, "gateway nats")
