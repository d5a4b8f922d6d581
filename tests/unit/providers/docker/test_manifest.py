"""The software identity of an image: the same from every daemon that exports it, and none when anything does not add up."""

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from providers.docker.manifest import Contents, manifest_of, recall, remember

LAYERS = (b"first layer" * 5000, b"second", b"first layer" * 5000)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def config(layers: tuple[bytes, ...] = LAYERS, **changes: Any) -> bytes:
    content = {
        "os": "linux",
        "architecture": "amd64",
        "rootfs": {"type": "layers", "diff_ids": [*map(digest, layers)]},
    }
    return json.dumps(content | changes).encode()


CONFIG = config()
IMAGE: dict[str, Any] = {
    "Id": digest(CONFIG),
    "Os": "linux",
    "Architecture": "amd64",
    "RootFS": {"Layers": [*map(digest, LAYERS)]},
}


def tar(
    files: dict[str, bytes], links: dict[str, str] | None = None, kind: int = tarfile.PAX_FORMAT
) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=kind) as out:
        for name, data in files.items():
            folder = tarfile.TarInfo(name.rpartition("/")[0] or "x")
            folder.type = tarfile.DIRTYPE
            out.addfile(folder)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            out.addfile(info)
    return content.getvalue()


OLD = tar(
    {
        "a/layer.tar": LAYERS[0],
        "a/VERSION": b"1.0",
        "b/layer.tar": LAYERS[1],
        f"{IMAGE['Id']}.json": CONFIG,
        "manifest.json": b"[]",
    },
    {"c/layer.tar": "../a/layer.tar"},
)
"""As daemons before 25 export it: a layer that comes twice is a link."""
NEW = tar(
    {f"blobs/sha256/{digest(data)[7:]}": data for data in (*LAYERS[:2], CONFIG)}
    | {"oci-layout": b"{}", "index.json": b"{}"}
)


async def pieces(data: bytes, size: int = 4096) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def identity(export: bytes, image: dict[str, Any] = IMAGE, size: int = 4096) -> str:
    return await manifest_of(pieces(export, size), image)


def recomputed() -> str:
    """By hand, as docs/run-records.md says it."""
    kinds = "application/vnd.oci.image."
    parts = ",".join(
        f'{{"digest":"{digest(data)}","mediaType":"{kinds}layer.v1.tar","size":{len(data)}}}'
        for data in LAYERS
    )
    head = (
        f'"config":{{"digest":"{digest(CONFIG)}","mediaType":"{kinds}config.v1+json","size":{len(CONFIG)}}}'
    )
    text = f'{{{head},"layers":[{parts}],"mediaType":"{kinds}manifest.v1+json","schemaVersion":2}}'
    return f"oci-manifest:linux/amd64@{digest(text.encode())}"


class TestIdentity:
    @pytest.mark.parametrize("export", [OLD, NEW], ids=["old", "new"])
    async def test_it_is_the_manifests_digest_however_the_daemon_exports(self, export: bytes) -> None:
        assert await identity(export) == recomputed()

    @pytest.mark.parametrize("size", [1, 511, 512, 513, 1 << 20])
    async def test_it_does_not_depend_on_how_the_bytes_come(self, size: int) -> None:
        small = (b"a layer", b"another")
        content = config(small)
        image = IMAGE | {"Id": digest(content), "RootFS": {"Layers": [*map(digest, small)]}}
        export = tar({"a": small[0], "b": small[1], "empty": b"", "c": content})
        assert await identity(export, image, size) == await identity(export, image)
        assert re.fullmatch(
            r"oci-manifest:linux/amd64@sha256:[0-9a-f]{64}", await identity(export, image, size)
        )

    @pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
    async def test_any_form_of_tar_will_do(self, kind: int) -> None:
        long = "x" * 150 if kind != tarfile.USTAR_FORMAT else "x"
        export = tar({f"d/{long}": LAYERS[0], "b": LAYERS[1], "c": CONFIG}, kind=kind)
        assert await identity(export) == recomputed()

    async def test_a_large_export_is_read_in_parts(self) -> None:
        layer = os.urandom(9 << 20)
        content = config((layer,))
        image = IMAGE | {"Id": digest(content), "RootFS": {"Layers": [digest(layer)]}}
        assert await identity(tar({"a": layer, "c": content}), image, 1 << 16)


