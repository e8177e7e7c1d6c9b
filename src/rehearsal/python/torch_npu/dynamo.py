"""Stand-in for the graph mode of torch_npu: a graph of one call is the call."""


class torchair:
    @staticmethod
    def get_npu_backend(**options):
        return "npu"
