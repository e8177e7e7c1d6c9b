"""The simulated host behind the stand-ins of torch, torch_npu, torchrun, msprof and npu-smi."""
