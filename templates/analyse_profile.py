# Analyses one profile of torch_npu: workers of a server are daemons, which cannot start the processes of an analysis.
# Arguments: folder of the profile, number of processes, forms of the output.
import sys

from torch_npu.profiler.profiler import analyse

analyse(sys.argv[1], max_process_number=int(sys.argv[2]), export_type=sys.argv[3].split(","))
