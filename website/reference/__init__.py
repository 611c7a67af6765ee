"""The reference, written from the code: each module has a `page()` that returns Markdown.

What is said here is said in the code first: a page adds headings, tables and one sentence on what it is.
"""
