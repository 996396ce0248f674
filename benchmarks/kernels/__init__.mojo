"""The benchmarks' kernels: a package, as MAX's own CustomOpLibrary wants it."""

from .arithmetic import Add, Subtract
