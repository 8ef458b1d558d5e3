import hashlib
import io
import json
import os
import tarfile
from collections.abc import Collection
from pathlib import Path

import pytest

from e2e.testbed.images.layers import (
    Image,
    Layer,
    Recipe,
    files_below,
    key,
    write_archive,
    write_layer,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    contents = tmp_path / "contents"
    (contents / "usr/bin").mkdir(parents=True)
    (contents / "usr/bin/program").write_bytes(b"\x7fELF")
    (contents / "usr/bin/program").chmod(0o755)
    (contents / "bin").symlink_to("usr/bin")
    os.utime(contents / "usr/bin/program", (1_000_000_000.7, 1_000_000_000.7))
    return contents


@pytest.fixture
def made(folder: Path, tmp_path: Path) -> Layer:
    path = tmp_path / "layer.tar"
    return Layer(path, write_layer(folder, path))


def archived(image: Image, *, known: Collection[str] = ()) -> bytes:
    output = io.BytesIO()
    write_archive(image, output, known=known)
    return output.getvalue()


def read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def test_a_layer_holds_the_folder_with_modes_links_and_whole_seconds(made: Layer) -> None:
    with tarfile.open(made.path) as tar:
        assert tar.getnames() == ["bin", "usr", "usr/bin", "usr/bin/program"]
        program = tar.getmember("usr/bin/program")
        assert (program.mode, program.mtime) == (0o755, 1_000_000_000)
        assert tar.getmember("bin").linkname == "usr/bin"


def test_a_layer_is_named_by_its_own_bytes(made: Layer) -> None:
    assert made.digest == hashlib.sha256(made.path.read_bytes()).hexdigest()


def test_the_same_folder_gives_the_same_layer(folder: Path, tmp_path: Path, made: Layer) -> None:
    assert write_layer(folder, tmp_path / "again.tar") == made.digest


def test_the_same_image_gives_the_same_archive(made: Layer) -> None:
    image = Image("some/name:dev", [made], entrypoint=["program"])
    assert archived(image) == archived(image)


def test_docker_and_containerd_find_all_they_look_for(made: Layer) -> None:
    image = Image("some/name:dev", [made], entrypoint=["program"], user="65532")
    with tarfile.open(fileobj=io.BytesIO(archived(image))) as tar:
        contents = {name: read(tar, name) for name in tar.getnames()}
    (docker,) = json.loads(contents["manifest.json"])
    assert docker["RepoTags"] == ["some/name:dev"]
    assert json.loads(contents[docker["Config"]])["config"]["User"] == "65532"
    assert contents[docker["Layers"][0]] == made.path.read_bytes()

    (entry,) = json.loads(contents["index.json"])["manifests"]
    assert entry["annotations"] == {"io.containerd.image.name": "docker.io/some/name:dev"}
    manifest = json.loads(contents["blobs/" + entry["digest"].replace(":", "/")])
    for blob in (manifest["config"], *manifest["layers"]):
        content = contents["blobs/" + blob["digest"].replace(":", "/")]
        assert blob["size"] == len(content)
        assert blob["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_a_known_layer_is_named_but_left_out(made: Layer) -> None:
    image = Image("name:dev", [made])
    with tarfile.open(fileobj=io.BytesIO(archived(image, known={made.digest}))) as tar:
        assert f"blobs/sha256/{made.digest}" not in tar.getnames()


def test_the_base_of_an_image_lacks_its_top_layer(made: Layer) -> None:
    base = Image("kfext:dev", [made, made]).base()
    assert (base.name, base.layers) == ("kfext-base:dev", [made])


def test_a_name_without_a_namespace_is_written_out_as_docker_does() -> None:
    assert Image("kfext:dev", []).full_name == "docker.io/library/kfext:dev"


def test_a_layer_is_made_once_for_the_same_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFEXT_CACHE", str(tmp_path))
    filled: list[Path] = []

    def fill(folder: Path) -> None:
        filled.append(folder)
        (folder / "file").write_text("content")

    assert not Recipe("name", ["input"], fill).is_made
    first = Recipe("name", ["input"], fill).layer()
    assert Recipe("name", ["input"], fill).is_made
    assert Recipe("name", ["input"], fill).layer() == first
    assert Recipe("name", ["other"], fill).layer().path != first.path
    assert len(filled) == 2


def test_a_layer_that_could_not_be_filled_leaves_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFEXT_CACHE", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        Recipe("name", [], fail).layer()
    assert [path.name for path in (tmp_path / "layers").iterdir()] == [".lock"]
    assert Recipe("name", [], lambda folder: None).layer().path.exists()


def test_keys_tell_where_one_input_ends_and_the_next_begins() -> None:
    assert key(["ab", "c"]) != key(["a", "bc"])


def test_inputs_are_files_by_name_and_content_without_compiled_ones(tmp_path: Path) -> None:
    (tmp_path / "code/__pycache__").mkdir(parents=True)
    (tmp_path / "code/__pycache__/a.pyc").write_bytes(b"")
    (tmp_path / "code/a.py").write_text("a")
    (tmp_path / "single").write_text("b")
    found = files_below(tmp_path / "code", tmp_path / "single")
    assert found == ["code/a.py", b"a", "single", b"b"]
