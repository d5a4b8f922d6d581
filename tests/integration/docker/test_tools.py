"""The tools of a shell do in a sandbox what they do at home, and complain of nothing, under runc and under gVisor."""

from tests.integration.docker.conftest import Start
from tests.integration.docker.test_two_uids import steps

TREE = "mkdir tree && printf one >tree/a && chmod 750 tree/a && ln -s a tree/b && "
TOOLS = {
    "tar": (TREE + "tar cf t.tar tree && mkdir out && tar xf t.tar -C out && cat out/tree/b", "one"),
    "tar, compressed": (TREE + "tar czf t.tgz tree && tar tzf t.tgz | sort | tail -1", "tree/b\n"),
    "cp -a": (TREE + "cp -a tree out && find out/a -printf '%m\\n' && readlink out/b", "750\na\n"),
    "cp -p": (TREE + "touch -d @86400 tree/a && cp -p tree/a a && find a -printf '%m %Ts\\n'", "750 86400\n"),
    "install": (TREE + "install -D -m 640 tree/a x/y/a && find x/y/a -printf '%m\\n'", "640\n"),
    "mv": (TREE + "mv tree /tmp/moved && cat /tmp/moved/b && mv /tmp/moved tree && cat tree/b", "oneone"),
    "sed -i": (TREE + "sed -i s/one/two/ tree/a && find tree/a -printf '%m\\n' && cat tree/a", "750\ntwo"),
    "timeout, in time": ("timeout 60 echo done", "done\n"),
    "timeout, too late": ("timeout 0.2 sleep 60; echo $?", "124\n"),
    "a shell's redirection": ("set -C; echo a >new && (echo b >new) 2>/dev/null; cat new", "a\n"),
    "python": ("python -c 'print(1)' && python --version | cut -d. -f1", "1\nPython 3\n"),
    "node's own flag": (
        "node --max-old-space-size=64 -p 'v8.getHeapStatistics().heap_size_limit < 2 ** 27'",
        "true\n",
    ),
    "mktemp": ('f=$(mktemp) && echo 1 >"$f" && cat "$f" && rm "$f"', "1\n"),
    "find and xargs": (TREE + "find tree -type f -print0 | xargs -0 -n1 -P4 cat", "one"),
    "sort, in pieces": ("seq 100000 | sort -S 1M -R | sort -n -S 1M | tail -1", "100000\n"),
    "dd and truncate": (
        "dd if=/dev/zero of=z bs=4k count=4 status=none && truncate -s 5 z && wc -c <z",
        "5\n",
    ),
}


def test_every_tool_does_its_work_and_complains_of_nothing(start: Start) -> None:
    """Each in a folder of its own."""
    scripts = [
        f"mkdir {at} && cd {at} && ({command}) 2>said; cat said >&2; [ ! -s said ]"
        for at, (command, _) in enumerate(TOOLS.values())
    ]
    assert steps(start(), *scripts).decode() == "".join(said for _, said in TOOLS.values())
