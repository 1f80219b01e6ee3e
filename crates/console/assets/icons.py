#!/usr/bin/env python3
"""Draws the PNG icons of the installed console from the shapes of icon.svg. Needs nothing but Python; the same shapes give
the same bytes with the same zlib.

    python3 crates/console/assets/icons.py
"""

import math
import pathlib
import struct
import zlib

GREEN, GOLD, WHITE, PAPER = (0x1B, 0x5A, 0x48), (0xE2, 0xA5, 0x26), (255, 255, 255), (0xEE, 0xF2, 0xF0)
SIZES = (192, 512)
# Samples per pixel and direction.
FINE = 4
# How much of a maskable icon is the drawing: it stays inside the circle that every mask leaves.
SAFE = 0.68


def curve(a, b, c, d):
    """Points of a cubic Bézier curve."""
    for step in range(9):
        t = step / 8
        yield tuple(
            (1 - t) ** 3 * a[i] + 3 * (1 - t) ** 2 * t * b[i] + 3 * (1 - t) * t * t * c[i] + t**3 * d[i] for i in (0, 1)
        )


# The path of the handle in icon.svg.
HANDLE = [
    (7, 6),
    *curve((7, 4.8), (7, 3.8), (7.8, 3), (8.8, 3)),
    *curve((11.2, 3), (12.2, 3), (13, 3.8), (13, 4.8)),
    (13, 6),
]


def distance(x, y, a, b):
    (ax, ay), (bx, by) = a, b
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    t = 0 if length == 0 else max(0, min(1, ((x - ax) * dx + (y - ay) * dy) / length))
    return math.hypot(x - ax - t * dx, y - ay - t * dy)


def colour(x, y):
    """What icon.svg has at a point of its 20 by 20 units; None for nothing. The last shape is on top."""
    if abs(x - 10) + abs(y - 11.6) <= 3:
        return GOLD
    if 2 <= x <= 18 and abs(y - 11.6) <= 0.6:
        return WHITE
    inner_x, inner_y = max(4.8, min(15.2, x)), max(8.8, min(14.7, y))
    if math.hypot(x - inner_x, y - inner_y) <= 2.8:
        return GREEN
    if 2 <= y <= 6 and 6 <= x <= 14:
        if any(distance(x, y, a, b) <= 0.85 for a, b in zip(HANDLE, HANDLE[1:])):
            return GREEN
    return None


def pixels(size, maskable):
    scale = SAFE if maskable else 1
    for row in range(size):
        line = bytearray([0])
        for column in range(size):
            red = green = blue = hits = 0
            for sample in range(FINE * FINE):
                x = (column + (sample % FINE + 0.5) / FINE) / size
                y = (row + (sample // FINE + 0.5) / FINE) / size
                # The drawing's middle is a little below that of its square.
                at = colour(10 + (x - 0.5) * 20 / scale, (10.1 if maskable else 10) + (y - 0.5) * 20 / scale)
                at = at or (PAPER if maskable else None)
                if at:
                    red, green, blue, hits = red + at[0], green + at[1], blue + at[2], hits + 1
            whole = max(hits, 1)
            line += bytes((red // whole, green // whole, blue // whole, hits * 255 // (FINE * FINE)))
        yield bytes(line)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size, maskable):
    header = struct.pack(">IIBBBBB", size, size, 8, 6, 0, 0, 0)
    body = zlib.compress(b"".join(pixels(size, maskable)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    for size in SIZES:
        (folder / f"icon-{size}.png").write_bytes(png(size, False))
        (folder / f"icon-maskable-{size}.png").write_bytes(png(size, True))
