"""Charts whose lines stretch with the page while their letters keep their size: SVG within HTML."""
