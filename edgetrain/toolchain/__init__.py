"""C compilers and linkers for every target, and archives of objects: the tools, not what is built with them."""
