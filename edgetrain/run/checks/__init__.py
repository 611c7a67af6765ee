"""Whether a compiled model trains right: gradients against differences of the loss, plans against each other."""
