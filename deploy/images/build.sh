#!/usr/bin/env bash
# Builds the sandbox image and writes down what is in it. `make images` calls this; deploy/README.md explains.
set -euo pipefail
shopt -s inherit_errexit # or a step that fails inside $(…) is passed over
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage() {
    cat <<'END'
usage: deploy/images/build.sh [--base IMAGE | --from-packages] [--suite NAME] [--mirror URL] [--refresh] [--tag NAME]

  --base IMAGE      build on this image, of Debian's kind (default: debian:SUITE-slim, pulled when it is not there)
  --from-packages   build on a base made from Debian packages by mmdebstrap: needs no container registry
                    (also done by itself when the default base can be had from nowhere)
  --suite NAME      the Debian release (default: bookworm)
  --mirror URL      where mmdebstrap finds packages (default: its own)
  --refresh         take the packages of today: nothing that is cached is used, and the default base is pulled again
  --tag NAME        what to call the image (default: plimsoll-sandbox)

DOCKER_HOST says which daemon; PLIMSOLL_CACHE_DIR keeps package bases.
END
}

base='' packages='' suite=bookworm mirror='' refresh='' tag=plimsoll-sandbox
while (($#)); do
    case $1 in
        --base) base=$2; shift ;;
        --from-packages) packages=yes ;;
        --suite) suite=$2; shift ;;
        --mirror) mirror=$2; shift ;;
        --refresh) refresh=yes ;;
        --tag) tag=$2; shift ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 64 ;;
    esac
    shift
done

say() { printf '%s\n' "$*" >&2; }

there() { docker image inspect "$1" >/dev/null 2>&1; }

# What decides a package base. Another recipe is another file in the cache.
recipe=(--variant=minbase --include=python3,nodejs,libnss-extrausers '--aptopt=Acquire::Languages "none"'
    '--dpkgopt=path-exclude=/usr/share/doc/*' '--dpkgopt=path-include=/usr/share/doc/*/copyright'
    '--dpkgopt=path-exclude=/usr/share/man/*' '--dpkgopt=path-exclude=/usr/share/locale/*'
    '--customize-hook=rm -f "$1/etc/hostname" "$1/etc/resolv.conf"')

# Prints the path of a tar file with the base system.
package_base() {
    command -v mmdebstrap >/dev/null || { say "mmdebstrap is not installed (Debian package mmdebstrap)"; return 1; }
    local cache=${PLIMSOLL_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll}/images key file lock
    key=$(printf '%s\n' "$suite" "$mirror" "$(uname -m)" "${recipe[@]}" | sha256sum | cut -c1-16)
    file=$cache/$suite-$key.tar
    mkdir -p -m 0700 "$cache"
    # One at a time: two that write one file make a base that is neither.
    exec {lock}>"$cache/lock"
    flock "$lock"
    if [[ -z $refresh && -f $file ]] && (cd "$cache" && sha256sum --status -c "$file.sha256"); then
        say "Taking the package base of $(date -r "$file" +%F) from the cache (--refresh makes it anew)"
    else
        say "Making a base from Debian packages ($suite); this takes a minute or two"
        mmdebstrap --format=tar "${recipe[@]}" "$suite" "$file.part" ${mirror:+"$mirror"} >&2
        mv "$file.part" "$file"
        (cd "$cache" && sha256sum "${file##*/}" >"$file.sha256")
    fi
    printf '%s\n' "$file"
}

# Prints the name of an image made of that file, which stays in the daemon for the next time.
import_base() {
    local file sum image
    file=$(package_base)
    sum=$(cut -c1-64 "$file.sha256")
    image=plimsoll-base:${sum:0:16}
    if ! there "$image"; then
        say "Importing it as $image"
        docker import -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$file" "$image" >&2
    fi
    printf '%s\n' "$image"
}

choose_base() {
    if [[ -n $packages ]]; then
        import_base
    elif [[ -n $base ]]; then
        printf '%s\n' "$base"
    elif { [[ -z $refresh ]] && there "debian:$suite-slim"; } || { say "Pulling debian:$suite-slim" && timeout 120 docker pull -q "debian:$suite-slim" >&2; }; then
        printf 'debian:%s-slim\n' "$suite"
    else
        say "No container registry gives debian:$suite-slim"
        import_base
    fi
}

# The files that go in, the same bytes on every machine.
context() {
    tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --exclude=__pycache__ -c deploy/images/sandbox/Dockerfile providers/docker/agent
}

# Runs a program of the image in place of the agent.
inside() { docker run --rm --network none --read-only --user 65534:65534 --entrypoint "$1" "$image" "${@:2}"; }

manifest() {
    local platform python node packages base_id
    platform=$(docker image inspect -f '{{.Os}}/{{.Architecture}}' "$image")
    python=$(inside /usr/bin/python3 -Ic 'import platform; print(platform.python_version())')
    node=$(inside /usr/bin/node --version)
    packages=$(inside dpkg-query -W -f '${binary:Package} ${Version}\n')
    # A name can move to another image; a builder that keeps its images to itself does not tell which one it took.
    base_id=$(docker image inspect -f '{{.Id}}' "$1" 2>/dev/null || true)
    python3 - "$image" "$1" "$base_id" "$platform" "$python" "$node" 3<<<"$packages" <<'END'
import json, sys
image, base, base_id, platform, python, node = sys.argv[1:]
packages = dict(line.split() for line in open(3))
json.dump({"image": image, "platform": platform, "base": base, "base_id": base_id or None,
           "languages": {"python": python, "javascript": node}, "packages": dict(sorted(packages.items()))},
          sys.stdout, indent=1)
print()
END
}

chosen=$(choose_base)
# A package base lacks nothing, so its build may not reach for anything.
network=$([[ $chosen == plimsoll-base:* ]] && echo none || echo default)
mkdir -p "$root/build/images"
say "Building $tag on $chosen"
context | docker build ${refresh:+--no-cache} --network "$network" --build-arg "BASE=$chosen" -f deploy/images/sandbox/Dockerfile -t "$tag" - >&2
image=$(docker image inspect -f '{{.Id}}' "$tag")
part=$(mktemp "$root/build/images/.$tag.XXXXXX") # of its own: two builds may end at the same time
manifest "$chosen" >"$part"
chmod 0644 "$part"
mv "$part" "$root/build/images/$tag.json"
say "Its packages are in build/images/$tag.json"
printf '%s\n' "$image"
