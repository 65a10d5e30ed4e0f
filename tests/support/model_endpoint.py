"""A model's HTTP endpoint that follows a script: it asks for a tool once, and then answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

MODEL = "scripted-1"
TOOL = "run_python"
ANSWER = "the mean is 4.2"
USAGE = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
CALL = {"id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": '{"code": "mean(x)"}'}}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(completion(request["messages"])).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Nothing."""


def completion(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a conversation: a tool call, and where its result is there, words."""
    done = messages[-1]["role"] == "tool"
    message = (
        {"role": "assistant", "content": ANSWER} if done else {"role": "assistant", "tool_calls": [CALL]}
    )
    choice = {"index": 0, "message": message, "finish_reason": "stop" if done else "tool_calls"}
    facts = {"id": "c1", "object": "chat.completion", "created": 1, "model": MODEL, "usage": USAGE}
    return {**facts, "choices": [choice]}


@contextmanager
def scripted_model() -> Iterator[str]:
    """Serves on loopback; the base URL for a client of OpenAI's interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
