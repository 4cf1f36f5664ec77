"""A small writer of SVG: the few shapes that the pictures are made of, in light and dark.

A picture has its own background: the page around it may be lighter or darker than the reader's
system says. Widths of texts are estimated, since there are no fonts to ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

__all__ = ["DARK", "LIGHT", "THEMES", "Drawing", "Theme", "text_width"]

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
#: The width of a letter, as a part of its height, on average, rather too much than too little.
_LETTER = 0.56
SIZE = 13.0


@dataclass(frozen=True)
class Theme:
    """The colours: those of data can be told apart with every kind of colour vision."""

    name: str
    background: str
    text: str
    faint: str
    grid: str
    #: Holdfast, or what is better.
    first: str
    #: The other one, or what is worse.
    second: str
    #: A mark that stands out from both.
    mark: str


LIGHT = Theme("light", "#ffffff", "#1f2328", "#59636e", "#d9dee3", "#0072b2", "#d55e00", "#1f2328")
DARK = Theme("dark", "#0d1117", "#e6edf3", "#9198a1", "#30363d", "#56b4e9", "#e69f00", "#f0f6fc")
THEMES = (LIGHT, DARK)


def text_width(text: str, size: float = SIZE) -> float:
    """Return about how wide a text is.

    >>> text_width("four", 10.0)
    22.4
    """
    return round(len(text) * size * _LETTER, 3)


class Drawing:
    """Shapes in the order in which they are drawn.

    Args:
        width, height: The size in pixels.
        title: Names the picture, for readers who do not see it.
        theme: The colours.
    """

    def __init__(self, width: float, height: float, title: str, theme: Theme) -> None:
        self.theme = theme
        self._size = (width, height)
        self._title = title
        self._shapes: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        size: float = SIZE,
        colour: str = "",
        bold: bool = False,
    ) -> None:
        """Write a line; ``y`` is where its letters stand."""
        weight = ' font-weight="600"' if bold else ""
        fill = colour or self.theme.text
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{fill}"{weight}>{escape(text)}</text>'
        )

    def line(
        self,
        points: list[tuple[float, float]],
        colour: str,
        *,
        width: float = 1.0,
        dashes: str = "",
    ) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{dashed}/>'
        )

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Draw a filled rectangle."""
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="2" fill="{colour}"/>'
        )

    def dot(self, x: float, y: float, colour: str, filled: bool = True) -> None:
        """Draw a small circle."""
        fill = colour if filled else self.theme.background
        self._shapes.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}" '
            'stroke-width="2"/>'
        )

    def render(self) -> str:
        """Return the file."""
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label={quoteattr(self._title)} '
            f'font-family="{_FONT}">'
        )
        ground = f'<rect width="100%" height="100%" rx="6" fill="{self.theme.background}"/>'
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([head, title, ground, *self._shapes, "</svg>", ""])
