"""How Sphinx makes the site: `sphinx-build -W docs SITE`. Neither it nor its pages need a network."""

from importlib.metadata import version as installed

project = "Pilothouse"
release = version = installed("pilothouse")
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Pilothouse"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00695c", "color-brand-content": "#00695c"},
    "dark_css_variables": {"color-brand-primary": "#4db6ac", "color-brand-content": "#4db6ac"},
    "footer_icons": [],
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = html_show_sphinx = html_copy_source = False
highlight_language = "text"
