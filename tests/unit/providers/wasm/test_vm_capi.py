"""What we rely on in wasmtime's C API, pinned: nothing else would notice if a function changed its shape."""

import ctypes
import inspect
import re
from importlib.metadata import version

import pytest
from wasmtime import _bindings as bindings

from providers.wasm import capi

pytestmark = pytest.mark.component("wasm")

PINNED = {
    "wasm_engine_delete": "POINTER(wasm_engine_t) -> None",
    "wasm_engine_new_with_config": "POINTER(wasm_config_t) -> POINTER(wasm_engine_t)",
    "wasm_functype_new": "POINTER(wasm_valtype_vec_t), POINTER(wasm_valtype_vec_t) -> POINTER(wasm_functype_t)",
    "wasm_valtype_new": "c_ubyte -> POINTER(wasm_valtype_t)",
    "wasmtime_context_set_epoch_deadline": "POINTER(wasmtime_context), c_ulong -> None",
    "wasmtime_engine_increment_epoch": "POINTER(wasm_engine_t) -> None",
    "wasmtime_error_new": "POINTER(c_char) -> POINTER(wasmtime_error)",
    "wasmtime_error_message": "POINTER(wasmtime_error), POINTER(wasm_byte_vec_t) -> None",
    "wasmtime_func_call_unchecked": (
        "POINTER(wasmtime_context), POINTER(wasmtime_func), POINTER(wasmtime_val_raw), c_ulong, "
        "POINTER(POINTER(wasm_trap_t)) -> POINTER(wasmtime_error)"
    ),
    "wasmtime_instance_export_get": (
        "POINTER(wasmtime_context), POINTER(wasmtime_instance), POINTER(c_char), c_ulong, "
        "POINTER(wasmtime_extern) -> c_bool"
    ),
    "wasmtime_instance_pre_instantiate": (
        "POINTER(wasmtime_instance_pre), POINTER(wasmtime_context), POINTER(wasmtime_instance), "
        "POINTER(POINTER(wasm_trap_t)) -> POINTER(wasmtime_error)"
    ),
    "wasmtime_linker_define_func_unchecked": (
        "POINTER(wasmtime_linker), POINTER(c_char), c_ulong, POINTER(c_char), c_ulong, POINTER(wasm_functype_t), "
        "CFunctionType, c_void_p, CFunctionType -> POINTER(wasmtime_error)"
    ),
    "wasmtime_linker_instantiate_pre": (
        "POINTER(wasmtime_linker), POINTER(wasmtime_module), POINTER(POINTER(wasmtime_instance_pre)) "
        "-> POINTER(wasmtime_error)"
    ),
    "wasmtime_memory_data": "POINTER(wasmtime_context), POINTER(wasmtime_memory) -> POINTER(c_ubyte)",
    "wasmtime_memory_data_size": "POINTER(wasmtime_context), POINTER(wasmtime_memory) -> c_ulong",
    "wasmtime_module_deserialize": (
        "POINTER(wasm_engine_t), POINTER(c_ubyte), c_ulong, POINTER(POINTER(wasmtime_module)) "
        "-> POINTER(wasmtime_error)"
    ),
    "wasmtime_store_epoch_deadline_callback": (
        "POINTER(wasmtime_store), CFunctionType, c_void_p, CFunctionType -> None"
    ),
    "wasmtime_store_limiter": "POINTER(wasmtime_store), c_long, c_long, c_long, c_long, c_long -> None",
    "wasmtime_store_new": "POINTER(wasm_engine_t), c_void_p, CFunctionType -> POINTER(wasmtime_store)",
    "wasmtime_trap_code": "POINTER(wasm_trap_t), POINTER(c_ubyte) -> c_bool",
    "wasmtime_trap_new": "POINTER(c_char), c_ulong -> POINTER(wasm_trap_t)",
}


def _name(kind: object) -> str:
    if kind is None:
        return "None"
    if not inspect.isclass(kind):
        return repr(kind)
    return f"POINTER({_name(kind._type_)})" if issubclass(kind, ctypes._Pointer) else kind.__name__


def _shape(name: str) -> str:
    function = getattr(bindings, f"_{name}")
    return f"{', '.join(_name(kind) for kind in function.argtypes)} -> {_name(function.restype)}"


@pytest.mark.parametrize("name", PINNED)
def test_a_function_has_the_shape_we_call_it_with(name: str) -> None:
    assert _shape(name) == PINNED[name]


def test_wasmtime_is_the_version_that_was_measured() -> None:
    assert version("wasmtime") == capi.WASMTIME_VERSION == "50.0.1"


def test_a_raw_value_has_the_width_that_host_calls_assume() -> None:
    assert ctypes.sizeof(bindings.wasmtime_val_raw_t) == 16


def test_an_epoch_callback_has_the_shape_that_wasmtime_calls() -> None:
    assert capi.EPOCH_CALLBACK is bindings._wasmtime_store_epoch_deadline_callback.argtypes[1]


def test_our_trap_codes_are_wasmtimes() -> None:
    codes = bindings.wasmtime_trap_code_enum
    for ours in capi.TrapCode:
        assert codes[f"WASMTIME_TRAP_CODE_{ours.name}"].value == ours


def test_every_function_that_is_used_exists() -> None:
    used = set(re.findall(r"\bc\.(wasm\w+)", inspect.getsource(capi)))
    assert len(used) > 30
    assert not [name for name in used if not hasattr(bindings, name)]


def test_an_error_of_wasmtimes_becomes_ours() -> None:
    engine = capi.new_engine(memory_bytes=1 << 20, wasm_stack_bytes=1 << 20, keep_resident_bytes=0)
    with pytest.raises(capi.CApiError, match="magic"):
        capi.compile_module(engine, b"nonsense")
    capi.delete_engine(engine)
