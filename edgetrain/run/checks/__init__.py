"""Whether a compiled model trains correctly: gradients against finite differences, plans against each other."""
