"""How routes and origins are written: one way each, and a sentence that names the rule for everything else."""

import pytest

from plimsoll.contract.grants import GrantFault, Origin, parse_origin, parse_route

ROUTES = [
    "GET /",
    "GET /v1/employees",
    "GET /v1/employees/",
    "PATCH /v1/employees/*/name",
    "GET /*/*",
    "GET /v1/employees?page&limit",
    "GET /v1/employees/?page",
    "HEAD /.well-known/x~y_z",
    "GET /v1?$top&filter[name]",
]
BAD_ROUTES = [
    ("", "must be one of"),
    ("GET", "must be one of"),
    ("get /v1", "must be one of"),
    ("TRACE /v1", "must be one of"),
    ("CONNECT /v1", "must be one of"),
    ("OPTIONS /v1", "must be one of"),
    ("GET  /v1", "starts with /"),
    ("GET v1", "starts with /"),
    ("GET https://hr.example.com/v1", "starts with /"),
    ("GET //", "empty segment"),
    ("GET //v1", "empty segment"),
    ("GET /v1//x", "empty segment"),
    ("GET /v1//", "empty segment"),
    ("GET /v1/a*", "one whole segment"),
    ("GET /v1/**", "one whole segment"),
    ("GET /v1/..", "dots alone"),
    ("GET /v1/./x", "dots alone"),
    ("GET /v1/%2e", "1 to 128"),
    ("GET /v1/{id}", "1 to 128"),
    ("GET /v1/x y", "1 to 128"),
    ("GET /v1/x#y", "1 to 128"),
    ("GET /v1/é", "1 to 128"),
    ("GET /v1\n", "1 to 128"),
    ("GET /" + "a" * 129, "1 to 128"),
    ("GET " + "/a" * 33, "at most 32"),
    ("GET /v1?", "query keys"),
    ("GET /v1?page=1", "query keys"),
    ("GET /v1?page&page", "each once"),
    ("GET /v1?page&", "query keys"),
    ("GET /v1?*", "query keys"),
]


@pytest.mark.parametrize("text", ROUTES)
def test_a_route_is_read_and_written_alike(text: str) -> None:
    assert str(parse_route(text)) == text


@pytest.mark.parametrize(("text", "rule"), BAD_ROUTES)
def test_a_route_that_breaks_a_rule_says_which(text: str, rule: str) -> None:
    with pytest.raises(GrantFault, match=rule):
        parse_route(text)


ORIGINS = [
    ("https://hr.example.com", Origin("https", "hr.example.com", 443), "hr.example.com"),
    ("https://hr.example.com:8443", Origin("https", "hr.example.com", 8443), "hr.example.com:8443"),
    ("http://localhost:8080", Origin("http", "localhost", 8080), "localhost:8080"),
    ("http://127.0.0.1", Origin("http", "127.0.0.1", 80), "127.0.0.1"),
    ("https://[2606:4700::1111]:8443", Origin("https", "2606:4700::1111", 8443), "[2606:4700::1111]:8443"),
    ("https://xn--bcher-kva.example", Origin("https", "xn--bcher-kva.example", 443), "xn--bcher-kva.example"),
]
BAD_ORIGINS = [
    "",
    "hr.example.com",
    "ftp://hr.example.com",
    "HTTPS://hr.example.com",
    "https://HR.example.com",
    "https://hr.example.com/",
    "https://hr.example.com/v1",
    "https://hr.example.com?x",
    "https://hr.example.com#x",
    "https://user@hr.example.com",
    "https://user:pass@hr.example.com",
    "https://hr.example.com:443",
    "http://hr.example.com:80",
    "https://hr.example.com:0",
    "https://hr.example.com:00443",
    "https://hr.example.com:65536",
    "https://hr.example.com:",
    "https://hr.example.com.",
    "https://.example.com",
    "https://a..b",
    "https://-a.example",
    "https://" + "a" * 64 + ".example",
    "https://" + "a." * 127 + "example",
    "https://bücher.example",
    "https://hr_example.com",
    "https://hr example.com",
    "https://hr.example.com\n",
    "https://2130706433",
    "https://0x7f000001",
    "https://0x7f.1",
    "https://0177.0.0.1",
    "https://017700000001",
    "https://127.1",
    "https://127.0.1",
    "https://127.0.0.01",
    "https://127.0.0.256",
    "https://1.2.3.4.5",
    "https://example.1",
    "https://example.0x1",
    "https://[fe80::1%25eth0]",
    "https://[::1",
    "https://[::::]",
    "https://[0:0:0:0:0:0:0:1]",
    "https://[::ffff:127.0.0.1]",
    "https://[:]",
]


@pytest.mark.parametrize(("text", "origin", "authority"), ORIGINS)
def test_an_origin_is_read_and_written_alike(text: str, origin: Origin, authority: str) -> None:
    found = parse_origin(text)
    assert (found, str(found), found.authority) == (origin, text, authority)


@pytest.mark.parametrize("text", BAD_ORIGINS)
def test_an_origin_that_breaks_a_rule_is_refused(text: str) -> None:
    with pytest.raises(GrantFault):
        parse_origin(text)
