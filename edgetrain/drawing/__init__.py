"""Pictures without a plotting library: shapes as data, written as SVG, as a web page, or with Pillow as PNG."""
