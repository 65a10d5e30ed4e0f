"""A thin-client agent that keeps a private record of what it has sent: ``busy_agent.py SESSION NAME COUNT RECORD``.

The record gets a line ``s <i>`` after each call that returned, and ``f <i>`` after each flush that was
answered: everything up to ``i`` is then on the collector's disk.
"""

from __future__ import annotations

import os
import sys

import agentrund_client as agentrund

FLUSH_EVERY = 500


def main() -> None:
    session, name, count, record_path = sys.argv[1:5]
    record = os.open(record_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with agentrund.run(session), agentrund.agent(name):
        for i in range(int(count)):
            agentrund.log("work", agent=name, i=i)
            os.write(record, b"s %d\n" % i)
            if i % FLUSH_EVERY == FLUSH_EVERY - 1 and agentrund.flush(0.2):
                os.write(record, b"f %d\n" % i)
        # The run's end must not depend on how fast this machine is: wait for the last answer.
        for _ in range(100):
            if agentrund.flush(1.0):
                break


if __name__ == "__main__":
    main()
