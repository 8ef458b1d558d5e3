"""The site: `make site` builds the pages in `docs` and those beside it into build/site."""

import re

from sphinx.application import Sphinx

from kfext import __version__

project = "kfext"
project_copyright = "The kfext authors"
version = release = __version__
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/statements.md"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"kfext {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["static/index.html"]
html_copy_source = False
_PICTURE = re.compile(
    r'<picture>.*?srcset="(?P<dark>.*?)".*?src="(?P<light>.*?)" alt="(?P<alt>.*?)".*?</picture>',
    re.DOTALL,
)
_IMAGE = "```{{image}} {}\n:class: only-{}\n:alt: {}\n```\n"


def _pictures(_: Sphinx, __: str, source: list[str]) -> None:
    """Let the switch of the theme choose between the light and the dark picture."""
    source[0] = _PICTURE.sub(_both, source[0])


def _both(picture: re.Match[str]) -> str:
    return "".join(_IMAGE.format(picture[mode], mode, picture["alt"]) for mode in ("light", "dark"))


def setup(app: Sphinx) -> None:
    """Connect the events of Sphinx."""
    app.connect("source-read", _pictures)
