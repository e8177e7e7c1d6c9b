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
# Call mark_modules() once, before the model runs. Eager mode only: a captured graph runs no Python.
import functools
import json

import torch
import torch_npu

mstx = torch_npu.npu.mstx


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
    mstx.mark(json.dumps(arguments), None, "flash_attn_args")
