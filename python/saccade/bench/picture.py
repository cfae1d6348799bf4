"""A picture of the race: a bar a shape, the speed-up over the fastest SDPA backend, with its interval."""

from __future__ import annotations

import html

_ROW, _LEFT, _WIDTH, _TOP = 22, 250, 420, 46


def svg(document: dict, kernel: str) -> str:
    """The speed-ups of one candidate as SVG, readable on light and dark pages."""
    rows = []
    for shape in document["results"]:
        for entry in shape["kernels"]:
            if entry["kernel"] == kernel and "speedup" in entry:
                rows.append((shape["shape"], entry["speedup"]))
    most = max([2.0, *(ratio["high"] for _, ratio in rows)])
    height = _TOP + _ROW * len(rows) + 12

    def x(ratio: float) -> float:
        return _LEFT + _WIDTH * ratio / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 90}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<text x="8" y="18" fill="#888" font-size="13">{html.escape(kernel)}: speed-up over the fastest SDPA backend'
        f" ({html.escape(document['device'])}), 95% intervals</text>",
        f'<line x1="{x(1):.1f}" x2="{x(1):.1f}" y1="{_TOP - 12}" y2="{height - 8}" stroke="#888" '
        'stroke-dasharray="3 3"/>',
    ]
    for number, (shape, ratio) in enumerate(rows):
        y = _TOP + _ROW * number
        colour = "#2a9d5c" if ratio["verdict"] == "faster" else "#c2553d" if ratio["verdict"] == "slower" else "#8a8f98"
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end" fill="#888">{html.escape(shape)}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{x(ratio["value"]) - _LEFT:.1f}" height="14" rx="2" fill="{colour}"/>',
            f'<line x1="{x(ratio["low"]):.1f}" x2="{x(ratio["high"]):.1f}" y1="{y + 7}" y2="{y + 7}" stroke="#333"/>',
            f'<text x="{x(ratio["high"]) + 6:.1f}" y="{y + 11}" fill="#888">{ratio["value"]:.2f}x</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
