"""A trained run as files that answer without the library."""

from .exporting import ExportReport, export

__all__ = ["ExportReport", "export"]
