from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.testbed.images import rootfs

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
OTHER_ARCHIVE = """\
Types: deb
URIs: https://stranger.example/debian
Suites: bookworm
Components: main
Signed-By: /etc/apt/keyrings/stranger.gpg
"""
NEAR = "http://near.example/debian"

CASES: Mapping[str, tuple[Mapping[str, str], str]] = {
    "as in Debian's own containers": (
        {"sources.list.d/debian.sources": f"{RELEASE}\n{SECURITY}"},
        NEAR,
    ),
    "the security archive is skipped, even if it is first": (
        {"sources.list.d/debian.sources": f"{SECURITY}\n \n{RELEASE}"},
        NEAR,
    ),
    "another signed archive is skipped": (
        {"sources.list.d/a.sources": OTHER_ARCHIVE, "sources.list.d/debian.sources": RELEASE},
        NEAR,
    ),
    "an older machine with one line for each source": (
        {
            "sources.list": "# deb http://far.example/debian bookworm main\n"
            "deb-src http://far.example/debian bookworm main\n"
            "deb http://near.example/debian-security bookworm-security main\n"
            "deb http://near.example/debian bookworm-backports main\n"
            "deb http://near.example/debian/ bookworm main contrib # the release\n"
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
    "no configuration at all": ({}, ""),
}


def write_sources(folder: Path, files: Mapping[str, str]) -> Path:
    (folder / "sources.list.d").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("files", "mirror"), CASES.values(), ids=CASES)
def test_the_mirror_of_debian_in_apts_files(
    tmp_path: Path, files: Mapping[str, str], mirror: str
) -> None:
    assert rootfs.debian_mirror("bookworm", write_sources(tmp_path, files)) == mirror
