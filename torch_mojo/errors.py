"""The exceptions of torch_mojo.

Each message says what is wrong, with the values; where; and, in its last line, what to do.
"""


class MojoError(RuntimeError):
    """Base of every exception that torch_mojo raises on purpose."""


class ToolchainError(MojoError):
    """The Mojo compiler or one of its libraries is missing or of another version."""


class MojoCompileError(MojoError):
    """The Mojo compiler refused a kernel.

    Attributes:
        diagnostics: the compiler's messages, with the user's own files and lines.
    """

    def __init__(self, message: str, diagnostics: str = "") -> None:
        super().__init__(message)
        self.diagnostics = diagnostics


class KernelNotFoundError(MojoError, AttributeError):
    """A source registers no kernel of the name that was asked for."""


class SignatureError(MojoError, TypeError):
    """A declaration, a kernel or a call do not fit together."""


class UnsupportedOpError(MojoError, NotImplementedError):
    """`torch.compile(backend="max")` met an operator it may not hand back to eager torch."""


class KernelError(MojoError):
    """A kernel raised an error while it ran."""


class CacheError(MojoError, OSError):
    """The kernel cache cannot be used."""


class NotBuiltError(MojoError):
    """A kernel is not in the cache, and TORCH_MOJO_BUILD=never forbids to build it."""
