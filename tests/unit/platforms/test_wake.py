from octavo.platforms import wake


def test_nothing_happens_without_a_driver(monkeypatch):
    monkeypatch.setattr(wake, "_LIBRARY", "libno-such-library.so.1")
    thread = wake.wake_cuda()
    thread.join(10)
    assert not thread.is_alive()
    assert thread.daemon


def test_a_driver_that_fails_is_left_alone(monkeypatch):
    calls = []

    class Driver:
        def __init__(self, name):
            calls.append(name)

        def cuInit(self, flags):
            calls.append("cuInit")
            return 100  # CUDA_ERROR_NO_DEVICE

    monkeypatch.setattr(wake.ctypes, "CDLL", Driver)
    wake.wake_cuda().join(10)
    assert calls == ["libcuda.so.1", "cuInit"]
