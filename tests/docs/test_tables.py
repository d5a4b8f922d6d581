"""What the pages say in tables is what the code says: settings, problems, exit codes, bounds, errors, words, dependencies."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.http import connect
from app.http.limits import SNIPPET_BODY_BYTES
from app.http.problems import TABLE
from app.settings import SETTINGS, Setting
from app.vault.unseal import BoxFault
from broker.addresses import AddressFault
from broker.lease import LEASES, LeaseFault
from broker.mint import MintFault
from broker.places import PLACES
from broker.profiles import ProfileFault
from broker.room import ROOM_BYTES
from plimsoll.client import errors
from plimsoll.contract import bounds, grants, results
from plimsoll.contract.grants import IN_FLIGHT, MESSAGE_BYTES, CallCode
from plimsoll.contract.refusals import Code, Reason
from plimsoll.contract.rest import OutcomeName
from plimsoll.contract.tiers import FLOORS, Tier
from plimsoll.records.digests import RECORD_FIELDS
from providers.docker import frames
from providers.host.broker import AT_HAND
from providers.wasm import protocol
from tests.architecture.repository import ROOT, named, short
from tests.docs.pages import page, plain, table

NEVER = "never"


def test_every_setting_is_on_its_page_word_for_word() -> None:
    rows = table(page("settings"), "setting", "default", "what it does", "rule")
    shown = [tuple(map(plain, row)) for row in rows]
    assert shown == [(row.name, row.default, row.help, rule_of(row)) for row in SETTINGS]


def rule_of(setting: Setting) -> str:
    """What its reader says of a value that is never good, as short as the page says it."""
    with pytest.raises(ValueError, match=r"must|known") as caught:
        setting.read("?")
    rule = str(caught.value).rpartition("; ")[2]
    return rule.removeprefix("must ").removeprefix("be ").removeprefix("a whole number from ")


def problems_shown() -> dict[Code, tuple[int, str, set[str]]]:
    rows = table(page("run-results"), "code", "status", "title", "mark")
    return {
        Code(plain(code)): (int(status), title, {word.strip() for word in plain(mark).split(",")})
        for code, status, title, mark, *_ in rows
    }


def test_every_problem_is_on_its_page() -> None:
    shown = problems_shown()
    assert list(shown) == list(TABLE)
    assert {code: (status, title) for code, (status, title, _) in shown.items()} == {
        code: (row.status, row.title) for code, row in TABLE.items()
    }


def test_marks_are_reasons_and_never_only_where_none_can_be() -> None:
    for code, (_, _, marks) in problems_shown().items():
        assert (marks == {NEVER}) is not TABLE[code].markable, code
        assert marks <= {NEVER, *Reason}, code


def raised(path: Path) -> Iterator[tuple[Code, Reason]]:
    """Every `Refusal(Code.X, …, Reason.Y, …)` written out in a file."""
    for call in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in {
            "Refusal",
            "_full",
            "_refusal",
        }:
            words = [ast.unparse(each) for each in (*call.args, *(word.value for word in call.keywords))]
            codes = [Code[word.removeprefix("Code.")] for word in words if word.startswith("Code.")]
            reasons = [Reason[word.removeprefix("Reason.")] for word in words if word.startswith("Reason.")]
            yield from zip(codes, reasons, strict=False)


def test_the_marks_shown_are_those_that_the_service_gives() -> None:
    shown = problems_shown()
    for path in named(".py"):
        if path.relative_to(ROOT).parts[0] in {"app", "providers"}:
            for code, reason in raised(path):
                assert code in shown, f"{short(path)} gives {code}"
                assert reason in shown[code][2], f"{short(path)} gives {code} with {reason}"


def test_every_code_has_its_connect_form_on_its_page() -> None:
    rows = table(page("compatible-api"), "code", "status", "for")
    shown = {
        Code(ours.strip()): connect.Row(plain(code), int(status))
        for code, status, several in rows
        for ours in plain(several).split(",")
    }
    assert shown == connect.TABLE


def test_exit_codes_of_ours_are_on_their_page() -> None:
    shown = {
        int(plain(code))
        for code, *_ in table(page("run-results"), "exit code", "with", "what happened")
        if code.isdigit()
    }
    ours = {value for name, value in vars(results).items() if name.startswith("EXIT_")}
    assert shown == ours


def test_bounds_are_on_their_page() -> None:
    shown = {
        plain(name): int(value.replace(",", ""))
        for name, value, *_ in table(page("requests"), "bound", "value")
    }
    assert shown == {
        "payload.code, bytes of UTF-8": bounds.CODE_BYTES,
        "payload.files, most": bounds.FILES,
        "payload.files, bytes of all content": bounds.FILES_BYTES,
        "payload.steps, most": bounds.STEPS,
        "one step, bytes of UTF-8": bounds.STEP_BYTES,
        "payload.artifacts, most": bounds.ARTIFACTS,
        "artifacts that come back, bytes of all content": bounds.ARTIFACTS_BYTES,
        "a path, bytes of UTF-8": bounds.PATH_BYTES,
        "body, bytes, where only snippets can be run": SNIPPET_BODY_BYTES,
        "body, bytes, where projects or tables can be run too": bounds.BODY_BYTES,
        "nesting of the JSON": bounds.NESTING,
        "timeout_ms, least": 1,
        "timeout_ms, most": bounds.TIMEOUT_CEILING_MS,
        "timeout_ms, when absent": bounds.TIMEOUT_DEFAULT_MS,
        "software_rule.identities, most": bounds.SOFTWARE_IDENTITIES,
    }


def test_the_fields_of_a_record_are_on_their_page_in_order() -> None:
    shown = tuple(plain(name) for name, *_ in table(page("run-records"), "field", "meaning"))
    assert shown == RECORD_FIELDS[4]


def test_how_a_project_went_is_on_its_page() -> None:
    shown = [plain(name) for name, *_ in table(page("run-results"), "`outcome`", "what it says")]
    assert shown == list(get_args(OutcomeName))


def test_tiers_are_on_their_page_in_order() -> None:
    shown = [plain(name) for name, *_ in table(page("isolation-tiers"), "tier", "what stands around a run")]
    assert shown == [tier.value for tier in (Tier.NONE, *FLOORS)]


def test_every_error_of_the_client_is_on_its_page() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    names = [each.__name__ for each in classes if issubclass(each, errors.PlimsollError)]
    (tree,) = re.findall(r"```text\n(PlimsollError.*?)```", page("python-client"), re.DOTALL)
    assert re.findall(r"^[│├└─ ]*(\w+)", tree, re.MULTILINE) == names


WORDS = {
    "tier", "floor", "provider", "worker", "runner", "evidence", "fact", "dispatch", "not dispatched", "mark",
    "run", "run record", "caller", "token", "ticket", "slot",
}  # fmt: skip


def test_the_glossary_has_the_words_that_pages_lean_on() -> None:
    assert {plain(word) for word, *_ in table(page("glossary"), "word", "meaning")} >= WORDS


def asked() -> dict[str, str]:
    """Every direct dependency of both distributions and every input of the guest, and who asks for it."""
    found: dict[str, str] = {}
    for source in (ROOT / "pyproject.toml", ROOT / "clients/python/pyproject.toml"):
        project = tomllib.loads(source.read_text())
        for line in [*project["project"]["dependencies"], *project["build-system"]["requires"]]:
            found[canonicalize_name(Requirement(line).name)] = short(source)
    for line in (ROOT / "requirements/guest.in").read_text().splitlines():
        if line and not line.startswith("#"):
            found[canonicalize_name(Requirement(line).name)] = "requirements/guest.in"
    return found


@pytest.mark.parametrize("name", asked())
def test_every_direct_dependency_is_on_its_page(name: str) -> None:
    shown = {
        plain(cell).split()[0]
        for cell, *_ in table(page("dependencies"), "package", "licence", "what it touches")
    }
    shown |= {
        plain(cell).split()[0]
        for cell, *_ in table(page("dependencies"), "input", "licence", "what it becomes")
    }
    assert name in shown, asked()[name]


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[^)#]+)\)", (ROOT / "README.md").read_text()))
    top = {short(path) for path in named(".md") if path.parent == ROOT / "docs"}
    assert top <= linked


def test_every_failure_of_a_call_is_on_its_page() -> None:
    rows = table(page("guest-api"), "`code`", "why")
    assert [plain(code) for code, _ in rows] == [code.value for code in CallCode]


def test_the_bounds_of_calls_are_on_their_page() -> None:
    rows = table(page("guest-api"), "what", "how much")
    messages, answers, at_once, of_all, held, calls, together = (how_much for _, how_much in rows)
    assert messages == f"{MESSAGE_BYTES >> 20} MiB"
    assert answers == f"{grants.BACK_BYTES >> 20} MiB"
    assert at_once.startswith(f"{IN_FLIGHT};")
    assert of_all.startswith(f"{PLACES} in one broker. A caller that is alone has {PLACES // 2} of them")
    assert f"{IN_FLIGHT} whenever" in of_all
    assert held.startswith(f"{ROOM_BYTES >> 20} MiB and one answer more.")
    assert f"{AT_HAND >> 10} KiB" in held
    assert calls == f"{frames.CALLS:,}" == f"{protocol.MOST_CALLS:,}"
    assert together == f"{frames.CALLS_BYTES >> 30} GiB"


def test_every_reason_for_no_lease_is_on_its_page() -> None:
    found = table(page("capability-grants"), "`fault`", "why there is no lease")
    rows = {row[0]: row[1] for row in found}
    minters = {code for code, _ in table(page("minters"), "fault", "when")}
    shown = {word for cell in (*rows, *minters) for word in re.findall(r"`(\w+)`", cell)}
    faults = (AddressFault, BoxFault, LeaseFault, MintFault, ProfileFault)
    assert shown == {"away"} | {fault.value for kind in faults for fault in kind}
    assert f"{LEASES:,}" in rows[f"`{LeaseFault.FULL.value}`"]
