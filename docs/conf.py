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
smartquotes = False
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
_LIST = re.compile(r"\*\*(?P<caption>.*)\*\*\n\n(?P<pages>(?:\* \[.*\]\(.*\.md\)\n)+)")
_PAGE = re.compile(r"\* \[(.*)\]\((.*)\.md\)")
_IMAGE = "```{{image}} {}\n:class: only-{}\n:alt: {}\n```\n"


def _read(_: Sphinx, name: str, source: list[str]) -> None:
    """Make a picture for each mode of the theme, and entries of the sidebar from lists of pages."""
    source[0] = _PICTURE.sub(_both, source[0])
    if name.endswith("index"):
        source[0] = _LIST.sub(_tree, source[0])


def _both(picture: re.Match[str]) -> str:
    return "".join(_IMAGE.format(picture[mode], mode, picture["alt"]) for mode in ("light", "dark"))


def _tree(pages: re.Match[str]) -> str:
    entries = _PAGE.sub(r"\1 <\2>", pages["pages"])
    return f"```{{toctree}}\n:caption: {pages['caption']}\n:maxdepth: 1\n\n{entries}```\n"


def setup(app: Sphinx) -> None:
    """Connect the events of Sphinx."""
    app.connect("source-read", _read)
