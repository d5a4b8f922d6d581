"""The measured part of docs/performance.md, rewritten from one invocation: `python tests/bench --page`."""

from typing import Any

from tests.support.service import ROOT

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->\n"


def rewrite(document: dict[str, Any]) -> None:
    """Replace what stands between the two marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{markdown(document)}{END}{after}", encoding="utf-8")


def markdown(document: dict[str, Any]) -> str:
    """Two tables: the targets, and everything that was sampled or counted."""
    machine = document["machine"]
    head = (
        f"Measured on {document['date']}: {machine['cores']} cores, {machine['system']}, Python {machine['python']}, "
        f"a shared machine with a load of {machine['load_before']} before the start and {machine['load_after']} at the end.\n"
    )
    targets = [
        f"| {each['name']} ({figure['number']}) | {_with_unit(each)} | {_target(each)} | {_verdict(each)}{_mark(figure)} |"
        for figure in document["figures"]
        for each in figure["values"]
        if each["met"] is not None
    ]
    rows = [row for figure in document["figures"] for row in _rows(figure)]
    return "\n".join(
        [
            head,
            "| target (figure) | measured | wanted | |",
            "|---|---:|---:|---|",
            *targets,
            "",
            "| figure | least | median | 95 % | samples |",
            "|---|---:|---:|---:|---:|",
            *rows,
            "",
        ]
    )


def _rows(figure: dict[str, Any]) -> list[str]:
    lines = [
        f"| {each['name']}, {each['unit']} | {_number(each['least'])} | {_number(each['p50'])} | "
        f"{_number(each['p95'])} | {each['samples']} |"
        for each in figure["lines"]
    ]
    values = [
        f"| {each['name']} | | {_with_unit(each)} | | |" for each in figure["values"] if each["met"] is None
    ]
    notes = [f"| {each} | | | | |" for each in figure["notes"]]
    return [f"| **{figure['number']}. {figure['title']}**{_mark(figure)} | | | | |", *lines, *values, *notes]


def _mark(figure: dict[str, Any]) -> str:
    return (
        ""
        if figure["comparable"]
        else f" (not to be compared: others used {figure['others_cpus']:.1f} processors)"
    )


def _with_unit(value: dict[str, Any]) -> str:
    return f"{_number(value['value'])} {value['unit']}".rstrip()


def _target(value: dict[str, Any]) -> str:
    return f"≤ {value['at_most']:g}" if value["at_most"] is not None else f"≥ {value['at_least']:g}"


def _verdict(value: dict[str, Any]) -> str:
    return "met" if value["met"] else "**missed**"


def _number(value: float) -> str:
    """Three digits that matter."""
    if abs(value) >= 100:  # from here on whole numbers have three
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"
