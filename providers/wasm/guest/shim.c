/*
 * The guest: QuickJS-NG as a reactor whose only imports are host.{call,take,flush,now}.
 *
 * The host instantiates the pre-initialised image, writes the source at io.source (or at alloc(n)), calls go(length, seed)
 * or run(address, length, seed), and reads both streams from `io`, which stays true after a trap. One instance runs one program.
 *
 * Copyright notices of what is compiled in are in NOTICE beside this file.
 */
#include "quickjs.c"
#include "heap.c"

#define IMPORT(name) __attribute__((import_module("host"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

/* call: send a message, answers the length of the reply, NO_GRANT or TOO_LARGE; take: copy that reply in; flush: hand over
 * output, answers 1 when nothing more of that stream is kept; now: Unix time in microseconds. */
IMPORT("call") int host_call(const char *message, int length);
IMPORT("take") int host_take(char *into, int length);
IMPORT("flush") int host_flush(int stream, const char *bytes, int length);
IMPORT("now") int64_t host_now(void);

enum { SOURCE_BYTES = 65536, STREAM_BYTES = 16384, JS_STACK_BYTES = 512 * 1024 };
enum { NO_GRANT = -1, TOO_LARGE = -2 };
enum { EXIT_OK = 0, EXIT_UNCAUGHT = 1, EXIT_UNSETTLED = 13, EXIT_MEMORY = 137 };

/* Read by the host by position: append only, and change providers/wasm/vm.py with it. */
static struct {
    uint32_t out_of_memory; /* an allocation has failed in this run */
    uint32_t length[2];     /* bytes waiting in stream[i], which the host may read between any two instructions */
    uint32_t stream_bytes, source_bytes;
    char stream[2][STREAM_BYTES];
    char source[SOURCE_BYTES + 1]; /* the parser reads one byte past the end */
} io = {.stream_bytes = STREAM_BYTES, .source_bytes = SOURCE_BYTES};

static JSRuntime *rt;
static JSContext *ctx;
static JSValue report; /* console.js: turns an uncaught value into text */
static JSValue rejected[32]; /* promises rejected without a handler, oldest first; more than that are not told apart */
static int rejections;
static bool live; /* false while the image is made: no import may be called then */
static bool muted[2];

/* -- memory: remember that an allocation failed ------------------------------------------------------------------- */

static void *seen(void *block) { if (!block) io.out_of_memory = 1; return block; }
static void *guest_calloc(void *opaque, size_t count, size_t size) { return seen(heap_calloc(count, size)); }
static void *guest_malloc(void *opaque, size_t size) { return seen(heap_malloc(size)); }
static void *guest_realloc(void *opaque, void *block, size_t size) { return seen(heap_realloc(block, size)); }
static void guest_free(void *opaque, void *block) { heap_free(block); }
static size_t guest_usable(const void *block) { return heap_usable(block); }

/* -- output ------------------------------------------------------------------------------------------------------- */

/* `length` never says more than was written: bytes before their length, an empty length before new bytes. */
#define IN_THIS_ORDER() __atomic_signal_fence(__ATOMIC_ACQ_REL)

static void flush_stream(int index)
{
    if (io.length[index] && host_flush(index + 1, io.stream[index], (int)io.length[index])) muted[index] = true;
    io.length[index] = 0;
    IN_THIS_ORDER();
}

/* A muted stream is still counted, so that the host can end a flood, but no longer copied. */
static void put(int index, const char *bytes, size_t length)
{
    while (length) {
        size_t room = STREAM_BYTES - io.length[index], part = length < room ? length : room;
        if (!muted[index]) memcpy(io.stream[index] + io.length[index], bytes, part);
        IN_THIS_ORDER();
        io.length[index] += part;
        bytes += part;
        length -= part;
        if (io.length[index] == STREAM_BYTES) flush_stream(index);
    }
}

static void put_text(int index, const char *text) { put(index, text, strlen(text)); }

/* QuickJS writes a lone surrogate as three bytes (ED A0..BF xx), which is not UTF-8: put U+FFFD, also three bytes. */
static void put_utf8(int index, const char *bytes, size_t length)
{
    size_t start = 0;
    for (size_t i = 0; i + 2 < length; i++) {
        if ((uint8_t)bytes[i] != 0xED || (uint8_t)bytes[i + 1] < 0xA0) continue;
        put(index, bytes + start, i - start);
        put(index, "\xEF\xBF\xBD", 3);
        i += 2;
        start = i + 1;
    }
    put(index, bytes + start, length - start);
}

