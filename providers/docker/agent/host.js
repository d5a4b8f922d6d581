// What a program calls as `host`, the same on every wall: (send) => host. `send` takes one message as JSON text and gives the answer's
// text, or a promise of it; undefined where the run has no grant, null for a message that is too long.
//
// The sandbox image holds this file, the wasm guest is built with it, and host.py beside it is its twin in Python.
(function (send) {
  'use strict';
  const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const OPTIONS = ['query', 'headers', 'body'];

  class HostError extends Error {
    constructor(code, reason, retryAfter) {
      super(`${code}: ${reason}`);
      this.name = 'HostError';
      this.code = code;
      this.reason = reason;
      this.retryAfter = retryAfter;
    }
  }

  class HostResponse {
    constructor(status, headers, body) {
      this.status = status;
      this.headers = headers;
      this.body = body;
    }

    json() {
      if (typeof this.body !== 'string') throw new SyntaxError('the body is not text');
      return JSON.parse(this.body);
    }
  }

  function toBase64(bytes) {
    let text = '';
    for (let i = 0; i < bytes.length; i += 3) {
      const [a, b, c] = [bytes[i], bytes[i + 1], bytes[i + 2]];
      text += DIGITS[a >> 2] + DIGITS[(a & 3) << 4 | b >> 4];
      text += b === undefined ? '==' : DIGITS[(b & 15) << 2 | c >> 6] + (c === undefined ? '=' : DIGITS[c & 63]);
    }
    return text;
  }

  function fromBase64(text) {
    const length = text.endsWith('==') ? text.length - 2 : text.endsWith('=') ? text.length - 1 : text.length;
    const bytes = new Uint8Array(length * 3 >> 2);
    for (let i = 0, at = 0, bits = 0; i < length; i++) {
      bits = (bits << 6 | DIGITS.indexOf(text[i])) & 0xFFFF;
      if (i % 4) bytes[at++] = bits >> 6 - 2 * (i % 4) & 255;
    }
    return bytes;
  }

  function bytesOf(value) {
    if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    return value instanceof ArrayBuffer ? new Uint8Array(value) : undefined;
  }

  function decoded(text) {
    try {
      return decodeURIComponent(text.replaceAll('+', ' '));
    } catch {
      throw new TypeError('the query is not well-formed');
    }
  }

  function pairsIn(text) {
    return text.split('&').filter((part) => part).map((part) => {
      const at = part.indexOf('=');
      return at < 0 ? [decoded(part), ''] : [decoded(part.slice(0, at)), decoded(part.slice(at + 1))];
    });
  }

  function scalar(value) {
    if (!['string', 'number', 'boolean'].includes(typeof value)) throw new TypeError('a query value is text, a number, a boolean, or a list of these');
    return `${value}`;
  }

  const pairsOf = (query) => Object.entries(query ?? {}).flatMap(([key, value]) => (Array.isArray(value) ? value : [value]).map((each) => [key, scalar(each)]));

  function queryOf(pairs) {
    const query = new Map();
    for (const [key, value] of pairs) query.set(key, query.has(key) ? [query.get(key), value].flat() : value);
    return Object.fromEntries(query);
  }

  function headersOf(headers) {
    for (const value of Object.values(headers ?? {})) {
      if (typeof value !== 'string') throw new TypeError('a header value is text');
    }
    return { ...headers };
  }

  function addBody(message, body) {
    const bytes = bytesOf(body);
    const kind = bytes ? 'application/octet-stream' : typeof body === 'string' ? 'text/plain; charset=utf-8' : 'application/json';
    message.body = bytes ? toBase64(bytes) : typeof body === 'string' ? body : JSON.stringify(body);
    if (message.body === undefined) throw new TypeError('the body is not JSON');
    if (bytes) message.body_encoding = 'base64';
    if (!Object.keys(message.headers).some((name) => name.toLowerCase() === 'content-type')) message.headers['content-type'] = kind;
  }

  function messageOf(method, path, options) {
    if (typeof method !== 'string' || typeof path !== 'string') throw new TypeError('method and path are text');
    const unknown = Object.keys(options).find((name) => !OPTIONS.includes(name));
    if (unknown !== undefined) throw new TypeError(`options are ${OPTIONS.join(', ')}`);
    const at = path.indexOf('?');
    const pairs = [...(at < 0 ? [] : pairsIn(path.slice(at + 1))), ...pairsOf(options.query)];
    const message = { method: method.toUpperCase(), path: at < 0 ? path : path.slice(0, at), headers: headersOf(options.headers) };
    if (pairs.length) message.query = queryOf(pairs);
    if (options.body !== undefined && options.body !== null) addBody(message, options.body);
    return message;
  }

  function read(text) {
    if (text === undefined) throw new HostError('no_grant', 'this run has no grant');
    if (text === null) throw new HostError('too_large', 'the message is too long');
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      throw new HostError('upstream', 'the answer cannot be read');
    }
    if (answer.error) throw new HostError(answer.error.code, answer.error.reason, answer.error.retry_after_s);
    return new HostResponse(answer.status, answer.headers, answer.body_encoding === 'base64' ? fromBase64(answer.body) : answer.body);
  }

  const call = async (method, path, options = {}) => read(await send(JSON.stringify(messageOf(method, path, options ?? {}))));
  const without = (method) => (path, options) => call(method, path, options);
  const withBody = (method) => (path, body, options) => call(method, path, { ...options, body });
  const del = without('DELETE');
  return {
    HostError, call, get: without('GET'), put: withBody('PUT'), post: withBody('POST'), patch: withBody('PATCH'), delete: del, del,
  };
})
