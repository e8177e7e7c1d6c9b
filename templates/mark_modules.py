# Marks the modules of a torch model in a profile of torch_npu, for `npubench modules`.
#
# Profile with mstx and the database export:
#
#     config = torch_npu.profiler._ExperimentalConfig(
#         profiler_level=torch_npu.profiler.ProfilerLevel.Level1,
#         export_type=[torch_npu.profiler.ExportType.Db],
#         mstx=True,
#     )
#
# With torch_npu 26.1, and rolling releases since June 2026, `with_flops=True` of torch_npu.profiler.profile records the operations of products and of attention;
# then mark_attention() is not needed.
#
# Call mark_modules() once, before the model runs. Eager mode only: a captured graph runs no Python.
import functools
import itertools
import json

import torch
import torch_npu

mstx = torch_npu.npu.mstx

# CANN before 9.1 drops marks of 156 bytes and more.
MAX_MARK = 155
marked_calls = itertools.count()


def mark_modules(domain="Module"):
    """Records a range for each call of a module, with the name of its class."""
    call = torch.nn.Module.__call__

    @functools.wraps(call)
    def marked_call(self, *args, **kwargs):
        number = mstx.range_start(type(self).__name__, None, domain)
        try:
            return call(self, *args, **kwargs)
        finally:
            mstx.range_end(number, domain)

    torch.nn.Module.__call__ = marked_call


def mark_attention(layout, sparse_mode, query_lengths=None, key_lengths=None):
    """Records the arguments of the next attention operator, which its shapes do not show."""
    arguments = {"input_layout": layout, "sparse_mode": sparse_mode}
    if query_lengths is not None:
        arguments["actual_seq_qlen"] = [int(length) for length in query_lengths]
    if key_lengths is not None:
        arguments["actual_seq_kvlen"] = [int(length) for length in key_lengths]
    for mark in marks_of(json.dumps(arguments, separators=(",", ":"))):
        mstx.mark(mark, None, "flash_attn_args")


def marks_of(text):
    """Divides a text into marks `CALL:PART/PARTS:...` that are short enough. A short text is one mark without these numbers."""
    if len(text) <= MAX_MARK:
        return [text]
    size = MAX_MARK - 30
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    call = next(marked_calls)
    return ["%d:%d/%d:%s" % (call, part, len(pieces), piece) for part, piece in enumerate(pieces, 1)]
