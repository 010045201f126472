"""A small server with OpenAI's API whose answers are given in advance."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def chunk(delta=None, text=None, finish=None):
    """An event of a chat stream (`delta`) or of a completion stream (`text`)."""
    choice = {"index": 0, "finish_reason": finish}
    choice |= {"text": text} if delta is None else {"delta": delta}
    return {"choices": [choice]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
DONE = "[DONE]"
SLOWLY = object()  # in a list of events: the others come one by one, until the client leaves


class OpenAIStub:
    """`events` is what the next stream consists of; `bodies` what was asked."""

    def __init__(self):
        self.events = [chunk({"content": "Hi"}), chunk({"content": " there"}, finish="stop"), USAGE]
        self.events.append(DONE)
        self.models = ["small", "large"]
        self.refusal = None  # (status, body) instead of an answer
        self.bodies, self.headers = [], []
        self.left_early = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(stub):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                data = json.dumps({"data": [{"id": name} for name in stub.models]})
                self._send(*(stub.refusal or (200, data)))

            def do_POST(self):
                size = int(self.headers["Content-Length"])
                stub.bodies.append(json.loads(self.rfile.read(size)))
                stub.headers.append(dict(self.headers))
                if stub.refusal:
                    self._send(*stub.refusal)
                    return
                self.send_response(200)
                self.end_headers()
                try:
                    for event in stub.events:
                        self._event(event)
                except OSError:
                    stub.left_early.set()

            def _event(self, event):
                if event is SLOWLY:
                    while True:
                        self._event(chunk({"content": "."}))
                        time.sleep(0.01)
                text = event if isinstance(event, str) else json.dumps(event)
                self.wfile.write(f"data: {text}\n\n".encode())

            def _send(self, status, text):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args):
                pass

        return Handler
