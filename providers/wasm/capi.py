"""The part of wasmtime's C API that the engine uses, behind typed functions.

wasmtime's object API costs 0.4 ms a run, these calls a quarter of that. The price is that nothing checks us, so wasmtime is
pinned exactly and a test pins the shapes of the functions used here. Handles are opaque: whoever asks for one deletes it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from importlib.metadata import version
from typing import Any, Final, TypeAlias

from wasmtime import _bindings as c

Handle: TypeAlias = Any
"""A pointer to something of wasmtime's. ctypes gives such pointers no usable static type."""
RawCallback: TypeAlias = Callable[[int, int, int, int], int]
"""(environment, caller, address of arguments and results, count) -> 0 or the address of a trap."""

WASMTIME_VERSION: Final = version("wasmtime")
I32: Final = 0
I64: Final = 1

# Addresses instead of pointer objects: one object less for every argument of every host call.
CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
EPOCH_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(c.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(c.wasmtime_update_deadline_kind_t),
)
"""(context, data, place for the number of epochs to go on, place for how to go on) -> 0 or the address of an error."""
GO_ON: Final = 0
_NO_FINALIZER: Final = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))


class TrapCode(IntEnum):
    """The traps a run is classified by; the numbers are wasmtime's."""

    STACK_OVERFLOW = 0
    INTERRUPT = 10


class CApiError(Exception):
    """wasmtime refused something of ours: a broken build, never a guest."""


def _text(vector: Handle) -> str:
    text = ctypes.string_at(vector.data, vector.size).decode("utf-8", "replace")
    c.wasm_byte_vec_delete(ctypes.byref(vector))
    return text


def error_text(error: Handle) -> str:
    """The message of an error, which is deleted."""
    vector = c.wasm_byte_vec_t()
    c.wasmtime_error_message(error, ctypes.byref(vector))
    c.wasmtime_error_delete(error)
    return _text(vector)


def check(error: Handle) -> None:
    """Raise `CApiError` if a call returned an error."""
    if error:
        raise CApiError(error_text(error))


# ctypes takes arguments by position, flags too.
_YES: Final = True
_NO: Final = False


def new_engine(*, memory_bytes: int, wasm_stack_bytes: int, keep_resident_bytes: int) -> Handle:
    """An engine that can be interrupted and that keeps one slot for one small instance."""
    config = c.wasm_config_new()
    c.wasmtime_config_epoch_interruption_set(config, _YES)
    c.wasmtime_config_max_wasm_stack_set(config, wasm_stack_bytes)
    c.wasmtime_config_memory_init_cow_set(config, _YES)
    # Compiling on this thread alone leaves no thread pool behind, so the process may still fork.
    c.wasmtime_config_parallel_compilation_set(config, _NO)
    pool = _pool(memory_bytes, keep_resident_bytes)
    c.wasmtime_pooling_allocation_strategy_set(config, pool)
    c.wasmtime_pooling_allocation_config_delete(pool)
    engine = c.wasm_engine_new_with_config(config)
    if not engine:
        raise CApiError("the engine could not be made")
    return engine


def _pool(memory_bytes: int, keep_resident_bytes: int) -> Handle:
    pool = c.wasmtime_pooling_allocation_config_new()
    one: dict[str, int] = {
        "total_core_instances": 1,
        "total_memories": 1,
        "total_tables": 1,
        "total_stacks": 0,
        "total_gc_heaps": 0,
        "total_component_instances": 0,
        "max_memory_size": memory_bytes,
        "linear_memory_keep_resident": keep_resident_bytes,
        "table_keep_resident": 1 << 16,
        "max_unused_warm_slots": 1,
        "decommit_batch_size": 1,
    }
    for name, value in one.items():
        getattr(c, f"wasmtime_pooling_allocation_config_{name}_set")(pool, value)
    return pool


def delete_engine(engine: Handle) -> None:
    """Free an engine once everything made with it is gone."""
    c.wasm_engine_delete(engine)


