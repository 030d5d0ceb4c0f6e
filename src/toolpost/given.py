"""What a caller gives, whatever it is, in a form that a call can hold.

Above: the executor. Nothing is refused here: the road does that, in sight of its observers.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping
from typing import Any, Final

_log = logging.getLogger("toolpost")
NEVER: Final = -sys.float_info.max
"""The deadline of a call whose timeout is no number of seconds: it does not run."""


def as_name(name: object) -> str:
    return name if isinstance(name, str) else f"({type(name).__name__})"


def as_arguments(arguments: object) -> Any:
    """What is not a mapping goes on as it is: the check says what is wrong with it."""
    if arguments is None:
        return {}
    try:
        return dict(arguments) if isinstance(arguments, Mapping) else arguments
    except Exception:  # noqa: BLE001 - a mapping of the caller's own, which may do anything
        _log.exception("arguments that cannot be read")
        return Unreadable()


class Unreadable:
    """Stands for arguments that raised when they were read: the check refuses it by its name."""


def as_deadline(started: float, timeout: Any) -> float:
    """When a call is over. What is no number of seconds is over before it began."""
    try:
        deadline = started + timeout
    except OverflowError:  # an integer beyond any clock
        return math.inf if timeout > 0 else -math.inf
    except Exception:  # noqa: BLE001 - an object of the caller's own, which may do anything
        return NEVER
    return deadline if isinstance(deadline, float) and not math.isnan(deadline) else NEVER
