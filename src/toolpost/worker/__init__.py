"""A worker: tools of this host, served on the bus to gateways on others."""

from toolpost.worker.settings import WorkerSettings, settings_of
from toolpost.worker.worker import Worker

__all__ = ["Worker", "WorkerSettings", "settings_of"]
