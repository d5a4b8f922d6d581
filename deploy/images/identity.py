#!/usr/bin/env python3
"""Prints the software identity of an image from `docker save IMAGE`, as anybody may compute it: see docs/run-records.md.

usage: docker save IMAGE | deploy/images/identity.py CONTENT-ID, where CONTENT-ID is the image's own, `sha256:` and 64 digits.

It shares no code with the service, so that one can be held against the other.
"""

import hashlib
import json
import sys
import tarfile


def main(image: str) -> int:
    """The exit status: 1 when the archive does not hold that image."""
    sizes: dict[str, int] = {}
    config = b""
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            if file := archive.extractfile(member):
                digest, start = hashlib.sha256(), b""
                while part := file.read(1 << 20):
                    digest.update(part)
                    start = start or part
                name = f"sha256:{digest.hexdigest()}"
                sizes[name] = member.size
                config = start if name == image else config
    try:
        print(identity(image, json.loads(config), sizes))  # noqa: T201  # a command prints
    except (ValueError, KeyError):
        print("this archive does not hold that image", file=sys.stderr)  # noqa: T201  # as above
        return 1
    return 0


def identity(image: str, config: dict, sizes: dict[str, int]) -> str:  # type: ignore[type-arg]  # whatever JSON holds
    """Raises KeyError when a layer is missing."""
    kind = "application/vnd.oci.image."

    def descriptor(name: str, digest: str) -> dict[str, object]:
        return {"mediaType": kind + name, "digest": digest, "size": sizes[digest]}

    manifest = {
        "schemaVersion": 2,
        "mediaType": kind + "manifest.v1+json",
        "config": descriptor("config.v1+json", image),
        "layers": [descriptor("layer.v1.tar", digest) for digest in config["rootfs"]["diff_ids"]],
    }
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return f"oci-manifest:{config['os']}/{config['architecture']}@sha256:{hashlib.sha256(text.encode()).hexdigest()}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
