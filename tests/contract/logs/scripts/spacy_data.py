"""Write train.spacy and dev.spacy: texts of two classes, for `spacy train`."""
# mypy: ignore-errors

import random

import spacy
from spacy.tokens import DocBin

dice = random.Random(0)
words = {"GOOD": ["fine", "great", "nice", "kind"], "BAD": ["poor", "awful", "sad", "grim"]}
blank = spacy.blank("en")
for name, count in {"train": 400, "dev": 80}.items():
    docs = DocBin()
    for _ in range(count):
        label = dice.choice(sorted(words))
        noise = dice.choices(["it", "was", "a", "day", "fine", "poor", "and"], k=5)
        doc = blank(" ".join([*noise, dice.choice(words[label])]))
        doc.cats = {"GOOD": float(label == "GOOD"), "BAD": float(label == "BAD")}
        docs.add(doc)
    docs.to_disk(f"{name}.spacy")
