"""docs/seccomp.md, docs/gvisor.md and the containers of docs/isolation-tiers.md against what the code enforces and requires."""

import errno
import json
import re
from typing import Any

import pytest
from typing_extensions import override

from providers.docker import evidence, image, inside, runsc
from tests.architecture.repository import ROOT
from tests.docs.pages import page, plain, table

PROFILE = json.loads((ROOT / "deploy" / "seccomp.json").read_text())
_FAULT = re.compile(r"`([a-z0-9_]+)`")


def words(cell: str) -> list[str]:
    """What stands between marks of code."""
    return re.findall(r"`([^`]+)`", cell)


def allowed() -> set[str]:
    """Every call that is let through with some words."""
    rules = [rule for rule in PROFILE["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    return {name for rule in rules for name in rule["names"]}


class TestSeccomp:
    def test_every_call_that_is_let_through_is_on_the_page_with_what_it_is_for(self) -> None:
        shown = {row[0]: words(row[1]) for row in table(page("seccomp"), "for", "calls")}
        free = [
            rule for rule in PROFILE["syscalls"] if "args" not in rule and rule["action"] == "SCMP_ACT_ALLOW"
        ]
        assert shown == {rule["comment"]: rule["names"] for rule in free}

    def test_every_call_that_depends_on_its_arguments_is_on_the_page(self) -> None:
        shown = {name for row in table(page("seccomp"), "call", "let through when") for name in words(row[0])}
        assert shown == {name for rule in PROFILE["syscalls"] if "args" in rule for name in rule["names"]}

    def test_what_it_says_is_refused_is(self) -> None:
        section = page("seccomp").partition("## What is refused")[2].partition("\n\nSome end")[0]
        named = allowed()
        assert len(words(section)) > 15
        assert not named & set(words(section))

    def test_the_default_is_as_it_says(self) -> None:
        assert (PROFILE["defaultAction"], PROFILE["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 1)
        other = [rule for rule in PROFILE["syscalls"] if rule["action"] != "SCMP_ACT_ALLOW"]
        shown = [
            (words(row[0]), getattr(errno, plain(row[1])))
            for row in table(page("seccomp"), "calls", "end with")
        ]
        assert [(rule["names"], rule["errnoRet"]) for rule in other] == shown

    def test_the_program_inside_tries_nothing_that_is_let_through(self) -> None:
        named = allowed()
        tried = {"umount2" if name == "umount" else name for name in inside.CALLS}
        assert not tried & named


class TestGvisor:
    def test_releases(self) -> None:
        shown = [tuple(map(plain, row)) for row in table(page("gvisor"), "version", "platform")]
        assert shown == [
            (each.version, each.platform, each.architecture, each.package) for each in runsc.RELEASES
        ]

    @pytest.mark.parametrize(
        ("head", "part"), [("flag before `boot`", "before_boot"), ("flag after `boot`", "boot")]
    )
    def test_flags(self, head: str, part: str) -> None:
        shown = [
            flag.removeprefix("--") for row in table(page("gvisor"), head, "with") for flag in words(row[0])
        ]
        allowed = {name for family in (runsc.OF_2022, runsc.OF_2024) for name in getattr(family, part)}
        assert sorted(shown) == sorted(allowed)


class Fitting(str):
    """A value that equals every other, so that whoever compares goes on to the next fact."""

    __slots__ = ()

    @override
    def __eq__(self, other: object) -> bool:
        return True

    @override
    def __hash__(self) -> int:
        return super().__hash__()


class Noted(dict[str, str]):
    """Facts that are all there and all fitting, and which of them were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    @override
    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return True

    @override
    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return Fitting("0")

    @override
    def get(self, name: str, default: Any = None) -> str:
        return self[name]


def facts_of(need: evidence.Need) -> set[str]:
    """Those that it looks at, apart from what was asked for."""
    noted = Noted()
    need.fits(noted)
    return {name for name in noted.names if not name.startswith("limits.")}


class TestTiers:
    def test_every_fact_that_a_container_needs_stands_beside_its_fault(self) -> None:
        rows = table(page("isolation-tiers"), "facts", "what must be seen", "else the fault")
        shown = [(set(words(row[0])), set(words(row[2]))) for row in rows]
        for need in evidence.CONTAINER:
            assert facts_of(need), need.fault
            assert [need.fault in faults for facts, faults in shown if facts_of(need) <= facts] == [True]
        needed = set().union(*map(facts_of, evidence.CONTAINER))
        named = set().union(*(facts for facts, _ in shown))
        assert {name for name in named - needed if not name.startswith("smoke.")} == {"sandbox.release"}

    def test_every_fact_that_gvisor_needs_is_on_its_page(self) -> None:
        named = {
            name for row in table(page("gvisor"), "facts", "what must be seen") for name in words(row[0])
        }
        assert set().union(*map(facts_of, evidence.KERNEL)) == named

    def test_every_fault_of_a_container_is_on_the_page(self) -> None:
        rows = table(page("isolation-tiers"), "facts", "what must be seen", "else the fault")
        shown = {fault for row in rows for fault in words(row[2])}
        needed = {need.fault for need in evidence.CONTAINER}
        assert shown == needed | {f"smoke_{name}" for name in evidence.SMOKE}

    def test_every_other_fault_is_named(self) -> None:
        named = set(_FAULT.findall(page("isolation-tiers")))
        others = {need.fault for need in (*evidence.KERNEL, *evidence.ON_ITS_WORD)}
        per_flag = {fault for fault in others if fault.startswith("runsc_flag_")} - {
            "runsc_flag_ignore_cgroups"
        }
        assert others - per_flag <= named

    def test_every_fault_of_an_image_is_named(self) -> None:
        source = (ROOT / "providers" / "docker" / "image.py").read_text()
        codes = set(re.findall(r'"(image_[a-z_]+)"', source))
        assert len(codes) > 8
        assert codes <= set(_FAULT.findall(page("isolation-tiers")))
        assert image.faults_of({}, "amd64")
