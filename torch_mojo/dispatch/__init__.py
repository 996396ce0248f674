"""From a library to a torch operator: router, specializations, output plans, the autograd gate."""
