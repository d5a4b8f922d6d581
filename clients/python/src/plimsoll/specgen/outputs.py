"""The five outputs, each a pure function of the intermediate value, so that none can say what another does not.

Generated code is a fixed text around one line for each operation. That line is the same in both languages: lists of strings
and numbers, written as JSON in ASCII, of closed alphabets only. Prose goes nowhere near code.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from plimsoll.contract import bounds
from plimsoll.contract.grants import CallCode, GrantFault
from plimsoll.contract.profiles import CATALOG_BYTES, DESCRIPTION_BYTES, PREAMBLE_BYTES, naming
from plimsoll.specgen.document import SpecFault
from plimsoll.specgen.model import Api, Operation, Parameter, Place

LIMITS: Final = {
    "grant.toml": 1 << 20,
    "catalog.json": CATALOG_BYTES,
    "preamble.js": PREAMBLE_BYTES,
    "preamble.py": PREAMBLE_BYTES,
    "description.md": DESCRIPTION_BYTES,
}
"""What `plimsoll-admin grants apply` takes."""
_SHOWN: Final = ("catalog.json", "preamble.js", "preamble.py", "description.md")
_NAMED: Final = (
    'description = { file = "description.md" }',
    'catalog = { file = "catalog.json" }',
    'preamble.javascript = { file = "preamble.js" }',
    'preamble.python = { file = "preamble.py" }',
)
_MARKER: Final = "@OPERATIONS@\n"


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files that one document makes. `grant` names the others; `fragment` is the same without them, to be shown alone."""

    grant: str
    fragment: str
    catalog: str
    javascript: str
    python: str
    description: str

    def files(self) -> dict[str, str]:
        """Name to text."""
        return {
            "grant.toml": self.grant,
            "catalog.json": self.catalog,
            "preamble.js": self.javascript,
            "preamble.py": self.python,
            "description.md": self.description,
        }


def write(api: Api, profile: str) -> Outputs:
    """Everything that `api` makes, for the profile. Raises GrantFault for its name, SpecFault for a text that is too long."""
    if not bounds.NAME.fullmatch(profile):
        raise GrantFault(f"profile name {profile[:200]!r} must be 1 to 64 of [a-z0-9-]")
    made = Outputs(
        grant=grant(api, profile, _NAMED),
        fragment=grant(api, profile),
        catalog=catalog(api),
        javascript=_preamble(api, "client.js.in"),
        python=_preamble(api, "client.py.in"),
        description=description(api),
    )
    for name, text in made.files().items():
        if len(text.encode()) > LIMITS[name]:
            raise SpecFault(
                "#/paths", f"{name} would be over {LIMITS[name]} bytes: choose operations with --only"
            )
    _check_hidden(api, made.files())
    return made


def _check_hidden(api: Api, files: dict[str, str]) -> None:
    """Raises SpecFault for a host that is a word of ours: `grants apply` would refuse what is made."""
    named = naming(api.origin.host) if api.origin else None
    for name in _SHOWN:
        if named and named.search(files[name]):
            raise SpecFault("#", f"{name} would name the API's host, which callers are not to see")


def grant(api: Api, profile: str, more: Sequence[str] = ()) -> str:
    """The fragment of a grant profile: where, and the allow list. Who may use it and with what is the operator's to add."""
    origin = f'origin = "{api.origin}"' if api.origin else '# origin = "https://…": the document names none'
    lines = [
        f"[{profile}]",
        origin,
        "allow = [",
        *(f'    "{route}",' for route in api.allow),
        "]",
        *more,
        "# To add: allowed_callers = […], and the table",
        f"# [{profile}.credential]",
    ]
    return "\n".join(lines) + "\n"


def catalog(api: Api) -> str:
    """The operations for programs, as JSON."""
    value = {
        "title": api.title,
        "version": api.version,
        "operations": [_entry(each) for each in api.operations],
    }
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


def _entry(each: Operation) -> dict[str, Any]:
    body = each.body
    return {
        "name": each.name,
        "route": str(each.route),
        "summary": each.summary,
        "deprecated": each.deprecated,
        "arguments": [_argument(one) for one in each.parameters],
        "body": body and {"content_type": body.content_type, "required": body.required, "shape": body.shape},
        "answer": each.answer,
    }


def _argument(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "in": one.place.value,
        "wire_name": one.wire,
        "type": one.kind.value,
        "list": one.many,
        "required": one.required,
        "shape": one.shape,
        "summary": one.summary,
    }


def _preamble(api: Api, template: str) -> str:
    text = (resources.files(__package__) / "templates" / template).read_text(encoding="utf-8")
    before, _, after = text.partition(_MARKER)
    end = ";\n" if template.endswith(".js.in") else "\n"
    return before + "".join(f"    define({_row(each)}){end}" for each in api.operations) + after


def _row(each: Operation) -> str:
    """The arguments of `define`, alike in JSON, JavaScript and Python."""
    parameters = [
        # The name in a path template may be any text, and no call has it.
        [
            one.name,
            "" if one.place is Place.PATH else one.wire,
            one.place.value,
            one.kind.value,
            int(one.many),
            int(one.required),
        ]
        for one in each.parameters
    ]
    body = [each.body.content_type, each.body.form.value, int(each.body.required)] if each.body else []
    slash = int(each.route.closing_slash)
    row = [each.name, each.route.method, list(each.segments), slash, parameters, body]
    return json.dumps(row, ensure_ascii=True)[1:-1]


def description(api: Api) -> str:
    """What a model is told, in Markdown: how to call, how it fails, and one entry for each function."""
    codes = ", ".join(f"`{code.value}`" for code in CallCode)
    head = [
        f"# {_inline(api.title) or 'API'}{' ' + _inline(api.version) if api.version else ''}",
        "",
        "The functions of `api` call this API. Arguments are given by name, a JSON or text body as `body`.",
        "JavaScript: `const r = await api.NAME({argument: value})`. Python: `r = api.NAME(argument=value)`.",
        "`r.status` is the HTTP status (4xx and 5xx too), `r.body` the answer as text, `r.json()` its value.",
        f"An error has a `code`: `argument` (a wrong argument; nothing was sent), {codes}.",
        "Values in a path are 1 to 128 of `A-Z a-z 0-9 . _ ~ -`. Titles and summaries are words of the API's document.",
        "",
    ]
    return "\n".join([*head, *(line for each in api.operations for line in _told(each))]) + "\n"


def _told(each: Operation) -> Iterator[str]:
    arguments = [_signature(one) for one in each.parameters]
    if each.body:
        arguments.append(f"body{'' if each.body.required else '?'}: {each.body.shape}")
    answer = f" -> {each.answer}" if each.answer else ""
    signature = f"{each.name}({', '.join(arguments)}){answer}"
    yield f"- `{_code(signature)}` {_route(each)}"
    said = [f"Summary: {_inline(each.summary)}"] if each.summary else []
    said += ["Deprecated."] if each.deprecated else []
    said += [f"`{one.name}`: {_inline(one.summary)}" for one in each.parameters if one.summary]
    yield from (f"  - {line}" for line in said)


def _signature(one: Parameter) -> str:
    return f"{one.name}{'' if one.required else '?'}: {one.shape}"


def _route(each: Operation) -> str:
    return f"(`{each.route.method} {str(each.route).partition(' ')[2].partition('?')[0]}`)"


def _code(text: str) -> str:
    return text.replace("`", "'")


def _inline(text: str) -> str:
    """Prose that is no markup: an entry cannot look like another one, a link or a tag."""
    return "".join(f"\\{char}" if char in "\\*[]<&" else char for char in text)
