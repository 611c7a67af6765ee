"""What a trained model says about samples without labels: names of classes with probabilities, or values."""
