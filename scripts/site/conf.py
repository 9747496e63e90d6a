"""Settings of Sphinx for the documentation site; `scripts/docs.py` puts the pages beside it."""

project = "Penstock"
author = "The Penstock authors"
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Penstock"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
