// The console, evaluated once while the image is made: (write, peek) => report. Texts follow Node's simple cases.
// Everything it needs of the language is taken now, so a program that replaces a built-in does not change what is printed.
(function (write, peek) {
    "use strict";
    const { apply, ownKeys, getPrototypeOf, getOwnPropertyDescriptor } = Reflect;
    const bind = (method) => (self, ...rest) => apply(method, self, rest);
    const { isArray } = Array;
    const { is, hasOwn } = Object;
    const { stringify } = JSON;
    const { isView } = ArrayBuffer;
    const [Str, Err, Num, Pattern, ParseInt, ParseFloat] = [String, Error, Number, RegExp, parseInt, parseFloat];
    const [push, pop, join, includes, slice] = ["push", "pop", "join", "includes", "slice"].map((n) => bind(Array.prototype[n]));
    const [cut, replace, split, repeat, find] = ["slice", "replaceAll", "split", "repeat", "indexOf"].map((n) => bind(String.prototype[n]));
    const test = bind(RegExp.prototype.test);
    const symbolText = bind(Symbol.prototype.toString);
    const functionText = bind(Function.prototype.toString);
    const dateText = bind(Date.prototype.toISOString);
    const dateTime = bind(Date.prototype.getTime);
    const regexpText = bind(RegExp.prototype.toString);
    const getter = (kind, name) => bind(getOwnPropertyDescriptor(kind.prototype, name).get);
    const [mapSize, setSize] = [getter(Map, "size"), getter(Set, "size")];
    const [mapEach, setEach] = [bind(Map.prototype.forEach), bind(Set.prototype.forEach)];
    const viewTag = bind(getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get);
    const viewLength = getter(getPrototypeOf(Uint8Array), "length");
    const bufferBytes = getter(ArrayBuffer, "byteLength");
    const unbox = [Number, String, Boolean, BigInt, Symbol].map((kind) => [kind.name, bind(kind.prototype.valueOf)]);
    const WIDTH = 72, ITEMS = 100, DEPTH = 2, TEXT = 10000;
    const IDENTIFIER = /^[A-Za-z_$][A-Za-z0-9_$]*$/, CLASS = /^class\b/;

    const attempt = (action, value) => { try { return action(value); } catch { return undefined; } };

    function quote(text) {
        const more = text.length > TEXT ? `... ${text.length - TEXT} more characters` : "";
        const body = cut(stringify(more ? cut(text, 0, TEXT) : text), 1, -1);
        const plain = replace(body, '\\"', '"');
        if (find(plain, "'") < 0) return `'${plain}'${more}`;
        return find(plain, '"') < 0 ? `"${plain}"${more}` : `'${replace(plain, "'", "\\'")}'${more}`;
    }

    function primitive(value) {
        switch (typeof value) {
            case "string": return quote(value);
            case "number": return is(value, -0) ? "-0" : `${value}`;
            case "bigint": return `${value}n`;
            case "symbol": return symbolText(value);
            default: return `${value}`;
        }
    }

    // The name of what made the value: read from the prototype without running the program's getters.
    function maker(value) {
        for (let from = getPrototypeOf(value); from; from = getPrototypeOf(from)) {
            const found = getOwnPropertyDescriptor(from, "constructor")?.value;
            if (typeof found === "function") {
                const name = getOwnPropertyDescriptor(found, "name")?.value;
                if (typeof name === "string" && name) return name;
            }
        }
        return null;
    }

    const keyText = (key) => typeof key === "symbol" ? `[${symbolText(key)}]` : test(IDENTIFIER, key) ? key : quote(key);

    function property(value, key, state, bare) {
        const found = getOwnPropertyDescriptor(value, key);
        const text = "value" in found ? show(found.value, state)
            : found.get ? (found.set ? "[Getter/Setter]" : "[Getter]") : "[Setter]";
        return bare ? text : `${keyText(key)}: ${text}`;
    }

    function properties(value, state, into, skip) {
        const keys = ownKeys(value);
        for (let i = 0; i < keys.length; i++) {
            if (getOwnPropertyDescriptor(value, keys[i]).enumerable && !(skip && skip(keys[i]))) {
                push(into, property(value, keys[i], state, false));
            }
        }
        return into;
    }

    const isTold = (key) => key === "name" || key === "message" || key === "stack";
    const isIndex = (key) => typeof key === "string" && Str(key >>> 0) === key;

    // Where the next item of an array is, from `i` on. Looking is cheap while holes are few; after that the list of keys
    // is asked for, once: a sparse array may claim four thousand million of them.
    function nextItem(value, i, length, sparse) {
        for (let looked = 0; i < length && !hasOwn(value, i); i++) {
            if (looked++ < 1000) continue;
            sparse.keys ??= ownKeys(value);
            const { keys } = sparse;
            while (sparse.at < keys.length && isIndex(keys[sparse.at]) && Num(keys[sparse.at]) < i) sparse.at++;
            return sparse.at < keys.length && isIndex(keys[sparse.at]) ? Num(keys[sparse.at]) : length;
        }
        return i;
    }

    function elements(value, length, state) {
        const into = [], sparse = { keys: undefined, at: 0 };
        let i = 0;
        while (i < length && into.length < ITEMS) {
            const next = nextItem(value, i, length, sparse);
            if (next > i) push(into, `<${next - i} empty item${next - i > 1 ? "s" : ""}>`);
            if (next < length && into.length < ITEMS) push(into, property(value, `${next}`, state, true));
            else if (next < length) { i = next; break; }
            i = next + 1;
        }
        if (i < length) push(into, `... ${length - i} more item${length - i > 1 ? "s" : ""}`);
        return properties(value, state, into, isIndex);
    }

    function collected(each, value, state, pairs) {
        const into = [];
        each(value, (item, key) => {
            if (into.length < ITEMS) push(into, pairs ? `${show(key, state)} => ${show(item, state)}` : show(item, state));
        });
        return properties(value, state, into);
    }

    function errorText(error) {
        const name = attempt((e) => Str(e.name), error) ?? "Error";
        const message = attempt((e) => Str(e.message), error) ?? "";
        const head = message ? `${name}: ${message}` : name;
        const stack = attempt((e) => e.stack, error);
        const frames = typeof stack === "string" && stack ? cut(stack, -1) === "\n" ? cut(stack, 0, -1) : stack : "";
        return frames ? `${head}\n${frames}` : head;
    }

    function describeError(error, state) {
        const extra = properties(error, state, [], isTold);
        const cause = getOwnPropertyDescriptor(error, "cause");
        if (cause && !cause.enumerable && "value" in cause) push(extra, `[cause]: ${show(cause.value, state)}`);
        const errors = getOwnPropertyDescriptor(error, "errors");
        if (errors && !errors.enumerable && "value" in errors) push(extra, `[errors]: ${show(errors.value, state)}`);
        const text = replace(errorText(error), "\n", `\n${repeat("  ", state.depth)}`);
        return extra.length ? `${text} ${enclose("", "{", extra, "}", state)}` : state.depth && find(text, "\n") < 0 ? `[${text}]` : text;
    }

    function describeFunction(value, state) {
        const name = getOwnPropertyDescriptor(value, "name")?.value;
        const kind = test(CLASS, functionText(value)) ? "class" : maker(value) ?? "Function";
        const label = typeof name === "string" && name ? kind === "class" ? ` ${name}` : `: ${name}` : " (anonymous)";
        const extra = properties(value, state, []);
        return extra.length ? enclose(`[${kind}${label}] `, "{", extra, "}", state) : `[${kind}${label}]`;
    }

    function enclose(prefix, open, items, close, state) {
        if (!items.length) return `${prefix}${open}${close}`;
        let length = prefix.length + items.length, broken = false, longest = 0;
        for (let i = 0; i < items.length; i++) {
            length += items[i].length + 1;
            if (items[i].length > longest) longest = items[i].length;
            broken ||= find(items[i], "\n") >= 0;
        }
        if (length <= WIDTH && !broken) return `${prefix}${open} ${join(items, ", ")} ${close}`;
        const indent = repeat("  ", state.depth + 1);
        const filled = open === "[" && items.length > 6 && longest <= 20 && !broken;
        const lines = filled ? fill(items) : items;
        return `${prefix}${open}\n${indent}${join(lines, `,\n${indent}`)}\n${repeat("  ", state.depth)}${close}`;
    }

    // Many short items: several on a line.
    function fill(items) {
        const lines = [];
        let line = "";
        for (let i = 0; i < items.length; i++) {
            if (line && line.length + items[i].length + 2 > WIDTH) { push(lines, line); line = ""; }
            line += line ? `, ${items[i]}` : items[i];
        }
        push(lines, line);
        return lines;
    }

    // What is abbreviated beyond the depth: not what has nothing inside, and nothing that is told in one piece.
    function isDeep(value) {
        if (typeof value === "function" || value instanceof Err) return false;
        if (isArray(value)) return value.length > 0;
        return ownKeys(value).length > 0 || attempt(mapSize, value) > 0 || attempt(setSize, value) > 0;
    }

    function show(value, state) {
        if (value === null || (typeof value !== "object" && typeof value !== "function")) return primitive(value);
        const peeked = peek(value);
        if (peeked === -1) return "[Proxy]";
        if (includes(state.path, value)) { state.circular ??= value; return "[Circular *1]"; }
        if (state.depth > DEPTH && isDeep(value)) return isArray(value) ? "[Array]" : `[${maker(value) ?? "Object: null prototype"}]`;
        push(state.path, value);
        state.depth++;
        const inner = { path: state.path, depth: state.depth, circular: undefined };
        state.depth--;
        const text = body(value, peeked, inner, state);
        pop(state.path);
        if (inner.circular === value) return `<ref *1> ${text}`;
        state.circular ??= inner.circular;
        return text;
    }

    function body(value, peeked, inner, outer) {
        const made = maker(value);
        const wrap = (prefix, open, items, close) => enclose(prefix, open, items, close, outer);
        if (typeof value === "function") return describeFunction(value, outer);
        if (isArray(value)) {
            const prefix = made === "Array" ? "" : `${made ?? "[Array: null prototype]"}(${value.length}) `;
            return wrap(prefix, "[", elements(value, value.length, inner), "]");
        }
        if (value instanceof Err) return describeError(value, outer);
        if (peeked) {
            const text = peeked[0] === 0 ? "<pending>" : (peeked[0] === 2 ? "<rejected> " : "") + show(peeked[1], inner);
            return wrap("Promise ", "{", [text], "}");
        }
        const tag = isView(value) ? viewTag(value) : undefined;
        if (tag) return wrap(`${tag}(${viewLength(value)}) `, "[", elements(value, viewLength(value), inner), "]");
        const special = exotic(value, inner, wrap);
        if (special !== undefined) return special;
        const prefix = made === null ? "[Object: null prototype] " : made === "Object" ? "" : `${made} `;
        return wrap(prefix, "{", properties(value, inner, []), "}");
    }

    // Kinds that only their own methods can tell apart: each attempt fails for every other kind.
    function exotic(value, inner, wrap) {
        const time = attempt(dateTime, value);
        if (time !== undefined) return time === time ? dateText(value) : "Invalid Date";
        const size = attempt(mapSize, value);
        if (size !== undefined) return wrap(`Map(${size}) `, "{", collected(mapEach, value, inner, true), "}");
        const count = attempt(setSize, value);
        if (count !== undefined) return wrap(`Set(${count}) `, "{", collected(setEach, value, inner, false), "}");
        const bytes = attempt(bufferBytes, value);
        if (bytes !== undefined) return `ArrayBuffer { byteLength: ${bytes} }`;
        if (value instanceof Pattern) return attempt(regexpText, value);
        for (let i = 0; i < unbox.length; i++) {
            const boxed = attempt(unbox[i][1], value);
            if (boxed !== undefined) return `[${unbox[i][0]}: ${primitive(boxed)}]`;
        }
        return undefined;
    }

    const fresh = () => ({ path: [], depth: 0, circular: undefined });
    const inspect = (value) => show(value, fresh());
    const plain = (value) => typeof value === "string" ? value : inspect(value);

    function substitute(letter, value) {
        switch (letter) {
            case "s": return typeof value === "object" || typeof value === "function" ? inspect(value) : typeof value === "string" ? value : primitive(value);
            case "d": return typeof value === "bigint" ? `${value}n` : typeof value === "object" || typeof value === "symbol" ? "NaN" : primitive(Num(value));
            case "i": return typeof value === "bigint" ? `${value}n` : typeof value === "object" || typeof value === "symbol" ? "NaN" : primitive(ParseInt(value));
            case "f": return typeof value === "symbol" ? "NaN" : primitive(ParseFloat(value));
            case "j": return attempt(stringify, value) ?? "[Circular]";
            case "c": return "";
            default: return inspect(value);
        }
    }

    function format(values) {
        if (values.length === 1) return plain(values[0]);
        let text = "", next = 0;
        if (typeof values[0] === "string") {
            const parts = split(values[0], "%");
            text = parts[0];
            next = 1;
            for (let i = 1; i < parts.length; i++) {
                const letter = parts[i][0] ?? "";
                if (letter === "" && i + 1 < parts.length) { text += `%${parts[++i]}`; continue; }
                const known = letter !== "" && find("sdifjoOc", letter) >= 0 && next < values.length;
                text += known ? substitute(letter, values[next++]) + cut(parts[i], 1) : `%${parts[i]}`;
            }
        }
        for (let i = next; i < values.length; i++) text += (i ? " " : "") + plain(values[i]);
        return text;
    }

    const to = (stream) => (...values) => { write(stream, format(values)); };
    const [out, error] = [to(0), to(1)];
    globalThis.console = {
        log: out, info: out, debug: out, warn: error, error, trace: error,
        dir: (value) => { write(0, inspect(value)); },
        assert: (held, ...values) => {
            if (!held) write(1, values.length ? `Assertion failed: ${format(values)}` : "Assertion failed");
        },
    };
    return (value) => typeof value === "object" && value instanceof Err ? inspect(value) : `Uncaught ${inspect(value)}`;
})
