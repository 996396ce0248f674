"""The Mojo sources of torch_mojo; a Python package only so that they are installed with it."""
