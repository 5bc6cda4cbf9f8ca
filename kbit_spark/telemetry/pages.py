"""HTML pages of one look, without external references."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader


def render_page(template: str, **values: Any) -> str:
    """Return the page that a template of this package makes of `values`."""
    environment = Environment(
        loader=PackageLoader("kbit_spark", "telemetry"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(**values)
