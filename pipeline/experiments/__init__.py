"""What `make pretrained`, `make compare` and `make real` write before they run: an overlay, or a model."""
