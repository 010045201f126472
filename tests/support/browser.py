"""Headless Chromium, driven over its DevTools protocol by a pair of pipes."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "about:blank",
]
_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "End": 35}


class Page:
    """One browser with one page. `problems` are its errors and warnings, and failed requests."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="octavo-browser-")
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        # The browser reads from descriptor 3 and writes to descriptor 4.
        script = f'exec "$0" "$@" 3<&{their_in} 4>&{their_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, CHROMIUM, f"--user-data-dir={self._profile}", *_FLAGS],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        self._rest = b""
        self._calls = 0
        self._session = None
        self.problems = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Send a command; its result."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._calls:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(answer["params"])

    def open(self, url):
        """Load an address and wait for its scripts."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def js(self, expression):
        """The value of an expression, awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression, timeout=90.0):
        """Until an expression is true; the limit is only there to end a test that fails."""
        end = time.monotonic() + timeout
        while not self.js(f"Boolean({expression})"):
            assert time.monotonic() < end, f"still not: {expression}"
            time.sleep(0.02)

    def show(self, width, height, *, dark=False, phone=False):
        """Change the size and kind of the screen."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def type(self, text):
        """Put text where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        """Press a key."""
        event = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": _KEYS[key],
            "modifiers": 8 * shift,
        }
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector):
        """Click an element in its middle, as a mouse does."""
        x, y = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **where)

    def screenshot(self):
        """What is on the screen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def accessible(self):
        """(role, name) of every element that assistive technology is told of."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]

    def close(self):
        self._session = None
        self._calls += 1
        os.write(
            self._out, json.dumps({"id": self._calls, "method": "Browser.close"}).encode() + b"\0"
        )
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _receive(self):
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
