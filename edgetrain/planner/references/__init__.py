"""What the planner is compared with: brute force, published baselines, and published instances with known optima.

Users can name the baselines (`--solver poet`); nothing of the product's own planning depends on them."""
