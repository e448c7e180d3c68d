"""HTML pages that need nothing else: the packages' templates, and the style that they share."""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rrgclinical.shown import printable


def rendered(package: str, template: str, **shown: Any) -> str:
    """A page from `templates/` of a package, which finds the style sheet as `style`.

    What is shown is escaped, unless it is Markup, and so are control characters; a name that has no
    value is an error.
    """
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sheet = resources.files("rrgtrain.report") / "templates" / "report.css"
    style = Markup(sheet.read_text(encoding="utf-8"))
    return printable(environment.get_template(template).render(style=style, **shown))
