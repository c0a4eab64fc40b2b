"""A host of the C interface in Python, with ctypes and numpy alone: no PyTorch, and no header. It ends with 0 where all holds.

    from_python.py libtriage_c.so
"""
import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p

import numpy as np

POLICY = b"""
return policy { name = "repair", inputs = { "logits" }, outputs = { "logits", "flags" },
  run = function(logits) return fix(logits, flag_nan(logits, "logits"), "logits", { fallback = 0.0 }) end }
"""


class Error(ctypes.Structure):
    _fields_ = [("status", c_int32), ("line", c_int32), ("message", c_char_p), ("file", c_char_p), ("traceback", c_char_p)]


class Flag(ctypes.Structure):
    _fields_ = [("sample", c_int64), ("count", c_int64), ("location", c_int32), ("code", c_int32), ("severity", c_int32),
                ("reserved", c_int32), ("location_name", c_char_p), ("code_name", c_char_p), ("severity_name", c_char_p)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", ctypes.c_uint64)]


# The functions of the table in their order; those that are not called here need no types.
FUNCTIONS = """library_version torch_version last_error status_name set_log free_text free_tensor create_runtime free_runtime
load_file load_source free_policy watch rescan free_watch metrics_text run run_named prepare set_param manual_seed read_flags
""".split()


class Table(ctypes.Structure):
    _fields_ = [("interface_version", c_uint32)] + [(name, c_void_p) for name in FUNCTIONS]


def function(table, name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(getattr(table, name))


capsule_new = ctypes.pythonapi.PyCapsule_New
capsule_new.restype, capsule_new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
capsule_rename = ctypes.pythonapi.PyCapsule_SetName
capsule_rename.argtypes = [ctypes.py_object, c_char_p]
USED = b"used_dltensor"  # a capsule does not copy its name


class Output:
    """What np.from_dlpack takes: it owns the tensor then."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __dlpack__(self, **_):
        return capsule_new(self.pointer, b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


def give(array):
    """The DLManagedTensor of an array, which the call that gets it frees."""
    capsule = array.__dlpack__()
    pointer = capsule_pointer(capsule, b"dltensor")
    capsule_rename(capsule, USED)
    return pointer


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.triage_get_api.restype = POINTER(Table)
    assert not library.triage_get_api(0) and not library.triage_get_api(1000)
    table = library.triage_get_api(1).contents
    last_error = function(table, "last_error", POINTER(Error))
    run = function(table, "run", c_int32, c_void_p, POINTER(c_void_p), c_size_t, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
    read_flags = function(table, "read_flags", c_int32, c_void_p, POINTER(Flag), POINTER(c_size_t))

    def check(status):
        assert status == 0, last_error().contents.message.decode()

    runtime, policy = c_void_p(), c_void_p()
    check(function(table, "create_runtime", c_int32, c_void_p, POINTER(c_void_p))(None, byref(runtime)))
    load = function(table, "load_source", c_int32, c_void_p, c_char_p, c_size_t, c_char_p, POINTER(c_void_p))
    assert load(runtime, b"return", 6, b"bad.lua", byref(policy)) == 6
    assert b"bad.lua" in last_error().contents.message
    check(load(runtime, POLICY, len(POLICY), b"repair.lua", byref(policy)))

    logits = np.arange(12, dtype=np.float32).reshape(4, 3)
    logits[2, 1] = np.nan
    for batch in (logits, logits.T.copy().T, np.repeat(logits, 2, axis=1)[:, ::2], logits):
        outputs, count = (c_void_p * 2)(), c_size_t(2)
        check(run(policy, (c_void_p * 1)(give(batch)), 1, None, outputs, byref(count)))
        assert count.value == 2
        flags, errors = (Flag * 8)(), c_size_t(8)
        check(read_flags(outputs[1], flags, byref(errors)))
        assert [(f.sample, f.code_name, f.severity_name) for f in flags[:errors.value]] == [
            (2, b"NAN", b"CRITICAL"), (2, b"FALLBACK_VALUE", b"WARN")]
        repaired, words = np.from_dlpack(Output(outputs[0])), np.from_dlpack(Output(outputs[1]))
        expected = np.where(np.isnan(batch).any(axis=1, keepdims=True), np.float32(0), batch)
        assert np.array_equal(repaired, expected), repaired
        assert words.dtype == np.int64 and np.array_equal(words.any(axis=1), [False, False, True, False])
    outputs, count = (c_void_p * 2)(), c_size_t(2)
    assert run(policy, (c_void_p * 1)(give(np.zeros((2, 2), np.uint16))), 1, None, outputs, byref(count)) == 1
    assert b"16 bits" in last_error().contents.message
    check(function(table, "free_policy", c_int32, c_void_p)(policy))
    check(function(table, "free_runtime", c_int32, c_void_p)(runtime))
    assert "torch" not in sys.modules
    print("all holds")


if __name__ == "__main__":
    main()
