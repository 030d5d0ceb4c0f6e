"""Calls that nobody waits for: kept before they are acknowledged, run, and their results kept.

Above: the doors. Below: ``runtime``, whose road every job walks like any other call, and its store.
"""

from toolpost.jobs.board import Board
from toolpost.jobs.desk import Jobs, house
from toolpost.jobs.values import ENDED, Job, State

__all__ = ["ENDED", "Board", "Job", "Jobs", "State", "house"]
