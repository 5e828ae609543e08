"""Durable steps of DBOS on SQLite: one for each line of input, answered with its nanoseconds.

At the end of input it says how many steps the database holds. Its argument is a directory for the database.
"""

import os
import sqlite3
import sys
import time

from dbos import DBOS

database = os.path.join(sys.argv[1], "dbos.sqlite")
DBOS(
    config={
        "name": "bench-steps",
        "system_database_url": f"sqlite:///{database}",
        "run_admin_server": False,
        "log_level": "ERROR",
    }
)
PAYLOAD = "x" * 200


@DBOS.step()
def step(number):
    return PAYLOAD


@DBOS.workflow()
def serve():
    number = 0
    while sys.stdin.readline():
        started = time.perf_counter_ns()
        answer = step(number)
        took = time.perf_counter_ns() - started
        assert answer == PAYLOAD
        number += 1
        print(took, flush=True)
    return number


DBOS.launch()
serve()
DBOS.destroy()
with sqlite3.connect(database) as connection:
    print(connection.execute("select count(*) from operation_outputs").fetchone()[0], flush=True)
