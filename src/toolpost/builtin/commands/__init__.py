"""Commands of this machine: programs that the config names, with the words their rules allow.

    [sources.commands]
    programs = ["df", "ps", "kubectl"]
    egress = ["cluster.example:6443"]

``system_command`` runs what only reads, ``system_command_change`` the rest, once a person has said
yes. Nothing is run by a shell, and nothing outside a sandbox.
"""

from toolpost.builtin.commands.settings import NEEDS, SAMPLE, Settings
from toolpost.builtin.commands.tools import tools

__all__ = ["NEEDS", "SAMPLE", "Settings", "tools"]
