"""The wasm wall: a JavaScript engine compiled to WebAssembly, one fresh instance per run, in prefork runner processes."""
