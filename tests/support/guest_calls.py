"""What guests' calls do: one table, and the programs that go through it in each language.

A case is an expression in JavaScript, the same in Python, and what it gives as JSON: a value, or how it failed.
"""

import json
from dataclasses import dataclass
from typing import Any

NO_GRANT = {"error": "no_grant", "reason": "this run has no grant"}
NOT_JSON = {"error": "not_json"}
WRONG = {"error": "TypeError"}
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain; charset=utf-8"}


@dataclass(frozen=True)
class Case:
    name: str
    javascript: str
    python: str
    gives: Any


def _failed(code: str, retry: int | None = None) -> dict[str, Any]:
    more = {} if retry is None else {"retry": retry}
    return {"error": code, "reason": f"because of {code}", **more}


def _asks(name: str, javascript: str, python: str, **message: Any) -> Case:
    """A call of `/echo`, and the message that came of it."""
    asked = {"method": "GET", "path": "/echo", "headers": {}, **message}
    return Case(name, f"(await host.{javascript}).json()", f"host.{python}.json()", asked)


ANSWERS = (
    Case("text", "(await host.get('/text')).body", "host.get('/text').body", "größer als ☃"),
    Case("a status", "(await host.get('/status/404')).status", "host.get('/status/404').status", 404),
    Case(
        "headers",
        "(await host.get('/text')).headers",
        "host.get('/text').headers",
        {"content-type": "text/plain"},
    ),
    Case("bytes", "[...(await host.get('/bytes')).body]", "list(host.get('/bytes').body)", list(range(256))),
    Case("a large one", "(await host.get('/large')).body.length", "len(host.get('/large').body)", 4 << 20),
    Case("no JSON", "(await host.get('/text')).json()", "host.get('/text').json()", NOT_JSON),
    Case("no text", "(await host.get('/bytes')).json()", "host.get('/bytes').json()", NOT_JSON),
    Case(
        "nonsense",
        "await host.get('/nonsense')",
        "host.get('/nonsense')",
        {"error": "upstream", "reason": "the answer cannot be read"},
    ),
)
FAILURES = (
    *(
        Case(code, f"await host.get('/fail/{code}')", f"host.get('/fail/{code}')", _failed(code))
        for code in ("no_grant", "denied", "budget", "too_large", "credential_echoed", "upstream")
    ),
    Case("shed", "await host.get('/fail/shed')", "host.get('/fail/shed')", _failed("shed", 7)),
    Case(
        "a message that is too long",
        "await host.post('/echo', 'x'.repeat(3 << 20))",
        "host.post('/echo', 'x' * (3 << 20))",
        {"error": "too_large", "reason": "the message is too long"},
    ),
)
MESSAGES = (
    _asks("get", "get('/echo')", "get('/echo')"),
    _asks("put", "put('/echo', 'x')", "put('/echo', 'x')", method="PUT", body="x", headers=TEXT),
    _asks(
        "post",
        "post('/echo', {a: [1, null]})",
        "post('/echo', {'a': [1, None]})",
        method="POST",
        body='{"a":[1,null]}',
        headers=JSON,
    ),
    _asks("patch", "patch('/echo', true)", "patch('/echo', True)", method="PATCH", body="true", headers=JSON),
    _asks("delete", "delete('/echo')", "delete('/echo')", method="DELETE"),
    _asks("del", "del('/echo')", "del_('/echo')", method="DELETE"),
    _asks(
        "call",
        "call('pAtch', '/echo', {body: 'x'})",
        "call('pAtch', '/echo', body='x')",
        method="PATCH",
        body="x",
        headers=TEXT,
    ),
    _asks(
        "text of any script",
        "post('/echo', 'größer ☃ 😀')",
        "post('/echo', 'größer ☃ 😀')",
        method="POST",
        body="größer ☃ 😀",
        headers=TEXT,
    ),
    _asks(
        "JSON of any script",
        "post('/echo', ['☃'])",
        "post('/echo', ['☃'])",
        method="POST",
        body='["☃"]',
        headers=JSON,
    ),
    _asks(
        "bytes",
        "post('/echo', new Uint8Array([0, 255, 254]))",
        "post('/echo', bytes([0, 255, 254]))",
        method="POST",
        body="AP/+",
        body_encoding="base64",
        headers={"content-type": "application/octet-stream"},
    ),
    _asks("an empty text", "post('/echo', '')", "post('/echo', '')", method="POST", body="", headers=TEXT),
    _asks("no body", "post('/echo', null)", "post('/echo', None)", method="POST"),
    _asks(
        "a content type of the caller's",
        "post('/echo', {}, {headers: {'Content-Type': 'a/b'}})",
        "post('/echo', {}, headers={'Content-Type': 'a/b'})",
        method="POST",
        body="{}",
        headers={"Content-Type": "a/b"},
    ),
    _asks(
        "a query in the path",
        "get('/echo?a=1&b=&c&&a=2')",
        "get('/echo?a=1&b=&c&&a=2')",
        query={"a": ["1", "2"], "b": "", "c": ""},
    ),
    _asks(
        "a query decoded once",
        "get('/echo?%61=%2520+%C3%BC')",
        "get('/echo?%61=%2520+%C3%BC')",
        query={"a": "%20 ü"},
    ),
    _asks(
        "a query beside the path",
        "get('/echo', {query: {a: 'ü&=', n: 3}})",
        "get('/echo', query={'a': 'ü&=', 'n': 3})",
        query={"a": "ü&=", "n": "3"},
    ),
    _asks(
        "two queries",
        "get('/echo?a=1', {query: {a: [2, true]}})",
        "get('/echo?a=1', query={'a': [2, True]})",
        query={"a": ["1", "2", "true"]},
    ),
    _asks("an empty query", "get('/echo?')", "get('/echo?')"),
    Case(
        "tricks are the broker's to judge",
        "await host.get('/..%2fecho#x')",
        "host.get('/..%2fecho#x')",
        _failed("denied"),
    ),
)
MISTAKES = (
    *(
        Case(f"the query {query}", f"await host.get('/echo?{query}')", f"host.get('/echo?{query}')", WRONG)
        for query in ("a=%", "a=%zz", "%ff", "a=%ED%A0%80")
    ),
    Case("a path that is no text", "await host.get(7)", "host.get(7)", WRONG),
    Case("a method that is no text", "await host.call(7, '/echo')", "host.call(7, '/echo')", WRONG),
    Case("an unknown option", "await host.get('/echo', {querry: {}})", "host.get('/echo', querry={})", WRONG),
    Case(
        "a query value that is none",
        "await host.get('/echo', {query: {a: null}})",
        "host.get('/echo', query={'a': None})",
        WRONG,
    ),
    Case(
        "a header that is no text",
        "await host.get('/echo', {headers: {a: 1}})",
        "host.get('/echo', headers={'a': 1})",
        WRONG,
    ),
    Case(
        "a body that is not JSON", "await host.post('/echo', () => 1)", "host.post('/echo', lambda: 1)", WRONG
    ),
)
CASES = (*ANSWERS, *FAILURES, *MESSAGES, *MISTAKES)
WITHOUT_GRANT = (
    *(
        Case(name, f"await host.{name}('/text')", f"getattr(host, '{name}')('/text')", NO_GRANT)
        for name in ("get", "put", "post", "patch", "delete", "del")
    ),
    Case("call", "await host.call('GET', '/text')", "host.call('GET', '/text')", NO_GRANT),
    Case("kind", "typeof host", "'object' if host else ''", "object"),
)

