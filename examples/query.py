"""Lookups of npubench in a Python program: one process answers any number of queries.

Usage: python3 examples/query.py DB

Only the standard library is needed. The keys of queries and answers are in docs/lookup.md.
"""

import json
import subprocess
import sys


class Database:
    """A database folder. Tables are read when a query first needs them."""

    def __init__(self, folder, program="npubench", mapping=None):
        command = [program, "query", "--db", folder, "--queries", "-"]
        if mapping is not None:
            command += ["--mapping", mapping]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def query(self, op, inputs, **others):
        """Returns the answer for one operator: a dictionary with `latency_us`, `source`, `rule`, `rows`, `reason`."""
        line = json.dumps({"op": op, "inputs": inputs, **others})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("npubench ended; its message is on standard error")
        return json.loads(answer)

    def close(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


if __name__ == "__main__":
    database = Database(sys.argv[1], *sys.argv[2:])
    answer = database.query("MatMulV2", [[136, 5120], [5120, 768]], dtypes=["bf16"])
    print(answer["latency_us"], answer["source"], answer["rule"] or answer["reason"])
    database.close()
