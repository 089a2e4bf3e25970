"""For all tests: a Ctrl-C is heard, also where a shell has started them in the background, which then ignores it; and
PyTorch, where there is one, comes first: a plugin that was built for another NCCL then uses PyTorch's, and not the
other way round."""

import signal

try:
    import torch  # noqa: F401
except ImportError:
    pass

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
