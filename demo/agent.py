"""An agent that uses the thin client: ``agent.py SESSION TOPIC [hang]``.

With ``hang`` it stops inside a tool, says so on stdout, and waits to be killed.
"""

from __future__ import annotations

import sys
import time

import agentrund_client as agentrund


def think(seconds: float) -> None:
    """Stand in for a model at work."""
    time.sleep(seconds)


def search(query: str) -> list[str]:
    """Stand in for a web search."""
    time.sleep(0.2)
    return [f"{query}: result {n}" for n in range(1, 4)]


@agentrund.traced
def read_page(url: str) -> str:
    """Stand in for fetching a page: long enough to go to a blob."""
    return f"<{url}> " + "lorem ipsum dolor sit amet " * 400


def main() -> None:
    """Plan, search, read, answer; or hang in the middle of it."""
    session, topic, *rest = sys.argv[1:]
    with (
        agentrund.run(session, framework="demo", model="model-x", task=f"explain {topic}"),
        agentrund.agent("planner"),
    ):
        with agentrund.llm("model-x", messages=[{"role": "user", "content": f"Explain {topic}."}]) as call:
            think(0.4)
            call.result(
                "I will look it up.", tokens_in=412, tokens_out=38, cost_usd=0.0009, stop_reason="tool_use"
            )
        with agentrund.tool("web_search", query=topic) as step:
            step.output = search(topic)
        read_page(f"https://example.org/{topic}")
        if rest == ["hang"]:
            with agentrund.tool("run_python", code="while True: pass"):
                agentrund.log("this will take a while", seconds=30)
                print("inside run_python", flush=True)  # what the demo waits for
                time.sleep(600)
        with agentrund.llm("model-x", messages=6) as call:
            think(0.6)
            call.result(
                f"{topic} is …", tokens_in=2310, tokens_out=151, cost_usd=0.0041, stop_reason="end_turn"
            )


if __name__ == "__main__":
    main()
