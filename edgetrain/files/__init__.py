"""Files and folders that appear whole or not at all, and the cache of built things that rests on them.

What is in a file, and when it is written, is its owner's business.
"""
