"""For all tests: a Ctrl-C is heard, also where a shell has started them in the background, which then ignores it."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
