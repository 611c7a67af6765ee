"""Programs loaded and ready to be called: on this machine, or on a device that computes nothing."""
