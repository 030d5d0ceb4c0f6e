"""What confines a child process: one description, and the layers that can provide it."""

from toolpost.sandbox.confinement import Confinement, Level, Mode
from toolpost.sandbox.finding import Missing
from toolpost.sandbox.sandbox import Sandbox

__all__ = ["Confinement", "Level", "Missing", "Mode", "Sandbox"]
