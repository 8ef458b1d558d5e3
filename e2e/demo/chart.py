"""A chart of the pods on each node over time, as text and as SVG; rounds share the time axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.text import Text

from e2e.demo.claims import PodRun, Round, by_node

_COLUMNS = 64
_NO_NODE = "no node"
_WAITS, _HOLDS, _TRAINS = "·", "░", "█"
_MEANING = {_WAITS: "waits for a node", _HOLDS: "has a node, no step yet", _TRAINS: "trains"}
_OPACITY = {_WAITS: 0.08, _HOLDS: 0.3, _TRAINS: 1.0}
_STYLES = ("blue", "dark_orange")
_FILLS = ("#2f6db5", "#d9822b")


@dataclass(frozen=True, slots=True)
class Panel:
    """Rounds of the same jobs, drawn one above the other."""

    title: str
    rounds: Sequence[Round]

    @property
    def seconds(self) -> float:
        """The duration of the longest round, from its start to the end of its last pod."""
        return max(run.ended - result.began for result in self.rounds for run in result.pods)

    def colour(self, job: str) -> int:
        """Return the index of a job's colour, which is the same in all rounds."""
        return sorted({run.job for result in self.rounds for run in result.pods}).index(job)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A phase of a pod, with its times in seconds since the round began."""

    kind: str
    begin: float
    end: float


def stretches(run: PodRun, *, began: float) -> list[Stretch]:
    """Return the phases of a pod that are not empty: it waits, or has a node and then trains.

    A pod trains from the first step of its job on. A bound pod was bound within a second or two, so
    it counts as bound from its creation.
    """
    begin, end = max(run.created, began), run.ended
    if not run.node:
        parts = [Stretch(_WAITS, begin - began, end - began)]
    else:
        trains = min(max(begin, end if run.trains is None else run.trains), end)
        parts = [
            Stretch(_HOLDS, begin - began, trains - began),
            Stretch(_TRAINS, trains - began, end - began),
        ]
    return [part for part in parts if part.end > part.begin]


def rows(runs: Sequence[PodRun]) -> list[list[PodRun]]:
    """Return the pods of a node in as few rows as possible; pods in a row do not overlap."""
    all_rows: list[list[PodRun]] = []
    for run in sorted(runs, key=lambda run: (run.created, run.job, run.replica)):
        free = (row for row in all_rows if row[-1].ended <= run.created)
        row = next(free, None)
        if row is None:
            all_rows.append([run])
        else:
            row.append(run)
    return all_rows


def text(panel: Panel) -> Text:
    """Return a panel as text, with one line for each pod."""
    scale = _COLUMNS / panel.seconds
    shown = Text(f"{panel.title}\n", style="bold")
    for result in panel.rounds:
        shown.append(f"{_headline(result)}\n", style="bold not dim")
        for node, runs in by_node(result.pods).items():
            for number, run in enumerate(runs):
                head = node or _NO_NODE
                shown.append(f"  {head if number == 0 else '':8} ")
                shown.append(f"{run.job} {run.replica}".ljust(18), style="not bold")
                style = f"not bold {_STYLES[panel.colour(run.job)]}"
                shown.append(f"{_line(run, result.began, scale)}\n", style=style)
    shown.append(f"  {'':27}0 s{f'{panel.seconds:.0f} s':>{_COLUMNS - 3}}\n", style="not bold dim")
    key = "   ".join(f"{kind} {word}" for kind, word in _MEANING.items())
    shown.append(f"  {'':27}{key}", style="not bold dim")
    return shown


def _headline(result: Round) -> str:
    """Return who placed the jobs, and the step time of each job."""
    times = result.step_ms
    speeds = (
        f"{job} {times[job]:.0f} ms a step" if job in times else f"{job} makes no step"
        for job in result.steps
    )
    return f"{result.placed_by}: {', '.join(speeds)}"


def _line(run: PodRun, began: float, scale: float) -> str:
    cells = [" "] * _COLUMNS
    for stretch in stretches(run, began=began):
        first, last = round(stretch.begin * scale), round(stretch.end * scale)
        for cell in range(max(first, 0), min(max(last, first + 1), _COLUMNS)):
            cells[cell] = stretch.kind
    return "".join(cells).rstrip()


_WIDTH, _LEFT, _RIGHT = 960, 170, 20
_BAR, _GAP, _HEAD = 18, 4, 26


def svg(panels: Sequence[Panel]) -> str:
    parts: list[str] = []
    height = 16
    for panel in panels:
        drawn, height = _panel(panel, top=height)
        parts += drawn
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _panel(panel: Panel, *, top: int) -> tuple[list[str], int]:
    """Return the SVG elements of a panel, and the y coordinate of the next panel."""
    scale = (_WIDTH - _LEFT - _RIGHT) / panel.seconds
    parts = [_words(16, top + 14, panel.title, size=16, weight="bold")]
    y = top + _HEAD
    first = y
    for result in panel.rounds:
        parts.append(_words(16, y + 16, _headline(result), weight="bold"))
        y += _HEAD - 2
        for node, runs in by_node(result.pods).items():
            parts.append(_words(_LEFT - 8, y + 13, node or _NO_NODE, anchor="end", fill="#555555"))
            for row in rows(runs):
                for run in row:
                    fill = _FILLS[panel.colour(run.job)]
                    parts += _pod(run, result.began, y=y, scale=scale, fill=fill)
                y += _BAR + _GAP
        y += 6
    ticks = _ticks(panel.seconds)
    lines = [
        f'<line x1="{_LEFT + tick * scale:.1f}" y1="{first}" x2="{_LEFT + tick * scale:.1f}" '
        f'y2="{y}" stroke="#e4e4e4"/>'
        for tick in ticks
    ]
    marks = [
        _words(_LEFT + tick * scale, y + 14, f"{tick} s", anchor="middle", fill="#555555", size=11)
        for tick in ticks
    ]
    return lines + parts + marks + _legend(y + 34), y + 62


def _pod(run: PodRun, began: float, *, y: int, scale: float, fill: str) -> list[str]:
    parts, label = [], (0.0, 0.0, "#222222")
    for stretch in stretches(run, began=began):
        x, width = _LEFT + stretch.begin * scale, (stretch.end - stretch.begin) * scale
        dashed = f' stroke="{fill}" stroke-dasharray="3 3"' if stretch.kind == _WAITS else ""
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{fill}" '
            f'fill-opacity="{_OPACITY[stretch.kind]}"{dashed}/>'
        )
        colour = "#ffffff" if stretch.kind == _TRAINS else "#222222"
        label = max(label, (width, x, colour))
    width, x, colour = label
    name = f"{run.job} {run.replica}"
    parts.append(_words(x + 5, y + 13, name, size=11, fill=colour))
    return parts


def _legend(y: int) -> list[str]:
    parts = []
    for number, (kind, word) in enumerate(_MEANING.items()):
        x = _LEFT + number * 190
        parts.append(
            f'<rect x="{x}" y="{y - 10}" width="22" height="12" fill="{_FILLS[0]}" '
            f'fill-opacity="{_OPACITY[kind]}"/>'
        )
        parts.append(_words(x + 30, y, word, size=11, fill="#555555"))
    return parts


def _ticks(seconds: float) -> range:
    return range(0, int(seconds) + 1, 10 if seconds <= 120 else 30)


def _words(
    x: float, y: float, words: str, *, size: int = 13, fill: str = "#222222",
    anchor: str = "start", weight: str = "normal",
) -> str:  # fmt: skip
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )
