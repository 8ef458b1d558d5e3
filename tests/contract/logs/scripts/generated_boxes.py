"""Write images with one square each, and their labels and data.yaml in YOLO's form."""
# mypy: ignore-errors

import sys
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 64
random = np.random.default_rng(0)
root = Path(sys.argv[1]).absolute()
for part, count in {"train": 64, "val": 16}.items():
    for kind in ("images", "labels"):
        (root / kind / part).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels = random.integers(0, 90, (SIDE, SIDE, 3)).astype(np.uint8)
        x, y = random.integers(0, SIDE - 20, 2)
        pixels[y : y + 20, x : x + 20] += 120
        Image.fromarray(pixels).save(root / "images" / part / f"{number}.jpg")
        middle = f"0 {(x + 10) / SIDE:.4f} {(y + 10) / SIDE:.4f} {20 / SIDE:.4f} {20 / SIDE:.4f}\n"
        (root / "labels" / part / f"{number}.txt").write_text(middle)
(root / "data.yaml").write_text(
    f"path: {root}\ntrain: images/train\nval: images/val\nnames:\n  0: square\n"
)
