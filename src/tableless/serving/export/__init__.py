"""A trained run as files that answer without the library."""

from .exporting import ExportReport, export_run

__all__ = ["ExportReport", "export_run"]
