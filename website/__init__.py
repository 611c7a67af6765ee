"""Turns `docs/` into a site, and writes the reference from the code. No part of the product; nothing imports it."""