static JSValue js_write(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv)
{
    size_t length;
    const char *text = JS_ToCStringLen(c, &length, argv[1]);
    if (!text) return JS_EXCEPTION;
    int index = JS_VALUE_GET_INT(argv[0]);
    put_utf8(index, text, length);
    put(index, "\n", 1);
    JS_FreeCString(c, text);
    return JS_UNDEFINED;
}

/* What console.js cannot learn in JavaScript: a promise's state and value, and whether a value is a proxy. */
static JSValue js_peek(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv)
{
    if (JS_IsProxy(argv[0])) return JS_NewInt32(c, -1);
    int state = JS_PromiseState(c, argv[0]);
    if (state < 0) return JS_UNDEFINED;
    JSValue pair = JS_NewArray(c);
    JS_SetPropertyUint32(c, pair, 0, JS_NewInt32(c, state));
    if (state != JS_PROMISE_PENDING) JS_SetPropertyUint32(c, pair, 1, JS_PromiseResult(c, argv[0]));
    return pair;
}

/* -- calls: what host.js sends its messages with ------------------------------------------------------------------------ */

static JSValue js_send(JSContext *c, JSValueConst this_val, int argc, JSValueConst *argv)
{
    size_t length;
    const char *message = JS_ToCStringLen(c, &length, argv[0]);
    if (!message) return JS_EXCEPTION;
    if (!length) { /* a program may have its own JSON.stringify; the host takes an empty message for a broken guest */
        JS_FreeCString(c, message);
        return JS_ThrowTypeError(c, "host.call: the message is empty");
    }
    int reply = host_call(message, (int)length);
    JS_FreeCString(c, message);
    if (reply < 0) return reply == NO_GRANT ? JS_UNDEFINED : JS_NULL;
    char *text = js_malloc(c, (size_t)reply + 1);
    if (!text) return JS_EXCEPTION;
    JSValue value = JS_NewStringLen(c, text, (size_t)host_take(text, reply));
    js_free(c, text);
    return value;
}

/* -- one program -------------------------------------------------------------------------------------------------- */

/* Did running out of memory end the program? The error may be one we can no longer print, or even make. */
static bool is_memory_error(JSValueConst error)
{
    if (!io.out_of_memory) return false;
    if (!JS_IsObject(error)) return JS_IsNull(error) || JS_IsUninitialized(error);
    JSValue message = JS_GetPropertyStr(ctx, error, "message");
    const char *text = JS_IsString(message) ? JS_ToCString(ctx, message) : NULL;
    /* The second is what QuickJS says when there is no memory for the first. */
    return !text || !strcmp(text, "out of memory") || !strcmp(text, "Invalid error message");
}

static int fail(JSValueConst error)
{
    if (is_memory_error(error)) return EXIT_MEMORY; /* the host says so on stderr */
    JSValue text = JS_Call(ctx, report, JS_UNDEFINED, 1, &error);
    if (JS_IsException(text)) {
        JSValue second = JS_GetException(ctx);
        if (is_memory_error(second)) return EXIT_MEMORY;
        put_text(1, "Uncaught value that cannot be printed\n");
        return EXIT_UNCAUGHT;
    }
    JSValueConst arguments[2] = {JS_NewInt32(ctx, 1), text};
    js_write(ctx, JS_UNDEFINED, 2, arguments);
    return EXIT_UNCAUGHT;
}

static void on_rejection(JSContext *c, JSValueConst promise, JSValueConst reason, bool handled, void *opaque)
{
    if (!handled) {
        if (rejections < (int)countof(rejected)) rejected[rejections++] = JS_DupValue(c, promise);
        return;
    }
    for (int i = 0; i < rejections; i++) {
        if (JS_VALUE_GET_PTR(rejected[i]) != JS_VALUE_GET_PTR(promise)) continue;
        JS_FreeValue(c, rejected[i]);
        rejections--;
        memmove(rejected + i, rejected + i + 1, (size_t)(rejections - i) * sizeof rejected[0]);
        return;
    }
}

static int drain(void)
{
    JSContext *where;
    int status;
    while ((status = JS_ExecutePendingJob(rt, &where)) > 0);
    return status;
}

