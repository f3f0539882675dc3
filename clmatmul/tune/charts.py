"""Charts of a search as SVG text: no script, no network, colours from the page's style sheet."""

import math
from html import escape

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 44


def _svg(name, title, body, height=_HEIGHT):
    return (
        f'<svg id="{name}" role="img" viewBox="0 0 {_WIDTH} {height}" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{body}</svg>'
    )


def _text(x, y, text, anchor="middle", kind="label"):
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


class _Axes:
    """Maps values to the drawing area; logarithmic where asked."""

    def __init__(self, xs, ys, log=False):
        self._log = log
        self._x = self._range(xs)
        self._y = self._range(ys)

    def _scale(self, value):
        return math.log10(value) if self._log else value

    def _range(self, values):
        low, high = min(map(self._scale, values)), max(map(self._scale, values))
        if not self._log:
            low = min(low, 0.0)
        pad = 0.05 * (high - low) or 1.0
        return (low - pad if self._log else low), high + pad

    def x(self, value):
        low, high = self._x
        return _LEFT + (self._scale(value) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value):
        low, high = self._y
        part = (self._scale(value) - low) / (high - low)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

    def _ticks(self, limits):
        low, high = limits
        if self._log:
            tens = [10.0**e for e in range(math.floor(low), math.floor(high) + 1)]
            few = high - low < 2
            ticks = [f * ten for ten in tens for f in ((1, 2, 5) if few else (1,))]
            return [x for x in ticks if low <= math.log10(x) <= high]
        step = 10 ** math.floor(math.log10((high - low) / 2))
        step *= next(f for f in (1, 2, 5, 10) if (high - low) / (f * step) <= 6)
        return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]

    def frame(self, x_name, y_name):
        """Grid lines, numbers at them, and the names of the axes."""
        parts = []
        for value in self._ticks(self._y):
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" '
                         f'y1="{y:.1f}" y2="{y:.1f}"/>')  # fmt: skip
            parts.append(_text(_LEFT - 6, y + 4, f"{value:g}", "end"))
        for value in self._ticks(self._x):
            parts.append(_text(self.x(value), _HEIGHT - _BOTTOM + 16, f"{value:g}"))
        parts.append(_text((_LEFT + _WIDTH) / 2, _HEIGHT - 8, x_name))
        parts.append(f'<g transform="translate(14 {_HEIGHT / 2}) rotate(-90)">'
                     f"{_text(0, 0, y_name)}</g>")  # fmt: skip
        return "".join(parts)


def best_so_far(name, steps, end, numpy_gflops=None, unit="GFLOP/s"):
    """steps: (seconds, speed in `unit`) whenever the best improved; end: seconds of the search."""
    end = max(end, steps[-1][0], 1e-3)
    lines = [numpy_gflops] if numpy_gflops else []
    axes = _Axes([0, end], [y for _, y in steps] + lines)
    points = [(steps[0][0], steps[0][1])]
    for (_, before), (seconds, now) in zip(steps, steps[1:], strict=False):
        points += [(seconds, before), (seconds, now)]
    points.append((end, steps[-1][1]))
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
    body = axes.frame("seconds", unit)
    for value in lines:
        y = axes.y(value)
        body += (
            f'<line class="other" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        body += _text(_WIDTH - _RIGHT - 4, y - 5, "NumPy", "end")
    body += f'<polyline class="best" points="{path}"/>'
    body += "".join(
        f'<circle class="mark" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3"/>' for x, y in steps
    )
    return _svg(name, "The best so far", body)


def heat_map(name, rows, columns, cells, row_name, column_name, unit="GFLOP/s"):
    """cells: (row value, column value) → speed in `unit`, the best of all with these values."""
    height = _TOP + _BOTTOM + 30 * len(rows)
    width = (_WIDTH - _LEFT - _RIGHT) / len(columns)
    most = max(cells.values())
    parts = []
    for i, row in enumerate(rows):
        y = _TOP + 30 * i
        parts.append(_text(_LEFT - 6, y + 20, str(row), "end"))
        for j, column in enumerate(columns):
            value = cells.get((row, column))
            x = _LEFT + j * width
            shade = 0 if value is None else value / most
            parts.append(
                f'<rect class="cell" x="{x:.1f}" y="{y}" width="{width - 2:.1f}" height="28" '
                f'style="fill-opacity:{shade:.2f}"/>'
            )
            if value is not None:
                kind = "strong" if shade > 0.45 else "cell-number"
                parts.append(_text(x + width / 2, y + 19, f"{value:.3g}", kind=kind))
    for j, column in enumerate(columns):
        parts.append(_text(_LEFT + (j + 0.5) * width, height - _BOTTOM + 16, str(column)))
    parts.append(_text((_LEFT + _WIDTH) / 2, height - 8, column_name))
    parts.append(f'<g transform="translate(14 {(height - _BOTTOM) / 2 + 8}) rotate(-90)">'
                 f"{_text(0, 0, row_name)}</g>")  # fmt: skip
    return _svg(name, f"The best {unit} by {row_name} and {column_name}", "".join(parts), height)


def bars(name, title, values):
    """values: (name, part from 0 to 1)."""
    height = _TOP + 28 * len(values) + 8
    left = 130
    parts = []
    for i, (label, value) in enumerate(values):
        y = _TOP + 28 * i
        width = value * (_WIDTH - left - 70)
        parts.append(_text(left - 8, y + 15, label, "end"))
        parts.append(f'<rect class="bar" x="{left}" y="{y}" width="{width:.1f}" height="20"/>')
        parts.append(_text(left + width + 6, y + 15, f"{value:.0%}", "start"))
    return _svg(name, title, "".join(parts), height)


def roofline(name, intensity, points, compute, bandwidth):
    """intensity: operations a byte. points: (label, GFLOP/s). compute: the highest GFLOP/s and
    bandwidth: the highest GB/s that were measured."""
    ridge = compute / bandwidth
    left, right = min(intensity / 4, ridge / 4), max(intensity * 4, ridge * 4)
    low, high = min([y for _, y in points] + [left * bandwidth]), compute
    axes = _Axes([left, right], [low, *[y for _, y in points], high], log=True)
    body = axes.frame("operations a byte", "GFLOP/s")
    corners = [(left, left * bandwidth), (ridge, compute), (right, compute)]
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in corners)
    body += f'<polyline class="roof" points="{path}"/>'
    body += _text(axes.x(left) + 24, axes.y(left * bandwidth) - 4, f"{bandwidth:.3g} GB/s", "start")
    body += _text(axes.x(right) - 4, axes.y(compute) - 6, f"{compute:.4g} GFLOP/s", "end")
    x = axes.x(intensity)
    lowest = None  # of two marks that lie on each other, the second's label goes below
    for label, value in sorted(points, key=lambda point: -point[1]):
        y = axes.y(value)
        body += f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        at = y + 4 if lowest is None else max(y + 4, lowest + 14)
        body += _text(x + 8, at, f"{label} {value:.4g}", "start")
        lowest = at
    return _svg(name, "Roofline", body)
