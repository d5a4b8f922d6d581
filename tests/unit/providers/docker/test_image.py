"""What an image may ask for, one refusal a test, and what counts as our agent."""

import io
import tarfile
from typing import Any

import pytest

from providers.docker import image

CONTENT = "sha256:" + "a" * 64
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def inspected(config: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    base = {"Env": [PATH], "Labels": None, "Volumes": None, "WorkingDir": "/workspace", "Entrypoint": ["/x"]}
    answer = {"Id": CONTENT, "Os": "linux", "Architecture": "amd64", "Config": base | (config or {})}
    return answer | changes


def faults(config: dict[str, Any] | None = None, **changes: Any) -> tuple[str, ...]:
    return image.faults_of(inspected(config, **changes), "amd64")


class TestRefused:
    def test_nothing_of_a_plain_image(self) -> None:
        assert faults() == ()
        assert image.faults_of(inspected(), "x86_64") == ()
        assert (
            faults({"Healthcheck": {"Test": ["NONE"]}, "Labels": {"org.opencontainers.image.title": "x"}})
            == ()
        )

    def test_a_volume(self) -> None:
        assert faults({"Volumes": {"/data": {}}}) == ("image_volume",)

    @pytest.mark.parametrize("test", [["CMD", "true"], ["CMD-SHELL", "true"], [], ["NONE", "x"]])
    def test_a_health_check(self, test: list[str]) -> None:
        assert faults({"Healthcheck": {"Test": test}}) == ("image_healthcheck",)

    @pytest.mark.parametrize(
        "name", ["plimsoll.sandbox", "plimsoll", "plimsoll.x", "Plimsoll.sandbox", "plimsollx"]
    )
    def test_a_label_like_ours(self, name: str) -> None:
        assert faults({"Labels": {name: "docker"}}) == ("image_label",)

    @pytest.mark.parametrize("labels", [["plimsoll.sandbox=x"], "plimsoll.sandbox", {1: 2}])
    def test_labels_that_are_none(self, labels: Any) -> None:
        assert faults({"Labels": labels}) == ("image_label",)

    @pytest.mark.parametrize("architecture", ["arm64", "386", "", None])
    def test_another_architecture(self, architecture: Any) -> None:
        assert faults(Architecture=architecture) == ("image_architecture",)

    @pytest.mark.parametrize("system", ["windows", "", None])
    def test_another_system(self, system: Any) -> None:
        assert faults(Os=system) == ("image_os",)

    @pytest.mark.parametrize("name", ["plimsoll-sandbox", "sha256:abc", CONTENT + "\n", None])
    def test_what_has_no_content_id(self, name: Any) -> None:
        assert faults(Id=name) == ("image_id",)

    def test_steps_for_images_built_on_it(self) -> None:
        assert faults({"OnBuild": ["RUN x"]}) == ("image_onbuild",)

    @pytest.mark.parametrize("config", [None, [], "x"])
    def test_a_configuration_that_is_none(self, config: Any) -> None:
        assert image.faults_of(inspected() | {"Config": config}, "amd64") == ("image_config",)

    def test_everything_at_once_each_with_its_code(self) -> None:
        found = faults(
            {"Volumes": {"/x": {}}, "Env": ["LD_PRELOAD=/x", "A=b"], "Labels": {"plimsoll": ""}}, Os="x"
        )
        assert found == ("image_os", "image_volume", "image_label", "image_env")


class TestEnvironment:
    @pytest.mark.parametrize(
        "entry",
        [
            "LD_PRELOAD=/lib/x.so",
            "LD_LIBRARY_PATH=/x",
            "LD_AUDIT=/x",
            "PYTHONPATH=/x",
            "PYTHONSTARTUP=/x",
            "PYTHONHOME=/x",
            "NODE_OPTIONS=--require=/x",
            "NODE_PATH=/x",
            "BASH_ENV=/x",
            "ENV=/x",
            "IFS=x",
            "GCONV_PATH=/x",
            "MALLOC_CHECK_=1",
            "GLIBC_TUNABLES=x",
            "http_proxy=http://x",
            "DOCKER_HOST=x",
            "HOME=/root",
            "path=/x",
            "",
            "=x",
            "NOVALUE",
            "LANG=C\nLD_PRELOAD=/x",
            "LANG=\x1b[2J",
            "TZ=../../etc/passwd",
            "OMP_NUM_THREADS=x",
            7,
        ],
    )
    def test_every_other_name_and_every_odd_value_is_refused(self, entry: Any) -> None:
        assert faults({"Env": [PATH, entry]}) == ("image_env",)

    @pytest.mark.parametrize(
        "path",
        [
            "",
            ".",
            "/usr/bin:",
            ":/usr/bin",
            "/usr/bin::/bin",
            "bin",
            "/usr/bin:.",
            "/tmp",
            "/workspace/bin",
            "/usr/bin/../x",
            "/usr/bin\n",
        ],
    )
    def test_a_path_is_plain_system_folders(self, path: str) -> None:
        assert faults({"Env": [f"PATH={path}"]}) == ("image_env_path",)

    def test_a_name_given_twice_is_refused(self) -> None:
        assert faults({"Env": [PATH, PATH]}) == ("image_env",)

    @pytest.mark.parametrize("entries", ["PATH=/bin", {"PATH": "/bin"}])
    def test_an_environment_that_is_none_is_refused(self, entries: Any) -> None:
        assert faults({"Env": entries}) == ("image_env",)

    @pytest.mark.parametrize(
        "entry",
        [
            "LANG=C.UTF-8",
            "LC_ALL=en_US.UTF-8",
            "TZ=Etc/UTC",
            "OMP_NUM_THREADS=1",
            "DEBIAN_FRONTEND=noninteractive",
        ],
    )
    def test_harmless_ones_pass(self, entry: str) -> None:
        assert faults({"Env": [PATH, entry]}) == ()


# --- the agent ------------------------------------------------------------------------------------------------------------

FOLDERS = ("plimsoll", "plimsoll/providers", "plimsoll/providers/docker", "plimsoll/providers/docker/agent")
MAIN = "plimsoll/providers/docker/agent/main.py"


def member(name: str, content: bytes = b"", **changes: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    for field, value in changes.items():
        setattr(info, field, value)
    return info, content


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.DIRTYPE, mode=0o755)


def archive(*more: tuple[tarfile.TarInfo, bytes], files: dict[str, bytes] | None = None) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        ours = [
            member(name, data) for name, data in (image.expected_files() if files is None else files).items()
        ]
        for info, data in (*map(folder, FOLDERS), *ours, *more):
            tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return content.getvalue()


class TestAgent:
    def test_our_files_and_nothing_else_are_our_agent(self) -> None:
        assert image.agent_matches(archive())
        assert {
            MAIN,
            "plimsoll/__main__.py",
            "plimsoll/providers/docker/agent/snippet.js",
        } <= image.expected_files().keys()

    def test_a_changed_byte_is_not(self) -> None:
        for name, data in image.expected_files().items():
            assert not image.agent_matches(archive(files={**image.expected_files(), name: data + b"\n"})), (
                name
            )

    def test_a_missing_file_is_not(self) -> None:
        for name in image.expected_files():
            rest = {other: data for other, data in image.expected_files().items() if other != name}
            assert not image.agent_matches(archive(files=rest)), name

    @pytest.mark.parametrize(
        "name",
        [
            "plimsoll/json.py",
            "plimsoll/providers/__init__.py",
            "plimsoll/x.so",
            "plimsoll/providers/docker/agent/x",
            "other",
            "/plimsoll/x.py",
            "plimsoll/../x",
        ],
    )
    def test_any_other_file_is_not(self, name: str) -> None:
        assert not image.agent_matches(archive(member(name)))

    @pytest.mark.parametrize("name", ["plimsoll/__pycache__", "plimsoll/json", "x"])
    def test_any_other_folder_is_not(self, name: str) -> None:
        assert not image.agent_matches(archive(folder(name)))

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
    def test_what_is_no_regular_file_is_not(self, kind: bytes) -> None:
        rest = {name: data for name, data in image.expected_files().items() if name != MAIN}
        link = member(MAIN, type=kind, linkname="plimsoll/__main__.py")
        assert not image.agent_matches(archive(link, files=rest))

    def test_a_name_that_comes_twice_is_not(self) -> None:
        assert not image.agent_matches(archive(member(MAIN, image.expected_files()[MAIN])))

    @pytest.mark.parametrize("changes", [{"mode": 0o666}, {"mode": 0o664}, {"uid": 10001}])
    def test_a_file_that_a_guest_could_change_is_not(self, changes: dict[str, int]) -> None:
        rest = {name: data for name, data in image.expected_files().items() if name != MAIN}
        assert not image.agent_matches(
            archive(member(MAIN, image.expected_files()[MAIN], **changes), files=rest)
        )

    @pytest.mark.parametrize("data", [b"", b"x" * 2048, b"\0" * 10240, b"x" * (5 << 20)])
    def test_what_is_no_archive_or_too_large_is_not(self, data: bytes) -> None:
        assert not image.agent_matches(data)

    def test_a_cut_archive_is_not(self) -> None:
        whole = archive()
        for at in range(0, len(whole.rstrip(b"\0")), 4096):
            assert not image.agent_matches(whole[:at])

    def test_too_many_files_are_not(self) -> None:
        assert not image.agent_matches(archive(*(member(f"plimsoll/{number}.py") for number in range(300))))