static int evaluate(const char *source, size_t length)
{
    JSValue program = JS_Eval(ctx, source, length, "main.js", JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_ASYNC);
    if (JS_IsException(program)) return fail(JS_GetException(ctx));
    if (drain() < 0) return fail(JS_GetException(ctx));
    int state = JS_PromiseState(ctx, program);
    if (state == JS_PROMISE_REJECTED) return fail(JS_PromiseResult(ctx, program));
    if (rejections) return fail(JS_PromiseResult(ctx, rejected[0]));
    if (state == JS_PROMISE_FULFILLED) return EXIT_OK;
    put_text(1, "Warning: top-level await never settled\n");
    return EXIT_UNSETTLED;
}

EXPORT("io") void *io_address(void) { return &io; }
EXPORT("alloc") void *alloc(int bytes) { return heap_malloc((size_t)bytes); }
EXPORT("reseed") void reseed(int64_t seed) { ctx->random_state = seed ? (uint64_t)seed : 1; }

EXPORT("run") int run(char *source, int length, int64_t seed)
{
    live = true;
    reseed(seed);
    JS_UpdateStackTop(rt);
    source[length] = 0;
    return evaluate(source, (size_t)length);
}

EXPORT("go") int go(int length, int64_t seed) { return run(io.source, length, seed); }

/* -- making the image --------------------------------------------------------------------------------------------- */

static const char console_source[] = {
#embed "console.js"
    , 0};
static const char host_source[] = {
#embed "host.js"
    , 0};

EXPORT("wizer.initialize") void initialize(void)
{
    static const JSMallocFunctions memory = {guest_calloc, guest_malloc, guest_free, guest_realloc, guest_usable};
    rt = JS_NewRuntime2(&memory, NULL);
    JS_SetMaxStackSize(rt, JS_STACK_BYTES);
    JS_SetHostPromiseRejectionTracker(rt, on_rejection, NULL);
    ctx = JS_NewContext(rt);
    JSValue install = JS_Eval(ctx, console_source, sizeof console_source - 1, "console.js", JS_EVAL_TYPE_GLOBAL);
    JSValue given[2] = {JS_NewCFunction(ctx, js_write, "write", 2), JS_NewCFunction(ctx, js_peek, "peek", 1)};
    report = JS_Call(ctx, install, JS_UNDEFINED, 2, (JSValueConst *)given);
    if (!JS_IsFunction(ctx, report)) abort();
    JSValue make = JS_Eval(ctx, host_source, sizeof host_source - 1, "host.js", JS_EVAL_TYPE_GLOBAL);
    JSValueConst sender = JS_NewCFunction(ctx, js_send, "send", 1);
    JSValue host = JS_Call(ctx, make, JS_UNDEFINED, 1, &sender);
    if (!JS_IsObject(host)) abort();
    JS_DefinePropertyValueStr(ctx, JS_GetGlobalObject(ctx), "host", host, JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
    JS_RunGC(rt);
}

/* -- WASI, as far as libc reaches: answered here, so that the module imports none of it --------------------------- */

#define WASI(name) __imported_wasi_snapshot_preview1_##name
enum { WASI_OK = 0, WASI_EBADF = 8, WASI_ENOSYS = 52 };

int WASI(clock_time_get)(int clock, int64_t precision, int time)
{
    static int64_t origin; /* clocks other than the wall clock begin when they are first read */
    int64_t now = live ? host_now() * 1000 : 0;
    if (clock && !origin) origin = now;
    *(int64_t *)(intptr_t)time = clock ? now - origin : now;
    return WASI_OK;
}

int WASI(clock_res_get)(int clock, int resolution) { *(int64_t *)(intptr_t)resolution = 1000; return WASI_OK; }
int WASI(random_get)(int into, int length) { return WASI_ENOSYS; }
int WASI(fd_write)(int fd, int vectors, int count, int written) { return WASI_EBADF; }
int WASI(fd_read)(int fd, int vectors, int count, int got) { return WASI_EBADF; }
int WASI(fd_seek)(int fd, int64_t offset, int whence, int position) { return WASI_EBADF; }
/* One call comes from the part of libc written in Zig, which mangles the name of an import so. */
int zig_fd_close(int fd) __asm__("fd_close|wasi_snapshot_preview1");
int zig_fd_close(int fd) { return WASI_EBADF; }
int WASI(fd_fdstat_get)(int fd, int into) { return WASI_EBADF; }
int WASI(environ_get)(int vectors, int buffer) { return WASI_OK; }
int WASI(environ_sizes_get)(int count, int bytes)
{
    *(int32_t *)(intptr_t)count = *(int32_t *)(intptr_t)bytes = 0;
    return WASI_OK;
}
_Noreturn void WASI(proc_exit)(int code) { __builtin_trap(); }
