"""Writes the files beside it, as PyTorch and NumPy write them: what the tests read where there is no Python.

python make.py (PyTorch 2.x, NumPy). Values follow from arange, so that the tests can state them.
"""
import collections
import os

import numpy as np
import torch

here = os.path.dirname(os.path.abspath(__file__))


def path(name):
    return os.path.join(here, name)


def by_dtype():
    dtypes = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "complex64", "complex128"]
    tensors = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in dtypes}
    tensors["bool"] = torch.tensor([[True, False, True], [False, True, False]])
    return tensors


base = torch.arange(12.0).reshape(3, 4)
torch.save(base, path("tensor.pt"))
torch.save(by_dtype(), path("dtypes.pt"))
torch.save({"transposed": base.t(), "row": base[1], "column": base[:, 2], "scalar": torch.tensor(3.5), "empty": torch.empty(0, 4),
            "shared": base, "conj": torch.tensor([1 + 2j]).conj(), "grad": torch.ones(2, requires_grad=True)}, path("views.pt"))
torch.save([torch.ones(2), {"a": (1, 2.5, "text", None, True)}, [torch.zeros(1, dtype=torch.int64)]], path("nested.pt"))
model = torch.nn.Sequential(collections.OrderedDict(encoder=torch.nn.Linear(3, 2)))
with torch.no_grad():
    model.encoder.weight.copy_(torch.arange(6.0).reshape(2, 3))
    model.encoder.bias.fill_(0.5)
torch.save(model.state_dict(), path("state_dict.pt"))
torch.save(model, path("module.pt"))
torch.save(torch.eye(3).to_sparse(), path("sparse.pt"))
torch.save(base, path("legacy.pt"), _use_new_zipfile_serialization=False)
torch.save({"parameter": torch.nn.Parameter(torch.ones(2))}, path("parameter.pt"))
torch.save(torch.zeros(2, dtype=torch.uint16), path("uint16.pt"))
torch.save(np.zeros(3), path("numpy_inside.pt"))

np.save(path("matrix.npy"), np.arange(6, dtype="<f4").reshape(2, 3))
np.save(path("fortran.npy"), np.asfortranarray(np.arange(6, dtype="<f8").reshape(2, 3)))
np.save(path("big_endian.npy"), np.arange(6, dtype=">f4").reshape(2, 3))
np.save(path("big_endian_complex.npy"), (np.arange(3) + 1j * np.arange(3, 6)).astype(">c8"))
np.save(path("half.npy"), np.arange(6, dtype="<f2").reshape(2, 3))
np.save(path("bool.npy"), np.array([True, False, True]))
np.save(path("scalar.npy"), np.float64(3.5))
np.save(path("empty.npy"), np.zeros((0, 4), dtype=np.int16))
np.save(path("text.npy"), np.array(["a", "b"]))
np.save(path("objects.npy"), np.array([{}, None], dtype=object), allow_pickle=True)
np.save(path("structured.npy"), np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")]))
np.savez(path("archive.npz"), a=np.zeros(2))
for version in (2, 3):
    with open(path("version%d.npy" % version), "wb") as file:
        np.lib.format.write_array(file, np.arange(3, dtype=np.int64), version=(version, 0))
