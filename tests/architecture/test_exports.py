"""The library's front door, pinned: a name added or removed here is a change for its users (CHANGELOG.md)."""

import plimsoll

EXPORTS: list[str] = []


def test_the_exported_names_are_these() -> None:
    assert sorted(getattr(plimsoll, "__all__", [])) == EXPORTS


def test_the_list_is_sorted() -> None:
    names = list(getattr(plimsoll, "__all__", []))
    assert names == sorted(names)


def test_every_exported_name_exists() -> None:
    assert all(hasattr(plimsoll, name) for name in EXPORTS)
