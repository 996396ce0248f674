"""Kernels for the tests of mojo:: operators inside a MAX graph."""

from .add import *