class TestNone:
    async def test_when_a_layer_is_missing_or_changed(self) -> None:
        assert await identity(tar({"a": LAYERS[0], "c": CONFIG})) == ""
        assert await identity(tar({"a": LAYERS[0] + b"!", "b": LAYERS[1], "c": CONFIG})) == ""

    async def test_when_the_configuration_is_missing_or_changed(self) -> None:
        assert await identity(tar({"a": LAYERS[0], "b": LAYERS[1]})) == ""
        assert await identity(tar({"a": LAYERS[0], "b": LAYERS[1], "c": CONFIG + b" "})) == ""

    @pytest.mark.parametrize(
        "changes",
        [
            {"Id": "plimsoll-sandbox"},
            {"Id": digest(b"another")},
            {"Os": "windows"},
            {"Architecture": "arm64"},
            {"RootFS": {"Layers": [digest(LAYERS[0])]}},
            {"RootFS": {"Layers": []}},
            {"RootFS": None},
            {"RootFS": {}},
        ],
    )
    async def test_when_the_daemon_describes_another_image(self, changes: dict[str, Any]) -> None:
        assert await identity(OLD, IMAGE | changes) == ""

    @pytest.mark.parametrize(
        "content",
        [b"[]", b"{}", b"x", b'{"rootfs": {}}', b'{"rootfs": {"diff_ids": [1]}, "os": 1, "architecture": 2}'],
    )
    async def test_when_the_configuration_is_none(self, content: bytes) -> None:
        assert await identity(tar({"c": content}), IMAGE | {"Id": digest(content)}) == ""

    @pytest.mark.parametrize("export", [b"", b"x" * 5000, b"\0" * 20480, OLD[:-11000], OLD[1:]])
    async def test_when_the_export_is_none_or_cut(self, export: bytes) -> None:
        assert await identity(export) == ""

    async def test_when_a_platform_has_odd_letters(self) -> None:
        content = config(os="linux/../..")
        image = IMAGE | {"Id": digest(content), "Os": "linux/../.."}
        assert await identity(tar({"a": LAYERS[0], "b": LAYERS[1], "c": content}), image) == ""

    def test_a_configuration_of_another_size_than_any_is_not_kept(self) -> None:
        large = b"x" * (2 << 20)
        contents = Contents(digest(large))
        contents.feed(tar({"a": large}))
        assert contents.config == b""
        assert contents.sizes == {digest(large): len(large)}


class TestRemembered:
    IDENTITY = "oci-manifest:linux/amd64@sha256:" + "b" * 64

    def test_it_comes_back_for_that_image_only(self, tmp_path: Path) -> None:
        assert recall(tmp_path, IMAGE["Id"]) is None
        remember(tmp_path, IMAGE["Id"], self.IDENTITY)
        assert recall(tmp_path, IMAGE["Id"]) == self.IDENTITY
        assert recall(tmp_path, digest(b"another")) is None
        (file,) = tmp_path.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
    def test_a_file_that_others_can_reach_is_not_believed(self, tmp_path: Path, mode: int) -> None:
        remember(tmp_path, IMAGE["Id"], self.IDENTITY)
        (file,) = tmp_path.iterdir()
        file.chmod(mode)
        assert recall(tmp_path, IMAGE["Id"]) is None

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        remember(tmp_path, IMAGE["Id"], self.IDENTITY)
        (file,) = tmp_path.iterdir()
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
        assert recall(tmp_path, IMAGE["Id"]) is None

    @pytest.mark.parametrize("content", [b"", b"oci-manifest:x", b"\xff" * 100, b"x" * 1000])
    def test_other_content_is_not_believed(self, tmp_path: Path, content: bytes) -> None:
        remember(tmp_path, IMAGE["Id"], self.IDENTITY)
        (file,) = tmp_path.iterdir()
        file.write_bytes(content)
        assert recall(tmp_path, IMAGE["Id"]) is None

    def test_only_the_last_few_stay(self, tmp_path: Path) -> None:
        for number in range(40):
            remember(tmp_path, digest(b"%d" % number), self.IDENTITY)
        assert len(list(tmp_path.iterdir())) == 32
        assert recall(tmp_path, digest(b"39")) == self.IDENTITY

    def test_a_folder_that_is_not_there_is_no_fault(self, tmp_path: Path) -> None:
        remember(tmp_path / "away", IMAGE["Id"], self.IDENTITY)
        assert recall(tmp_path / "away", IMAGE["Id"]) is None
