from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.testbed.images import rootfs
from e2e.testbed.preflight import Unavailable

KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
RELEASE = f"""\
Types: deb deb-src
# the day's snapshot
URIs: http://near.example/debian/
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: {KEY}
"""
SECURITY = f"""\
Types: deb
URIs: http://near.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: {KEY}
"""
STRANGER = """\
Types: deb
URIs: https://stranger.example/debian
Suites: bookworm
Components: main
Signed-By: /etc/apt/keyrings/stranger.gpg
"""
EMBEDDED = STRANGER.replace(
    " /etc/apt/keyrings/stranger.gpg",
    "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEZ\n -----END PGP PUBLIC KEY BLOCK-----",
)
NEAR = "http://near.example/debian"

CASES: Mapping[str, tuple[Mapping[str, str], str]] = {
    "as Debian's own containers have it": (
        {"sources.list.d/debian.sources": f"{RELEASE}\n{SECURITY}"},
        NEAR,
    ),
    "whatever stands first, the security archive is passed over": (
        {"sources.list.d/debian.sources": f"{SECURITY}\n \n{RELEASE}"},
        NEAR,
    ),
    "the archive of another, signed by his key, is passed over": (
        {"sources.list.d/a.sources": STRANGER, "sources.list.d/debian.sources": RELEASE},
        NEAR,
    ),
    "and so is an archive with its key written out": (
        {"sources.list.d/a.sources": EMBEDDED, "sources.list.d/debian.sources": RELEASE},
        NEAR,
    ),
    "an archive that is switched off is passed over": (
        {
            "sources.list.d/a.sources": "Enabled: no\n" + RELEASE.replace("near", "off"),
            "sources.list.d/debian.sources": RELEASE,
        },
        NEAR,
    ),
    "sources alone give no packages": (
        {"sources.list.d/debian.sources": RELEASE.replace("deb deb-src", "deb-src")},
        "",
    ),
    "a file that apt does not read is not read": (
        {"sources.list.d/debian.sources.disabled": RELEASE},
        "",
    ),
    "names of fields in any case, and a list over several lines": (
        {
            "sources.list.d/debian.sources": "types: deb\nuris:\n  http://near.example/debian\n"
            "#  http://far.example/debian\nSUITES: bookworm\ncomponents:\n contrib\n main\n"
        },
        NEAR,
    ),
    "an older machine: one line each": (
        {
            "sources.list": "# deb http://far.example/debian bookworm main\n"
            "deb-src http://far.example/debian bookworm main\n"
            "deb http://near.example/debian-security bookworm-security main\n"
            "deb http://near.example/debian bookworm-backports main\n"
            "deb http://near.example/debian/ bookworm main contrib # the release\n"
        },
        NEAR,
    ),
    "one line with options": (
        {"sources.list.d/a.list": f"deb [ arch=amd64 signed-by={KEY} ] {NEAR} bookworm main"},
        NEAR,
    ),
    "one line of another, signed by his key": (
        {
            "sources.list.d/a.list": "deb [signed-by=/etc/apt/keyrings/stranger.gpg arch=amd64] "
            "https://stranger.example/debian bookworm main"
        },
        "",
    ),
    "of two archives for the release, the archive with Debian's key": (
        {
            "sources.list": "deb http://open.example/debian bookworm main",
            "sources.list.d/debian.sources": RELEASE,
        },
        NEAR,
    ),
    "another component of another's archive for the release": (
        {"sources.list": "deb http://tool.example/linux/debian bookworm stable"},
        "",
    ),
    "a machine with a newer release: its mirror has the older too": (
        {"sources.list.d/debian.sources": RELEASE.replace("bookworm", "trixie")},
        NEAR,
    ),
    "the mirror for the release itself goes before that": (
        {
            "sources.list.d/a.sources": RELEASE.replace("bookworm", "sid").replace("near", "far"),
            "sources.list.d/debian.sources": RELEASE,
        },
        NEAR,
    ),
    "another distribution": (
        {
            "sources.list": "deb http://archive.example/ubuntu noble main universe",
            "sources.list.d/ubuntu.sources": RELEASE.replace("bookworm", "noble").replace(
                "debian-archive", "ubuntu-archive"
            ),
        },
        "",
    ),
    "a disc, which debootstrap cannot fetch from": (
        {"sources.list": "deb cdrom:[Debian 12 _Bookworm_ amd64]/ bookworm main"},
        "",
    ),
    "a list of mirrors that is not there": (
        {
            "sources.list.d/debian.sources": RELEASE.replace(
                "http://near.example/debian/", "mirror+file:///does/not/exist.list"
            )
        },
        "",
    ),
    "no configuration at all": ({}, ""),
}


def configured(folder: Path, files: Mapping[str, str]) -> Path:
    (folder / "sources.list.d").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("files", "found"), CASES.values(), ids=CASES)
def test_the_mirror_of_debian_in_apts_files(
    tmp_path: Path, files: Mapping[str, str], found: str
) -> None:
    assert rootfs.debian_mirror("bookworm", configured(tmp_path, files)) == found


def test_a_list_of_mirrors_stands_for_its_first_as_in_debians_cloud_images(tmp_path: Path) -> None:
    listed = tmp_path / "debian.list"
    listed.write_text(f"# by region\n\n{NEAR}\tpriority:1\nhttp://far.example/debian\n")
    text = RELEASE.replace("http://near.example/debian/", f"mirror+file://{listed}")
    files = {"sources.list.d/debian.sources": text}
    assert rootfs.debian_mirror("bookworm", configured(tmp_path, files)) == NEAR


def test_a_machine_without_the_folder_has_no_mirror(tmp_path: Path) -> None:
    assert rootfs.debian_mirror("bookworm", tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("named", "used"),
    [
        pytest.param("http://mine.example/debian", "http://mine.example/debian", id="it is named"),
        pytest.param("", NEAR, id="it is empty"),
        pytest.param(None, NEAR, id="it is not set"),
    ],
)
def test_the_variable_goes_before_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None, used: str
) -> None:
    folder = configured(tmp_path, {"sources.list.d/debian.sources": RELEASE})
    monkeypatch.setattr(rootfs, "APT", folder)
    monkeypatch.delenv("KFEXT_DEBIAN_MIRROR", raising=False)
    if named is not None:
        monkeypatch.setenv("KFEXT_DEBIAN_MIRROR", named)
    assert rootfs.mirror() == used


def test_without_a_mirror_the_variable_and_a_form_of_its_value_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rootfs, "APT", tmp_path)
    monkeypatch.delenv("KFEXT_DEBIAN_MIRROR", raising=False)
    with pytest.raises(Unavailable, match=r"set KFEXT_DEBIAN_MIRROR=http://HOST/\S+"):
        rootfs.mirror()
