"""The store of a gang: keys of torch's store, the calls that all ranks must make, and the data that they exchange.

The stand-in of torchrun on the first host serves it; every rank has a connection, and sends lines of JSON.
"""
import json
import socket
import threading
import time

# Seconds in which the first host opens the store, as torchrun's.
TIMEOUT = 60.0


class Store:
    def __init__(self, listener):
        self.changed = threading.Condition()
        self.keys, self.calls, self.meetings = {}, {}, {}
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rwb")
        try:
            for line in stream:
                method, arguments, rest = line.split(b"\t", 2)
                stream.write(getattr(self, method.decode())(*json.loads(arguments), rest.strip()) + b"\n")
                stream.flush()
        except (OSError, ValueError):
            pass  # The rank has ended.

    def set(self, key, value, _):
        with self.changed:
            self.keys[key] = value
            self.changed.notify_all()
        return b"null"

    def get(self, key, _):
        with self.changed:
            self.changed.wait_for(lambda: key in self.keys)
            return json.dumps(self.keys[key]).encode()

    def check(self, number, call, _):
        """Returns the n-th call of the rank that made it first."""
        with self.changed:
            return json.dumps(self.calls.setdefault(number, call)).encode()

    def meet(self, number, rank, ranks, arrival):
        """Waits until all ranks have made their n-th collective call, and returns what they sent, by rank."""
        with self.changed:
            meeting = self.meetings.setdefault(number, {"arrivals": {}, "left": 0})
            arrivals = meeting["arrivals"]
            arrivals[rank] = arrival
            if len(arrivals) >= ranks:
                self.changed.notify_all()
            self.changed.wait_for(lambda: len(arrivals) >= ranks)
            meeting["left"] += 1
            if meeting["left"] >= ranks:
                self.meetings.pop(number, None)
        return b"[" + b",".join(arrivals[rank] for rank in sorted(arrivals)) + b"]"


class Link:
    """Connection of a rank to the store; waits until the first host has opened it."""

    def __init__(self, address, port):
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                connection = socket.create_connection((address, port))
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise RuntimeError(
                        "The client socket has timed out while trying to connect to (%s, %d): %s" % (address, port, error)
                    ) from None
                time.sleep(0.05)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = connection.makefile("rwb")

    def ask(self, method, *arguments, rest=b""):
        try:
            self.stream.write(b"\t".join([method.encode(), json.dumps(arguments).encode(), rest]) + b"\n")
            self.stream.flush()
            line = self.stream.readline()
        except OSError:
            line = b""
        if not line:
            raise RuntimeError("rehearsal: another rank has ended")
        return json.loads(line)
