"""Write generated images: `idx FOLDER` (files of MNIST's form) or `folders FOLDER SIZE COUNT`."""
# mypy: ignore-errors

import sys
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 10
random = np.random.default_rng(0)


def images(count: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """A bright square under noise; its place is the class."""
    labels = random.integers(0, CLASSES, count).astype(np.uint8)
    pixels = random.integers(0, 90, (count, side, side)).astype(np.uint8)
    cell = side // 5
    for picture, label in zip(pixels, labels, strict=True):
        row, column = divmod(int(label), 5)
        picture[2 * row * cell : (2 * row + 1) * cell, column * cell : (column + 1) * cell] += 60
    return pixels, labels


def idx(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in {"train": 6000, "t10k": 1000}.items():
        pixels, labels = images(count, 28)
        head = np.array([2051, count, 28, 28], ">i4").tobytes()
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
        head = np.array([2049, count], ">i4").tobytes()
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


def folders(folder: Path, side: int, count: int) -> None:
    for part in ("train", "val"):
        pixels, labels = images(count, side)
        for number, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
            file = folder / part / f"class{label}" / f"{number}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).convert("RGB").save(file)


if __name__ == "__main__":
    form, target, *numbers = sys.argv[1:]
    {"idx": idx, "folders": folders}[form](Path(target), *map(int, numbers))
