"""The models: which there are, where they are, downloading and loading them."""
