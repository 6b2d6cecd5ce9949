"""A picture of what is known of an entity, what rules add to that, and what is likely true of it (extra ``plots``)."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from newcomer.data.plots import any_letters, need_matplotlib
from newcomer.errors import OptionError, unknown_name
from newcomer.files import fresh_file
from newcomer.predictor.answers import Grounding
from newcomer.predictor.explain import Suggestion
from newcomer.predictor.fact_store import Triple
from newcomer.predictor.predictor import Predictor

MOST = 6  # boxes of a kind
# Inches; boxes all have one size, so that lines end at them and nothing overlaps.
WIDTH, BOX, ROW, LEGEND = 14.6, (2.9, 0.46), 0.62, 0.5
LEFT, MIDDLE, RIGHT = 1.75, 5.1, 8.9
TEXT_FROM, REASON_FROM = RIGHT + BOX[0] / 2 + 0.15, RIGHT + BOX[0] / 2 + 0.7
LETTERS, REASON_LETTERS = 30, 54


class Style(NamedTuple):
    """How one kind of edge is drawn, and what the legend calls it."""

    meaning: str
    colour: str
    face: str = "white"
    dashes: Any = "solid"
    line: float = 1.3
    frame: float = 1.1


KNOWN = Style("known fact", "#4477aa")
VIRTUAL = Style("virtual neighbour: a fact that rules infer", "#777777", dashes=(0, (4, 2.5)))
ANSWER = Style("answer, with its probability", "#cc3311", "#fbe3dc", line=2.2, frame=2)


@dataclass(frozen=True)
class Edge:
    """One line of the picture: a fact of the entity, and why it is believed."""

    fact: Triple
    probability: float | None = None  # of an answer
    because: str = ""


@dataclass(frozen=True)
class Scene:
    """What a picture shows; ``more`` counts the known facts and virtual neighbours there was no room for."""

    entity: str
    known: tuple[Edge, ...]
    virtual: tuple[Edge, ...]
    answers: tuple[Edge, ...]
    more: tuple[int, int]


def scene(model: Predictor, entity: str, top: int = 5) -> Scene:
    """The facts of an entity, its virtual neighbours, and its likeliest missing facts.

    An answer is about someone whom no known fact ties to the entity, and there is one about each. An answer that is a
    virtual neighbour as well stands among the answers.
    """
    if top < 1:
        raise OptionError(f"top is {top}, but must be at least 1")
    neighbors = model.neighbors(entity)
    known = [Edge(one.fact) for one in neighbors if not one.virtual]
    inferred = {one.fact: _premises(one.groundings[0]) if one.groundings else "" for one in neighbors if one.virtual}
    taken = {_other(edge.fact, entity) for edge in known}
    answers: list[Edge] = []
    for one in model.suggest(entity, 10 * top):
        other = _other(one.fact, entity)
        if len(answers) < top and other not in taken:
            taken.add(other)
            answers.append(Edge(one.fact, one.probability, _reason(one)))
    answered = {edge.fact for edge in answers}
    virtual = [Edge(fact, because=why) for fact, why in inferred.items() if fact not in answered]
    more = max(0, len(known) - MOST), max(0, len(virtual) - MOST)
    return Scene(entity, tuple(known[:MOST]), tuple(virtual[:MOST]), tuple(answers), more)


def _reason(one: Suggestion) -> str:
    """The best reason; of a rule its premises, which say it sooner."""
    best = one.because.best
    first = best.evidence[0] if best is not None and best.evidence else None
    return _premises(first) if isinstance(first, Grounding) else str(one.because)


def _premises(grounding: Grounding) -> str:
    return "because " + " and ".join(" ".join(premise) for premise in grounding.premises)


def draw(shown: Scene, path: Path) -> None:
    """Draw a scene into a file: known facts, virtual neighbours and answers, each with lines of its own."""
    pyplot = need_matplotlib()
    rows = max(len(shown.known) + 1, len(shown.answers) + len(shown.virtual) + 1 + bool(shown.virtual))
    height = ROW * (rows + 0.5) + LEGEND
    figure = pyplot.figure(figsize=(WIDTH, height))
    kind = path.suffix.lstrip(".").lower() or "png"
    try:
        if kind not in figure.canvas.get_supported_filetypes():
            raise unknown_name("kind of picture", kind, figure.canvas.get_supported_filetypes())
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(0, height))
        axes.axis("off")
        with any_letters(), fresh_file(path) as partial:
            _Canvas(axes, pyplot, shown, height).draw()
            figure.savefig(partial, format=kind, dpi=110)
    finally:
        pyplot.close(figure)


class _Canvas:
    """Boxes and lines, in inches."""

    def __init__(self, axes: Any, pyplot: Any, shown: Scene, height: float) -> None:
        self.axes, self.shown, self.height = axes, shown, height
        self.patches = pyplot.matplotlib.patches
        self.middle = (height + LEGEND) / 2 - 0.15

    def draw(self) -> None:
        shown, top = self.shown, self.height - 0.4
        known_from = self.middle + (len(shown.known) - 1) * ROW / 2
        self._title(LEFT, known_from + 0.62 * ROW, "known facts", KNOWN, shown.more[0])
        for place, edge in enumerate(shown.known):
            self._edge(LEFT, known_from - place * ROW, edge, KNOWN)
        self._title(RIGHT, top, "answers", ANSWER)
        for place, edge in enumerate(shown.answers, start=1):
            self._edge(RIGHT, top + 0.3 * ROW - place * ROW, edge, ANSWER)
        if shown.virtual:
            below = top - (len(shown.answers) + 1) * ROW
            self._title(RIGHT, below, "virtual neighbours", VIRTUAL, shown.more[1])
            for place, edge in enumerate(shown.virtual, start=1):
                self._edge(RIGHT, below + 0.3 * ROW - place * ROW, edge, VIRTUAL)
        for x, style in zip((LEFT, MIDDLE, RIGHT), (KNOWN, VIRTUAL, ANSWER), strict=True):
            self._explain(x - BOX[0] / 2, style)
        ellipse = self.patches.Ellipse((MIDDLE, self.middle), 2.3, 0.95, facecolor="#222222", zorder=3)
        self.axes.add_patch(ellipse)
        white: dict[str, Any] = {"color": "white", "fontsize": 13, "fontweight": "bold", "ha": "center", "zorder": 4}
        self._text(MIDDLE, self.middle, _short(shown.entity, 20), 2.0, **white)

    def _title(self, x: float, y: float, text: str, style: Style, more: int = 0) -> None:
        words = f"{text} (and {more:,} more)" if more else text
        self._text(x - BOX[0] / 2, y, words, color=style.colour, fontsize=11, fontweight="bold", ha="left")

    def _explain(self, x: float, style: Style) -> None:
        """One entry of the legend."""
        self._arrow((x, LEGEND / 2), (x + 0.7, LEGEND / 2), style)
        self._text(x + 0.8, LEGEND / 2, style.meaning, color="#444444", fontsize=9, ha="left")

    def _arrow(self, start: tuple[float, float], end: tuple[float, float], style: Style) -> None:
        looks = {"color": style.colour, "linestyle": style.dashes, "linewidth": style.line}
        self.axes.add_patch(self.patches.FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=13, **looks))

    def _edge(self, x: float, y: float, edge: Edge, style: Style) -> None:
        """A box that says the relation and whom it leads to, its line, and the reason beside it."""
        width, height = BOX
        leaves = edge.fact[0] == self.shown.entity
        corner, rounding = (x - width / 2, y - height / 2), "round,pad=0,rounding_size=0.1"
        frame = {"edgecolor": style.colour, "facecolor": style.face, "linewidth": style.frame}
        self.axes.add_patch(self.patches.FancyBboxPatch(corner, width, height, rounding, zorder=2, **frame))
        side = -1 if x < MIDDLE else 1
        near, far = (MIDDLE + side * 1.15, self.middle), (x - side * width / 2, y)
        self._arrow(*((near, far) if leaves else (far, near)), style)
        above = 0.105 if leaves else -0.105  # read along the arrow: relation, then whom it leads to
        relation, other, inside = _short(edge.fact[1]), _short(_other(edge.fact, self.shown.entity)), BOX[0] - 0.2
        self._text(x, y + above, relation, inside, color="#555555", fontsize=8.5, ha="center", zorder=4)
        self._text(x, y - above, other, inside, fontsize=10, fontweight="bold", ha="center", zorder=4)
        if edge.probability is not None:
            bold: dict[str, Any] = {"color": style.colour, "fontsize": 12, "fontweight": "bold", "ha": "left"}
            self._text(TEXT_FROM, y, f"{edge.probability:.2f}", **bold)
        if edge.because:
            lines = "\n".join(wrap(edge.because, REASON_LETTERS, max_lines=2, placeholder=" ..."))
            self._text(REASON_FROM, y, lines, WIDTH - REASON_FROM - 0.1, color="#444444", fontsize=8, ha="left")

    def _text(self, x: float, y: float, text: str, room: float = WIDTH, **style: Any) -> None:
        """Words of at most so many inches: letters get smaller where they need more."""
        drawn = self.axes.text(x, y, text, va="center", parse_math=False, **style)
        while drawn.get_window_extent().width > room * drawn.figure.dpi:  # not in proportion: letters are whole pixels
            drawn.set_fontsize(0.95 * drawn.get_fontsize())


def _other(fact: Triple, entity: str) -> str:
    return fact[2] if fact[0] == entity else fact[0]


def _short(text: str, letters: int = LETTERS) -> str:
    return text if len(text) <= letters else text[: letters - 3].rstrip() + "..."
