"""Attacks on a sandbox, by name: what each level blocks on this machine, found by trying."""

from toolpost.sandbox.probes._attacks import ATTACKS
from toolpost.sandbox.probes.running import Probed, probe

__all__ = ["ATTACKS", "Probed", "probe"]