def increment_epoch(engine: Handle) -> None:
    """Interrupt every store of the engine whose deadline was the next epoch. Safe from any thread."""
    c.wasmtime_engine_increment_epoch(engine)


def _bytes_argument(data: bytes) -> Any:
    return (ctypes.c_uint8 * len(data)).from_buffer_copy(data)


def compile_module(engine: Handle, wasm: bytes) -> Handle:
    """Compile wasm to a module."""
    module = ctypes.POINTER(c.wasmtime_module_t)()
    check(c.wasmtime_module_new(engine, _bytes_argument(wasm), len(wasm), ctypes.byref(module)))
    return module


def serialize(module: Handle) -> bytes:
    """The module's machine code."""
    vector = c.wasm_byte_vec_t()
    check(c.wasmtime_module_serialize(module, ctypes.byref(vector)))
    data = ctypes.string_at(vector.data, vector.size)
    c.wasm_byte_vec_delete(ctypes.byref(vector))
    return data


def deserialize(engine: Handle, code: bytes) -> Handle:
    """A module from machine code that `serialize` made. Anything else can take over the process."""
    module = ctypes.POINTER(c.wasmtime_module_t)()
    check(c.wasmtime_module_deserialize(engine, _bytes_argument(code), len(code), ctypes.byref(module)))
    return module


def delete_module(module: Handle) -> None:
    """Free a module."""
    c.wasmtime_module_delete(module)


def imports(module: Handle) -> list[tuple[str, str]]:
    """(module, name) of everything a module wants from its host."""
    vector = c.wasm_importtype_vec_t()
    c.wasmtime_module_imports(module, ctypes.byref(vector))
    found = []
    for i in range(vector.size):
        names = (c.wasm_importtype_module(vector.data[i]), c.wasm_importtype_name(vector.data[i]))
        room, name = (ctypes.string_at(n.contents.data, n.contents.size).decode() for n in names)
        found.append((room, name))
    c.wasm_importtype_vec_delete(ctypes.byref(vector))
    return found


def _types(kinds: tuple[int, ...]) -> Handle:
    vector = c.wasm_valtype_vec_t()
    values = (ctypes.POINTER(c.wasm_valtype_t) * len(kinds))(*(c.wasm_valtype_new(kind) for kind in kinds))
    c.wasm_valtype_vec_new(ctypes.byref(vector), len(kinds), values)
    return vector


def new_linker(engine: Handle) -> Handle:
    """A linker to define host functions in."""
    return c.wasmtime_linker_new(engine)


def define(
    linker: Handle, room: str, name: str, signature: tuple[tuple[int, ...], tuple[int, ...]], callback: Handle
) -> None:
    """Define one host function. The caller keeps `callback` (a `CALLBACK`) alive as long as the linker's instances."""
    params, results = _types(signature[0]), _types(signature[1])
    kind = c.wasm_functype_new(ctypes.byref(params), ctypes.byref(results))
    raw = ctypes.cast(callback, c.wasmtime_func_unchecked_callback_t)
    encoded = (room.encode(), name.encode())
    buffers = [ctypes.create_string_buffer(text) for text in encoded]
    error = c.wasmtime_linker_define_func_unchecked(
        linker, buffers[0], len(encoded[0]), buffers[1], len(encoded[1]), kind, raw, None, _NO_FINALIZER
    )
    c.wasm_functype_delete(kind)
    check(error)


def instantiate_pre(linker: Handle, module: Handle) -> Handle:
    """A module with its imports resolved, ready to be instantiated often."""
    pre = ctypes.POINTER(c.wasmtime_instance_pre_t)()
    check(c.wasmtime_linker_instantiate_pre(linker, module, ctypes.byref(pre)))
    return pre


def delete_linker(linker: Handle) -> None:
    """Free a linker."""
    c.wasmtime_linker_delete(linker)


def delete_pre(pre: Handle) -> None:
    """Free what `instantiate_pre` made."""
    c.wasmtime_instance_pre_delete(pre)


