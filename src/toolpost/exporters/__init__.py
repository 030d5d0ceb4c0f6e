"""Specs in the forms of vendors: what a model is told of the tools."""

from toolpost.exporters.exporting import FORMATS, export
from toolpost.exporters.names import Rule
from toolpost.exporters.values import Export, Form, Note, Tell, Unexportable, Write

__all__ = ["FORMATS", "Export", "Form", "Note", "Rule", "Tell", "Unexportable", "Write", "export"]
