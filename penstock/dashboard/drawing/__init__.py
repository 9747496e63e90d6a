"""Draws what pages show, as SVG made on the server. Pure: values in, text out, the same text each time.

`definition_graph` turns a definition into nodes and edges to draw, `graph_layout` finds their places, `graph_svg` draws
them with the states of a run. `timeline_svg` draws the attempts of a run over time, `charts_svg` small charts. Colours
come from the stylesheet by class, so that a page can change its theme; nothing is told by colour alone.
"""