class Instance:
    """One store with one instance in it: what lives for one run. Whoever makes it deletes it."""

    __slots__ = ("_args", "_handle", "_memory", "_trap", "context", "memory_bytes", "store")

    def __init__(self, engine: Handle, pre: Handle, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        """The most its linear memory can grow to."""
        self.store = c.wasmtime_store_new(engine, None, _NO_FINALIZER)
        self.context = c.wasmtime_store_context(self.store)
        c.wasmtime_store_limiter(self.store, memory_bytes, -1, 1, 1, 1)
        c.wasmtime_context_set_epoch_deadline(self.context, 1)
        self._handle = c.wasmtime_instance_t()
        self._trap = ctypes.POINTER(c.wasm_trap_t)()
        self._args = (c.wasmtime_val_raw_t * 4)()
        error = c.wasmtime_instance_pre_instantiate(
            pre, self.context, ctypes.byref(self._handle), ctypes.byref(self._trap)
        )
        if error or self._trap:
            text = error_text(error) if error else "the guest trapped while it was instantiated"
            self.delete()
            raise CApiError(text)
        self._memory = self.export(MEMORY).memory

    def at_epoch(self, callback: Handle) -> None:
        """Ask `callback` (an `EPOCH_CALLBACK` that the caller keeps alive) at the end of an epoch, instead of a trap.

        It runs on the guest's own thread, between two of the guest's instructions.
        """
        c.wasmtime_store_epoch_deadline_callback(self.store, callback, None, _NO_FINALIZER)

    def export(self, name: Handle) -> Handle:
        """What the instance exports under `name` (a buffer from `export_name`)."""
        found = c.wasmtime_extern_t()
        if not c.wasmtime_instance_export_get(
            self.context, ctypes.byref(self._handle), name, len(name), ctypes.byref(found)
        ):
            raise CApiError("the guest lacks an export")
        return found.of

    def memory(self) -> tuple[int, int]:
        """Address and present size of the linear memory. Valid until the guest runs again."""
        memory = ctypes.byref(self._memory)
        base = ctypes.cast(c.wasmtime_memory_data(self.context, memory), ctypes.c_void_p).value or 0
        return base, c.wasmtime_memory_data_size(self.context, memory)

    def call(self, function: Handle, *args: int) -> tuple[int, int | None]:
        """Call an export: (first result, None), or (0, trap code; -1 for a trap without one)."""
        for i, value in enumerate(args):
            self._args[i].i64 = value
        error = c.wasmtime_func_call_unchecked(
            self.context, ctypes.byref(function), self._args, 4, ctypes.byref(self._trap)
        )
        if error:
            c.wasmtime_error_delete(error)
            return 0, -1
        if self._trap:
            return 0, self._take_trap()
        return self._args[0].i32, None

    def _take_trap(self) -> int:
        code = c.wasmtime_trap_code_t()
        known = c.wasmtime_trap_code(self._trap, ctypes.byref(code))
        c.wasm_trap_delete(self._trap)
        self._trap = ctypes.POINTER(c.wasm_trap_t)()
        return int(code.value) if known else -1

    def delete(self) -> None:
        """Free the store and the instance in it."""
        c.wasmtime_store_delete(self.store)


def export_name(name: str) -> Handle:
    """A name as the buffer `Instance.export` wants; make it once."""
    return (ctypes.c_char * len(name)).from_buffer_copy(name.encode())


def new_trap(message: bytes) -> int:
    """The address of a trap for a host function to return; wasmtime then owns it."""
    buffer = (ctypes.c_char * len(message)).from_buffer_copy(message)
    return ctypes.cast(c.wasmtime_trap_new(buffer, len(message)), ctypes.c_void_p).value or 0


def new_error(message: bytes) -> int:
    """The address of an error for an epoch callback to return; wasmtime then owns it."""
    text = ctypes.create_string_buffer(message)
    return ctypes.cast(c.wasmtime_error_new(text), ctypes.c_void_p).value or 0


MEMORY: Final = export_name("memory")
