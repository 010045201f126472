"""Have the CUDA driver make its context while this process imports torch, which takes as long."""

from __future__ import annotations

import contextlib
import ctypes
import threading

_LIBRARY = "libcuda.so.1"


def wake_cuda() -> threading.Thread:
    """Retain the first device's primary context, which torch will then find, in a thread.

    Whatever fails here fails again, with its message, where torch asks for the device.
    """
    thread = threading.Thread(target=_retain_context, name="octavo-wake-cuda", daemon=True)
    thread.start()
    return thread


def _retain_context() -> None:
    # ctypes releases the GIL while the driver works.
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL(_LIBRARY)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
