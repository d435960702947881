# Records square(a), a * a and a ** 2 twice, cold and warm, by PyTorch's profiler; on a GPU where there is one.
import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function

torch.set_num_threads(1)
gpu = torch.cuda.is_available()
a = torch.randn(1000, 1000)
with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * gpu) as p:
    a = a.cuda() if gpu else a
    for name in ["cold", "warm"]:
        with record_function(name):
            torch.square(a), a * a, a**2
            if gpu:
                torch.cuda.synchronize()
p.export_chrome_trace(sys.argv[1])
