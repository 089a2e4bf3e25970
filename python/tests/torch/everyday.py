"""Small programs of every day on one rank: everyday.py torchrec|tessera [NAME...] tells what each comes to."""

import json
import os
import sys
import warnings

import torch.distributed as dist

import everyday_models  # noqa: F401
import everyday_modules  # noqa: F401
import everyday_tables  # noqa: F401
import everyday_training  # noqa: F401
from everyday_common import PROGRAMS, tr

# Programs that tell something else with TorchRec.
OTHERWISE = {
    "half_input_weights": "TorchRec takes only float32",
    "int_weights": "TorchRec takes only float32",
    "strict_dmp": "TorchRec leaves the path out of missing keys, and does not tell of unexpected ones",
    "kjt_ops": "a JaggedTensor has a text here",
    "no_grad_fused": "FBGEMM has no lookup in inference mode on the CPU",
    "half_model": "rows stay as they are stored, and outputs have the type",
    "weight_decay_fused": "FBGEMM ignores weight_decay without a mode, which is refused here",
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    tr.choose(sys.argv[1])
    dist.init_process_group("gloo")
    for name in sys.argv[2:] or PROGRAMS:
        try:
            out = PROGRAMS[name]()
        except Exception as error:
            out = f"{type(error).__name__}: {error}"
        print("told: " + json.dumps({name: out}), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # as in program.py
