"""Writes down what a serving process calls fused attention with, for `npubench fia-backfill`.

Import it once in every worker, before the first call, for example through a sitecustomize.py or in the
worker's own start-up:

    import attention_dump
    attention_dump.record("/tmp/attention")

Each process writes /tmp/attention-<pid>.jsonl: one JSON object per distinct call, as docs/attention.md says.
Calls go on as they were; a call that cannot be written down is passed on and reported once. Begin after
warm-up and graph capture, whose lengths are made up; `attention_dump.stop()` ends it. Lengths that are
tensors on the device are copied to the host, which waits for the device.
"""

import hashlib
import json
import os
import sys

import torch_npu

# What the arguments are called by each form of the API.
FIELDS = {
    "npu_fused_infer_attention_score": {
        "actual_seq_lengths": "actual_seq_lengths",
        "actual_seq_lengths_kv": "actual_seq_lengths_kv",
        "num_heads": "num_heads",
    },
    "npu_fused_infer_attention_score_v2": {
        "actual_seq_lengths": "actual_seq_qlen",
        "actual_seq_lengths_kv": "actual_seq_kvlen",
        "num_heads": "num_query_heads",
    },
}
# The API's own defaults.
DEFAULTS = {"num_heads": 1, "num_key_value_heads": 0, "input_layout": "BSH", "sparse_mode": 0, "block_size": 0}


class Recorded:
    """A function that writes down its arguments; its overloads, such as `.out`, do so too."""

    def __init__(self, function, fields, write):
        self._function, self._fields, self._write = function, fields, write

    def __call__(self, *args, **kwargs):
        self._write(self._fields, args, kwargs)
        return self._function(*args, **kwargs)

    def __getattr__(self, name):
        attribute = getattr(self._function, name)
        if name in ("out", "default"):
            return Recorded(attribute, self._fields, self._write)
        return attribute


def call_of(fields, args, kwargs):
    """The call as a dictionary; shapes are lists of dimensions, lengths are lists of whole numbers."""
    given = dict(zip(("query", "key", "value"), args))
    given.update(kwargs)
    call = {name: list(given[name].shape) for name in ("query", "key", "value")}
    for name in ("atten_mask", "block_table", "query_rope", "key_rope"):
        if given.get(name) is not None:
            call[name] = list(given[name].shape)
    for name in ("actual_seq_lengths", "actual_seq_lengths_kv", "actual_shared_prefix_len"):
        lengths = given.get(fields.get(name, name))
        if lengths is not None:
            lengths = lengths.tolist() if hasattr(lengths, "tolist") else lengths
            call[name] = [int(length) for length in lengths]
    for name in ("pre_tokens", "next_tokens"):
        if given.get(name) is not None:
            call[name] = int(given[name])
    for name, default in DEFAULTS.items():
        value = given.get(fields.get(name, name), default)
        call[name] = value if isinstance(value, str) else int(value)
    return call


class Recorder:
    """Writes each distinct call of a process once."""

    def __init__(self, prefix):
        self.prefix, self.written, self.has_failed, self.is_on = prefix, set(), False, True

    def __call__(self, fields, args, kwargs):
        if not self.is_on:
            return
        try:
            line = json.dumps(call_of(fields, args, kwargs), sort_keys=True)
            # The digest, for a server makes many calls; the process, for servers fork.
            key = os.getpid(), hashlib.sha256(line.encode()).digest()
            if key not in self.written:
                with open("{}-{}.jsonl".format(self.prefix, os.getpid()), "a") as out:
                    out.write(line + "\n")
                self.written.add(key)
        except Exception as error:  # whatever it is, the caller's call must go on
            if not self.has_failed:
                self.has_failed = True
                print("attention_dump: a call cannot be written down: {!r}".format(error), file=sys.stderr)


recorder = None


def record(prefix):
    """From now on, writes the calls of this process to `<prefix>-<pid>.jsonl`."""
    global recorder
    if recorder is None:
        recorder = Recorder(prefix)
        for name, fields in FIELDS.items():
            function = getattr(torch_npu, name, None)
            if function is not None:
                setattr(torch_npu, name, Recorded(function, fields, recorder))
    recorder.prefix, recorder.is_on = prefix, True


def stop():
    """Writes nothing from now on, until `record` is called again."""
    if recorder is not None:
        recorder.is_on = False
