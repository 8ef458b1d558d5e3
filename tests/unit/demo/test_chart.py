from dataclasses import replace
from xml.etree import ElementTree

from e2e.demo.chart import Panel, Stretch, rows, stretches, svg, text
from tests.unit.demo.rounds import BEGAN, a_round, pod

PLAIN = a_round(
    pod("a", "master-0", ended=30, trains=20),
    pod("a", "worker-0", node="", started=None, ended=30),
    placed_by="plain <Kubernetes>",
    steps={"a": 0},
)
KFEXT = a_round(
    pod("b", "master-0", node="node-1", started=5, ended=15, trains=10),
    steps={"b": 40},
    step_ms={"b": 61.6},
)
PANEL = Panel("Two ways", [PLAIN, KFEXT])


def test_a_pod_holds_its_node_then_trains() -> None:
    run = pod("a", "master-0", started=2, ended=30, trains=20)
    assert stretches(run, began=BEGAN) == [Stretch("░", 0, 20), Stretch("█", 20, 30)]


def test_a_pod_whose_job_does_no_step_only_holds_its_node() -> None:
    run = pod("a", "master-0", started=2, ended=30)
    assert stretches(run, began=BEGAN) == [Stretch("░", 0, 30)]


def test_a_pod_without_a_node_waits_to_its_end() -> None:
    run = pod("a", "master-0", node="", started=None, ended=30)
    assert stretches(run, began=BEGAN) == [Stretch("·", 0, 30)]


def test_a_pod_takes_the_row_of_one_that_has_ended() -> None:
    first, beside = pod("a", "master-0", ended=10), pod("a", "worker-0", ended=12)
    after = replace(pod("b", "master-0"), created=BEGAN + 11, ended=BEGAN + 20)
    assert rows([after, first, beside]) == [[first, after], [beside]]


def test_the_text_has_a_line_for_each_pod_plain_above_kfext() -> None:
    lines = [line.split() for line in text(PANEL).plain.splitlines()]
    assert [line[:3] for line in lines[1:6]] == [
        ["plain", "<Kubernetes>:", "a"],
        ["node-0", "a", "master-0"],
        ["no", "node", "a"],
        ["kfext:", "b", "62"],
        ["node-1", "b", "master-0"],
    ]


def test_all_rounds_of_a_panel_have_one_time_axis() -> None:
    longest, shorter = (
        next(line for line in text(PANEL).plain.splitlines() if name in line)
        for name in ("a master-0", "b master-0")
    )
    assert len(longest) > len(shorter)
    assert text(PANEL).plain.splitlines()[-2].split() == ["0", "s", "30", "s"]


def test_the_picture_is_well_formed_and_names_every_pod() -> None:
    root = ElementTree.fromstring(svg([PANEL]))
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Two ways", "no node", "node-0", "node-1"} <= words
    assert {"plain <Kubernetes>: a does no step", "kfext: b 62 ms a step"} <= words
    assert {"a master-0", "a worker-0", "b master-0"} <= words


def test_no_bar_leaves_the_picture() -> None:
    root = ElementTree.fromstring(svg([PANEL]))
    width = float(root.attrib["width"])
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(bar.get("x", 0)) + float(bar.attrib["width"]) <= width