_JAVASCRIPT = """\
const failure = (e) => e instanceof host.HostError
  ? { error: e.code, reason: e.reason, retry: e.retryAfter }
  : { error: e instanceof SyntaxError ? 'not_json' : e.name };
for (const one of [
%s
]) console.log(JSON.stringify(await one().catch(failure)));
"""
_PYTHON = """\
import host, json
def given(one):
    try:
        return one()
    except host.HostError as e:
        return {"error": e.code, "reason": e.reason} | ({"retry": e.retry_after} if e.retry_after is not None else {})
    except ValueError:
        return {"error": "not_json"}
    except Exception as e:
        return {"error": type(e).__name__}
for one in [
%s
]:
    print(json.dumps(given(one)))
"""


def javascript(cases: tuple[Case, ...]) -> str:
    """A program that prints what each case gives, a line of JSON each."""
    return _JAVASCRIPT % "\n".join(f"async () => {case.javascript}," for case in cases)


def python(cases: tuple[Case, ...]) -> str:
    """The same."""
    return _PYTHON % "\n".join(f"lambda: {case.python}," for case in cases)


def check(cases: tuple[Case, ...], stdout: bytes) -> None:
    """Hold what a program printed against the table, case by case."""
    said = [json.loads(line) for line in stdout.splitlines()]
    wrong = {case.name: found for case, found in zip(cases, said, strict=False) if found != case.gives}
    assert (wrong, len(said)) == ({}, len(cases))
