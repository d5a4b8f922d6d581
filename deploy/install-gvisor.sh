#!/usr/bin/env bash
# Installs a gVisor release that is known here and makes it the docker runtime `runsc`, with flags that keep the wall whole.
# Running it again changes nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    cat <<'END'
usage: deploy/install-gvisor.sh [--backports] [--binary FILE] [--config FILE] [--name NAME] [--reload] [--force]

  --backports    let apt also look into this Debian release's backports, which have a newer gVisor (systrap: faster)
  --binary FILE  install nothing, take this file
  --config FILE  docker's configuration (default: /etc/docker/daemon.json); everything else in it stays as it is
  --name NAME    what docker calls the runtime (default: runsc)
  --reload       tell the running dockerd to read its configuration again
  --force        take a file that is not in gvisor-releases.txt; tier `kernel` then also needs SANDBOX_RUNSC_SHA256

Prints the SHA-256 of the file that containers will run under.
END
}

backports='' binary='' config=/etc/docker/daemon.json name=runsc reload='' force=''
while (($#)); do
    case $1 in
        --backports) backports=yes ;;
        --binary) binary=$2; shift ;;
        --config) config=$2; shift ;;
        --name) name=$2; shift ;;
        --reload) reload=yes ;;
        --force) force=yes ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 64 ;;
    esac
    shift
done

say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

known() { grep -v '^#' "$here/gvisor-releases.txt"; }

# From the mirror that apt uses already.
add_backports() {
    local release mirror
    release=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $release" | sed -n 1p)
    printf 'deb %s %s-backports main\n' "$mirror" "$release" >"/etc/apt/sources.list.d/$release-backports.list"
    apt-get update -qq
}

# The newest known release that apt offers, by its exact version.
install_package() {
    local offered version
    offered=$(apt-cache madison runsc | awk '{print $3}')
    for version in $(known | awk '{print $5}'); do
        if grep -qxF -- "$version" <<<"$offered"; then
            say "Installing runsc $version"
            DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "runsc=$version" >/dev/null
            return
        fi
    done
    fail "apt offers no gVisor release that is known here (offered: ${offered//$'\n'/, })"
}

if [[ -z $binary ]]; then
    [[ -z $backports ]] || add_backports
    install_package
    binary=$(command -v runsc)
fi
# dockerd starts what the path names at that moment; a link could be turned without a change here.
binary=$(realpath -e "$binary")
sum=$(sha256sum "$binary" | cut -c1-64)
platform=$(known | awk -v sum="$sum" '$1 == sum {print $3}')
if [[ -z $platform ]]; then
    [[ -n $force ]] || fail "$binary ($sum) is no release that is known here; --force takes it all the same"
    date=$("$binary" --version | sed -n '1s/.*[^0-9]\(20[0-9]\{6\}\).*/\1/p')
    # Before 2023 there was no systrap. kvm is never chosen: it hangs where virtualisation is nested.
    [[ ${date:-0} -ge 20230101 ]] && platform=systrap || platform=ptrace
fi

# Only these flags. What is not here is not wanted: --ignore-cgroups would lift every limit without a word, --host-uds and
# --network=host would open the sandbox.
changed=$(python3 - "$config" "$name" "$binary" "--platform=$platform" --network=none <<'END'
import json, os, sys
from pathlib import Path

path, name, binary, *words = sys.argv[1:]
file = Path(path).resolve()
try:
    settings = json.loads(file.read_text() or "{}") if file.exists() else {}
    wanted = {"path": binary, "runtimeArgs": words}
    before = settings.setdefault("runtimes", {}).get(name)
    settings["runtimes"][name] = wanted
except (ValueError, AttributeError, TypeError):
    sys.exit(f"{file} is not docker's configuration; it was not touched")
if before == wanted:
    print("unchanged")
    sys.exit()
if before is not None:
    print(f"Replacing the runtime {name}: {json.dumps(before)}", file=sys.stderr)
file.parent.mkdir(parents=True, exist_ok=True)
part = file.with_name(file.name + ".part")
part.write_text(json.dumps(settings, indent=2) + "\n")
if file.exists():
    os.chmod(part, file.stat().st_mode & 0o777)
part.replace(file)
print("changed")
END
)
say "Runtime $name in $config: $binary --platform=$platform --network=none ($changed)"
if [[ -n $reload ]]; then
    pid=$(cat /var/run/docker.pid) || fail "dockerd does not seem to run"
    kill -HUP "$pid"
fi
printf '%s\n' "$sum"
